package splitter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Codes of refusals. All are of kind fault.Invalid. The number is the HTTP
// status that belongs to the code.
const (
	CodeBadContentType       = "BAD_CONTENT_TYPE"       // 400: Content-Type of the request does not parse or has no usable boundary
	CodeUnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE" // 415: the body is neither JSON nor multipart/form-data
	CodeUnsupportedEncoding  = "UNSUPPORTED_ENCODING"   // 415: a part's Content-Transfer-Encoding changes its bytes
	CodeIncompleteBody       = "INCOMPLETE_BODY"        // 400: the body ended, broke off or stalled before its end
	CodeMalformedMultipart   = "MALFORMED_MULTIPART"    // 400: bytes stand where only a delimiter or a header may
	CodeBadPart              = "BAD_PART"               // 400: a part without a usable name, or with a header that does not parse
	CodeBadJSON              = "BAD_JSON"               // 400: not one strict JSON object, or a field of another type
	CodeUnknownField         = "UNKNOWN_FIELD"          // 400: a multipart field that this contract does not have
	CodeDuplicateField       = "DUPLICATE_FIELD"        // 400: a field that may be given once came twice, or in two forms
	CodeBadField             = "BAD_FIELD"              // 400: the value of a field is not what the field takes
	CodeBadDigest            = "BAD_DIGEST"             // 400: not a SHA-256 in a listed spelling
	CodeManyFiles            = "MANY_FILES"             // 400: more than the one file that is taken
	CodeReservedKind         = "RESERVED_KIND"          // 400: an attachment of a kind that belongs to the system
	CodeTooLarge             = "TOO_LARGE"              // 413: over one of the Limits, which the message names
	CodeSubjectRequired      = "SUBJECT_REQUIRED"       // 422: nothing says which digest is meant
	CodeDigestMismatch       = "DIGEST_MISMATCH"        // 422: two statements about a digest disagree
	CodeFileIsURL            = "FILE_IS_URL"            // 422: a file field holds a link, not the file
	CodeFileRequired         = "FILE_REQUIRED"          // 422: what is asked for needs a file, and none was sent
)

// refuse returns the refusal of a request for the field at fault. An empty
// field means the request as a whole. The text is for the sender.
func refuse(code, field, format string, args ...any) error {
	err := fault.New(fault.Invalid, code, format, args...)
	if field != "" {
		err.Err = fmt.Errorf("%s: %w", field, err.Err)
	}
	return err.InField(field)
}

// refuseText is refuse for an error of package wire about the text of field, or
// about the whole body where field is empty. The path that such an error has
// goes on from there.
func refuseText(code, field string, err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Field == "" {
		return refuse(code, field, "%w", err)
	}
	path := e.Field
	if field != "" && path[0] != '[' {
		path = "." + path
	}
	if field += path; len(field) > maxPath {
		field = strings.ToValidUTF8(field[:maxPath], "") + "..."
	}
	return refuse(code, field, "%w", &wire.Error{Offset: e.Offset, Msg: e.Msg})
}

// maxPath is how much of a field's path a message shows, in bytes. The keys in
// it are the sender's.
const maxPath = 128

// clip quotes a piece of the sender's text, shortened to what a message may
// carry.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q and %d bytes more", s[:most], len(s)-most)
}
