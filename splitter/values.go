package splitter

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/verae/archive/wire"
)

// metadata checks a JSON object that is stored byte for byte as it is. Bad
// UTF-8, lone surrogates and duplicate keys are refused: two readers would see
// two values.
func (d *draft) metadata(field string, raw []byte) ([]byte, error) {
	if len(raw) > d.limits.Metadata {
		return nil, d.metadataTooLarge(field)
	}
	if err := wire.CheckObject(raw); err != nil {
		return nil, refuseText(CodeBadField, field, discreet(field, err))
	}
	return raw, nil
}

// discreet removes from an error about private metadata what it quotes of it, be
// it in field or somewhere in a whole body. Messages may be logged, private
// metadata never is.
func discreet(field string, err error) error {
	const private = "privateMetadata"
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || field != private && !strings.HasPrefix(e.Field, private) {
		return err
	}
	out := &wire.Error{Offset: e.Offset, Msg: "not a strict JSON object; look there for a syntax error, a key that is given twice, a lone surrogate, or bytes that are not UTF-8"}
	if field == "" {
		out.Field = private
	}
	return out
}

func (d *draft) metadataTooLarge(field string) error {
	return tooLarge(field, "MAX_METADATA", int64(d.limits.Metadata), "bytes", "send the rest as a file")
}

// attach takes an attachment; field names it in messages.
func (d *draft) attach(field string, a Attachment) error {
	if len(d.attachments) == d.limits.Attachments {
		return tooLarge(field, "MAX_ATTACHMENTS", int64(d.limits.Attachments), "attachments", "send the rest in another request for the same sha256")
	}
	kind, err := wire.ParseKind(string(a.Kind))
	if err != nil {
		return refuseText(CodeBadField, field, err)
	}
	if kind.Reserved() {
		return refuse(CodeReservedKind, field, "the kind %q belongs to the system; use publicMetadata, privateMetadata or files, or another kind", kind)
	}
	if len(a.Body) > d.limits.Attachment {
		return d.attachmentTooLarge(field)
	}
	if a.Name, err = fileName(field, a.Name, &d.limits); err != nil {
		return err
	}
	if a.ContentType, err = statedType(field, a.ContentType, &d.limits); err != nil {
		return err
	}
	a.ContentType = cmp.Or(a.ContentType, DefaultContentType)
	d.attachments = append(d.attachments, a)
	return nil
}

func (d *draft) attachmentTooLarge(field string) error {
	return tooLarge(field, "MAX_ATTACHMENT", int64(d.limits.Attachment), "bytes", "send it as a file")
}

// newFile checks what a sender says of a file beside its bytes.
func (d *draft) newFile(field, name, contentType string) (f *File, err error) {
	if d.chosen() == d.limits.Files {
		return nil, d.tooManyFiles(field)
	}
	f = &File{Profile: d.profile}
	if f.Name, err = fileName(field, name, &d.limits); err != nil {
		return nil, err
	}
	if f.ContentType, err = statedType(field, contentType, &d.limits); err != nil {
		return nil, err
	}
	f.ContentType = cmp.Or(f.ContentType, DefaultContentType)
	return f, nil
}

func (d *draft) tooManyFiles(field string) error {
	return tooLarge(field, "MAX_FILES", int64(d.limits.Files), "files", "send the rest in another request for the same sha256")
}

// shareElement reads one element of shareWith: a tenant id, "*", or an object
// {tenantId, mode}.
func shareElement(field string, raw []byte) (wire.Share, error) {
	list, err := wire.ParseShares(slices.Concat([]byte("["), raw, []byte("]")))
	if err == nil && len(list) == 1 {
		return list[0], nil
	}
	return wire.Share{}, refuse(CodeBadField, field, "%s is no grant (%w); give a tenant id, which shares everything, or {tenantId, mode}", clip(string(raw)), err)
}

// share grants a tenant, or everybody, a view of the submission. Saying the same
// twice is saying it once.
func (d *draft) share(field string, s wire.Share) error {
	if mode, known := d.shares[s.TenantID]; known && mode != s.Mode {
		return refuse(CodeBadField, field, "%q is given both the mode %s and %s; say it once", s.TenantID, mode, s.Mode)
	}
	d.shares[s.TenantID] = s.Mode
	if len(d.shares) > d.limits.Shares {
		return tooLarge(field, "MAX_SHARES", int64(d.limits.Shares), "tenants", "share with more of them later")
	}
	return nil
}

// shareList takes the elements of a JSON list.
func (d *draft) shareList(raw []byte) error {
	elements, err := wire.Decode[[]wire.RawJSON](raw)
	if err != nil {
		return refuse(CodeBadField, "shareWith", "%w; give a list of tenant ids", err)
	}
	for i, element := range elements {
		s, err := shareElement(at("shareWith", i), element)
		if err != nil {
			return err
		}
		if err := d.share(at("shareWith", i), s); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) sortedShares() []wire.Share {
	var shares []wire.Share
	for id, mode := range d.shares {
		shares = append(shares, wire.Share{TenantID: id, Mode: mode})
	}
	slices.SortFunc(shares, func(a, b wire.Share) int { return strings.Compare(string(a.TenantID), string(b.TenantID)) })
	return shares
}

// setCallback checks the form of the URL. Whether its address may be dialled is
// found when it is.
func (d *draft) setCallback(text string) error {
	const field = "callbackUrl"
	if len(text) > d.limits.CallbackURL {
		return tooLarge(field, "MAX_CALLBACK_URL", int64(d.limits.CallbackURL), "bytes", "shorten it")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, notInURL):
		return refuse(CodeBadField, field, "it is no URL; percent-encode blanks and all that is not ASCII")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		return refuse(CodeBadField, field, "it is no absolute http or https URL; send one such as https://example.com/hook")
	case u.User != nil:
		return refuse(CodeBadField, field, "it holds a user name or password, which redirects and logs would leak; leave them out")
	}
	d.callback = text
	return nil
}

func notInURL(r rune) bool { return r <= ' ' || r > '~' }

// maxURLFile is how long content may be to be looked at as a link, in bytes.
const maxURLFile = 8 << 10

// isURL reports whether content is a link and nothing else.
func isURL(content []byte) bool {
	if len(content) > maxURLFile {
		return false
	}
	text := strings.Trim(string(content), " \t\r\n")
	scheme, rest, found := strings.Cut(text, "://")
	return found && rest != "" && !strings.ContainsFunc(text, notInURL) &&
		(strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// fileIsURL refuses a link in the place of a file. Some tools send the address
// of a file where its bytes belong; sealing that text would prove nothing. The
// link is not quoted: it may be a secret.
func fileIsURL(field string) error {
	return refuse(CodeFileIsURL, field, "it holds a link and not the file; fetch the file and send its bytes (a text file that holds a link needs a file name)")
}

// fromBase64 decodes padded standard base64 of exactly one spelling: without
// line breaks, and with zero spare bits.
func fromBase64(field, text string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, refuse(CodeBadField, field, "it is not padded standard base64 (RFC 4648, section 4) without line breaks; encode the bytes anew")
	}
	return b, nil
}
