package splitter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"mime/multipart"
	"slices"
	"strings"

	"github.com/verae/archive/wire"
)

// ReadMultipart reads a request from a multipart/form-data body (RFC 7578);
// contentType is the request's Content-Type header. Files go to their archives
// while they arrive, all else is held until the closing delimiter: only then is
// anything decided, so that the parts may come in any order. The order does
// choose the placement, see [Request]; sha256 is best sent first.
//
// A field's name decides what a part is, not whether it has a file name:
//
//	sha256, expectFileSha256, callbackUrl       text
//	includeAttached, sealMetadata, public, ocr  true or false
//	data                                        hashed as the bytes given
//	publicMetadata, privateMetadata             a JSON object
//	files, files[], files[0], files[1]...       a file; all of them in one spelling
//	ocr:0, ocr:1...                             true or false for one file field, counted from 0
//	attachment:<kind>                           an attachment
//	shareWith                                   tenant ids with commas between, or a JSON list; may be repeated
//	tenantId                                    ignored
//
// A file part without a file name and without bytes is a file input that was
// left empty, and no file. The error is as with [ReadJSON]. r should fail when
// ctx ends; it is read to its end when there is no error.
func ReadMultipart(ctx context.Context, r io.Reader, contentType string, cfg Config) (*Request, error) {
	return cfg.read(ctx, func(d *draft) error {
		boundary, err := boundaryOf(contentType, "application/json or multipart/form-data")
		if err != nil {
			return err
		}
		src := &source{ctx: ctx, r: r, left: d.limits.Body,
			limit: tooLarge("", "MAX_BODY", d.limits.Body, "bytes for a body", "send fewer or smaller files in one request")}
		m := &form{draft: d, frames: newFramer(src, boundary, d.limits.PartHeader), seen: make(map[string]bool)}
		if err := m.parts(multipart.NewReader(m.frames, boundary)); err != nil {
			return err
		}
		return d.check()
	})
}

// form is the state of reading one multipart body.
type form struct {
	*draft
	frames  *framer
	seen    map[string]bool // fields that came and may come once
	indexed bool            // file fields are spelt files[0], files[1]...
}

// parts reads all parts, and the body to its end.
func (m *form) parts(r *multipart.Reader) error {
	for n := 1; ; n++ {
		raw, err := r.NextRawPart()
		if m.frames.state == closed && err == io.EOF {
			return m.frames.rest()
		}
		if err != nil {
			return m.explain(n, err)
		}
		if n > m.limits.Parts {
			return tooLarge("", "MAX_PARTS", int64(m.limits.Parts), "parts", "send fewer fields, or the files in several requests")
		}
		p, err := readPart(n, raw)
		if err != nil {
			return err
		}
		if err := m.take(&p); err != nil {
			return p.locate(err)
		}
	}
}

// explain says why there is no n-th part. What the framer met comes first; as it
// lets nothing else through, mime/multipart can object to header lines only.
func (m *form) explain(n int, err error) error {
	if m.frames.err != nil && m.frames.err != io.EOF {
		return m.frames.err
	}
	return refuse(CodeBadPart, fmt.Sprintf("part %d", n), "its header lines do not parse (%w); send them as Name: value", err)
}

// text reads the value of a scalar field.
func (m *form) text(p *part, limit int, name string) (string, error) {
	b, err := readAll(p.body, limit, tooLarge(p.field, name, int64(limit), "bytes for a field", "check that the value belongs to this field"))
	return string(b), err
}

// flag reads true or false.
func (m *form) flag(p *part) (bool, error) {
	text, err := m.text(p, m.limits.Field, "MAX_FIELD")
	if err != nil {
		return false, err
	}
	switch strings.TrimSpace(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, refuse(CodeBadField, p.field, "%s is neither true nor false; send one of these words", clip(text))
}

// hashData hashes a data part in passing.
func (m *form) hashData(p *part) error {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(p.body, m.limits.Data+1))
	if err != nil {
		return err
	}
	if n > m.limits.Data {
		return tooLarge(p.field, "MAX_DATA", m.limits.Data, "bytes", "send it as a file")
	}
	m.setData([32]byte(h.Sum(nil)))
	return nil
}

// object reads a metadata part.
func (m *form) object(p *part) ([]byte, error) {
	raw, err := readAll(p.body, m.limits.Metadata, m.metadataTooLarge(p.field))
	if err != nil {
		return nil, err
	}
	return m.metadata(p.field, raw)
}

// attachment reads an attachment part. A file input that was left empty is none.
func (m *form) attachment(p *part, kind string) error {
	body, err := readAll(p.body, m.limits.Attachment, m.attachmentTooLarge(p.field))
	if err != nil || len(body) == 0 && p.hasFileName && p.fileName == "" {
		return err
	}
	return m.attach(p.field, Attachment{Kind: wire.Kind(kind), ContentType: p.contentType, Name: p.fileName, Body: body})
}

// shareField reads tenant ids with commas between, or the JSON form.
func (m *form) shareField(p *part) error {
	text, err := m.text(p, m.limits.Field, "MAX_FIELD")
	if err != nil {
		return err
	}
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		return m.shareList([]byte(text))
	}
	for id := range strings.SplitSeq(text, ",") {
		id = strings.TrimSpace(id)
		if tenant, err := wire.ParseTenantID(id); err != nil && id != string(wire.Public) {
			return refuseText(CodeBadField, p.field, err)
		} else if err := m.share(p.field, wire.Share{TenantID: cmp.Or(tenant, wire.Public), Mode: wire.ModeFiles}); err != nil {
			return err
		}
	}
	return nil
}

// file reads a file part.
func (m *form) file(p *part, index int, indexed bool) error {
	if len(m.files) > 0 && indexed != m.indexed {
		return refuse(CodeDuplicateField, p.field, "files are sent both with and without an index; use one spelling, files or files[0], files[1]...")
	}
	m.indexed = indexed
	if !indexed {
		index = len(m.files)
	}
	if slices.ContainsFunc(m.files, func(s fileSlot) bool { return s.index == index }) {
		return refuse(CodeDuplicateField, p.field, "it was sent before; give every file an index of its own, or call all of them files")
	}
	slot := m.addSlot(index)
	first, last, err := m.in.fragment(p.body)
	if err != nil || p.fileName == "" && last && len(first) == 0 {
		return err
	}
	if p.fileName == "" && last && isURL(first) {
		return fileIsURL(p.field)
	}
	f, err := m.newFile(p.field, p.fileName, p.contentType)
	if err != nil {
		return err
	}
	m.place()
	slot.file = f
	return m.in.pass(m.ctx, f, first, last, p.body)
}
