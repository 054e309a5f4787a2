package splitter

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/verae/archive/internal/fault"
)

// part is one part of a multipart body, its headers checked and its body unread.
type part struct {
	n           int    // from 1
	field       string // the form name; not empty
	hasFileName bool   // there is a filename, perhaps an empty one
	fileName    string // as sent, unchecked
	contentType string // as sent, unchecked; may be empty
	body        io.Reader
}

const dispositionHint = `send Content-Disposition: form-data; name="..." (and for a file ; filename="...")`

// readPart checks the headers of the n-th part. The field's name must be beyond
// doubt: a reader that guesses loses the part, or takes it for another.
func readPart(n int, p *multipart.Part) (part, error) {
	out := part{n: n, body: p}
	bad := func(header, format string, args ...any) (part, error) {
		return part{}, refuse(CodeBadPart, fmt.Sprintf("part %d", n), "%s %w", header, fmt.Errorf(format, args...))
	}
	for _, header := range []string{"Content-Disposition", "Content-Type", "Content-Transfer-Encoding"} {
		if v := p.Header.Values(header); len(v) > 1 {
			return bad(header, "is given %d times; send it once", len(v))
		}
	}
	value := p.Header.Get("Content-Disposition")
	if value == "" {
		return bad("Content-Disposition", "is missing; %s", dispositionHint)
	}
	disposition, params, err := mime.ParseMediaType(value)
	if err != nil {
		return bad("Content-Disposition", "%s does not parse (%w); put names in double quotes, each once; %s", clip(value), err, dispositionHint)
	}
	names := paramNames(value)
	out.field = params["name"]
	out.fileName, out.hasFileName = params["filename"]
	switch {
	case disposition != "form-data":
		return bad("Content-Disposition", "%s is not form-data; %s", clip(value), dispositionHint)
	case ambiguous(names, "name"), ambiguous(names, "filename", "filename*"):
		return bad("Content-Disposition", "%s gives a name more than once or in an extended spelling; %s", clip(value), dispositionHint)
	case out.field == "":
		return bad("Content-Disposition", "%s has no name; %s", clip(value), dispositionHint)
	case !out.hasFileName && slices.Contains(names, "filename*"):
		return bad("Content-Disposition", "%s has a filename* that does not decode; send filename= in UTF-8", clip(value))
	}
	out.contentType = p.Header.Get("Content-Type")
	return out, out.checkEncoding(p.Header)
}

// checkEncoding refuses encodings that make the part's bytes differ from the
// bytes on the wire: parsers do not agree on who undoes them.
func (p *part) checkEncoding(header textproto.MIMEHeader) error {
	for _, value := range header.Values("Content-Transfer-Encoding") {
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "7bit", "8bit", "binary":
		default:
			return refuse(CodeUnsupportedEncoding, p.field, "part %d has Content-Transfer-Encoding %s; send the bytes as they are, without this header", p.n, clip(value))
		}
	}
	for _, value := range header.Values("Content-Encoding") {
		return refuse(CodeUnsupportedEncoding, p.field, "part %d has Content-Encoding %s; send the bytes as they are, without this header, or name the compressed file's own content type", p.n, clip(value))
	}
	return nil
}

// locate adds the part's number to a refusal of its field.
func (p *part) locate(err error) error {
	refused, ok := errors.AsType[*fault.Error](err)
	if !ok || refused.Kind != fault.Invalid || !strings.HasPrefix(refused.Field, p.field) {
		return err
	}
	located := *refused
	located.Err = fmt.Errorf("part %d, %w", p.n, refused.Err)
	return &located
}

// fileName checks the name of a file. It is kept as sent and shown to people; it
// never becomes a path here.
func fileName(field, name string, limits *Limits) (string, error) {
	switch {
	case len(name) > limits.FileName:
		return "", tooLarge(field, "MAX_FILE_NAME", int64(limits.FileName), "bytes for a file name", "shorten the name")
	case !utf8.ValidString(name):
		return "", refuse(CodeBadField, field, "the file name %s is not UTF-8; encode it as UTF-8", clip(name))
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", refuse(CodeBadField, field, "the file name %s holds a control character; remove it", clip(name))
	}
	return name, nil
}

// statedType checks a content type that will be stored and served as it is.
func statedType(field, value string, limits *Limits) (string, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return "", nil
	}
	if len(value) > limits.ContentType {
		return "", tooLarge(field, "MAX_CONTENT_TYPE", int64(limits.ContentType), "bytes for a content type", "shorten it")
	}
	media, _, err := mime.ParseMediaType(value)
	if err != nil || !strings.Contains(media, "/") || strings.ContainsFunc(value, notPrintableASCII) {
		return "", refuse(CodeBadField, field, "%s is no content type; send one such as application/pdf, or none", clip(value))
	}
	return value, nil
}

func notPrintableASCII(r rune) bool { return r < ' ' || r > '~' }
