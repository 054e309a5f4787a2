package splitter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"strings"
	"time"

	"github.com/verae/archive/wire"
)

// Limits of what a request without an HTTP door may say beside the rest; see
// [Request].
const (
	MaxIdempotencyKey = 255              // bytes
	MaxWait           = 60 * time.Second // a longer wait is refused
)

// jsonRequest is the JSON form of a request. Unknown keys are ignored; keys of
// another spelling, duplicates and other types are refused by wire.Decode. A
// field that is null is absent.
type jsonRequest struct {
	SHA256           *string          `json:"sha256"`
	Data             *string          `json:"data"`
	DataBase64       *string          `json:"dataBase64"`
	PublicMetadata   wire.RawJSON     `json:"publicMetadata"`
	PrivateMetadata  wire.RawJSON     `json:"privateMetadata"`
	Files            []jsonFile       `json:"files"`
	Attachments      []jsonAttachment `json:"attachments"`
	IncludeAttached  bool             `json:"includeAttached"`
	SealMetadata     bool             `json:"sealMetadata"`
	ShareWith        wire.RawJSON     `json:"shareWith"`
	Public           bool             `json:"public"`
	OCR              bool             `json:"ocr"`
	CallbackURL      *string          `json:"callbackUrl"`
	ExpectFileSHA256 *string          `json:"expectFileSha256"`

	// Read only with Config.WantTenant, ignored otherwise whatever they hold.
	TenantID       wire.RawJSON `json:"tenantId"`
	IdempotencyKey wire.RawJSON `json:"idempotencyKey"`
	Wait           wire.RawJSON `json:"wait"`
}

// ReadJSON reads a request from its JSON form. The whole body is held in memory,
// as are the files in it; multipart is the form for large ones. Every check that
// needs no archive is made before the first upload is opened. The error is of
// kind Invalid with one of the codes of this package, an error of the Uploader,
// or that of ctx; then all uploads are aborted. r should fail when ctx ends.
func ReadJSON(ctx context.Context, r io.Reader, cfg Config) (*Request, error) {
	return cfg.read(ctx, func(d *draft) error {
		over := tooLarge("", "MAX_JSON_BODY", d.limits.JSONBody, "bytes for a JSON body", "send files as multipart/form-data, which has no such limit")
		body, err := io.ReadAll(&source{ctx: ctx, r: r, left: d.limits.JSONBody, limit: over})
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(body)) == 0 {
			return refuse(CodeBadJSON, "", "the body is empty; send a JSON object with sha256, data or files")
		}
		in, err := wire.Decode[jsonRequest](body)
		if err != nil {
			return cmp.Or(linkForFiles(body), refuseText(CodeBadJSON, "", discreet("", err)))
		}
		contents, err := in.fill(d)
		if err != nil {
			return err
		}
		if err := d.check(); err != nil {
			return err
		}
		for i, content := range contents {
			if err := d.in.store(ctx, d.files[i].file, content); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill passes every field to the draft and returns the bytes of the files.
func (in *jsonRequest) fill(d *draft) (contents [][]byte, err error) {
	if err := in.fillSubject(d); err != nil {
		return nil, err
	}
	if in.PublicMetadata != nil {
		if d.public, err = d.metadata("publicMetadata", in.PublicMetadata); err != nil {
			return nil, err
		}
	}
	if in.PrivateMetadata != nil {
		if d.private, err = d.metadata("privateMetadata", in.PrivateMetadata); err != nil {
			return nil, err
		}
	}
	for i := range in.Files {
		content, err := in.Files[i].fill(d, i)
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	for i, a := range in.Attachments {
		if err := a.fill(d, at("attachments", i)); err != nil {
			return nil, err
		}
	}
	if in.ShareWith != nil {
		if err := d.shareList(in.ShareWith); err != nil {
			return nil, err
		}
	}
	if in.CallbackURL != nil {
		if err := d.setCallback(*in.CallbackURL); err != nil {
			return nil, err
		}
	}
	d.attached, d.seal, d.everybody, d.ocr = in.IncludeAttached, in.SealMetadata, in.Public, in.OCR
	if d.cfg.WantTenant {
		return contents, in.fillCaller(d)
	}
	return contents, nil
}

// fillSubject takes what names the digest.
func (in *jsonRequest) fillSubject(d *draft) error {
	if in.SHA256 != nil {
		if err := d.setSHA256(*in.SHA256); err != nil {
			return err
		}
	}
	if in.ExpectFileSHA256 != nil {
		if err := d.setExpect(*in.ExpectFileSHA256); err != nil {
			return err
		}
	}
	switch {
	case in.Data != nil && in.DataBase64 != nil:
		return refuse(CodeDuplicateField, "dataBase64", "data was sent too; send one of the two")
	case in.Data != nil:
		d.setData(sha256.Sum256([]byte(*in.Data)))
	case in.DataBase64 != nil:
		data, err := fromBase64("dataBase64", *in.DataBase64)
		if err != nil {
			return err
		}
		d.setData(sha256.Sum256(data))
	}
	return nil
}

// fillCaller takes what the headers of an HTTP request would say.
func (in *jsonRequest) fillCaller(d *draft) error {
	if in.TenantID == nil {
		return refuse(CodeBadField, "tenantId", "it is missing; name the tenant this request is for")
	}
	text, err := wire.Decode[string](in.TenantID)
	if err == nil {
		d.tenant, err = wire.ParseTenantID(text)
	}
	if err != nil {
		return refuseText(CodeBadField, "tenantId", err)
	}
	if in.IdempotencyKey != nil {
		d.idempotencyKey, err = wire.Decode[string](in.IdempotencyKey)
		if err != nil || d.idempotencyKey == "" || len(d.idempotencyKey) > MaxIdempotencyKey || strings.ContainsFunc(d.idempotencyKey, notPrintableASCII) {
			return refuse(CodeBadField, "idempotencyKey", "it must be a string of 1 to %d printable ASCII characters", MaxIdempotencyKey)
		}
	}
	if in.Wait != nil {
		seconds, err := wire.Decode[int64](in.Wait)
		if most := int64(MaxWait / time.Second); err != nil || seconds < 0 || seconds > most {
			return refuse(CodeBadField, "wait", "it must be a whole number of seconds from 0 to %d", most)
		}
		d.wait = time.Duration(seconds) * time.Second
	}
	return nil
}
