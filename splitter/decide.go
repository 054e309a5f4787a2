package splitter

import (
	"slices"
	"strings"

	"github.com/verae/archive/wire"
)

// check decides what the fields say together. Only after it may a request have
// effects.
func (d *draft) check() error {
	slices.SortStableFunc(d.files, func(a, b fileSlot) int { return a.index - b.index })
	if err := d.decideSubject(); err != nil {
		return err
	}
	if err := d.checkExpected(); err != nil {
		return err
	}
	if d.seal && d.public == nil {
		return refuse(CodeBadField, "sealMetadata", "there is no publicMetadata to seal; send some, or leave sealMetadata out")
	}
	if err := d.decideOCR(); err != nil {
		return err
	}
	if d.everybody {
		if err := d.share("public", wire.Share{TenantID: wire.Public, Mode: wire.ModeFiles}); err != nil {
			return err
		}
	}
	d.in.place(d.subject) // the subject is known, and no file came before it
	return nil
}

// decideSubject finds the digest that the request is about.
func (d *draft) decideSubject() error {
	switch files := d.chosen(); {
	case d.sha256 != nil && d.data != nil && *d.sha256 != *d.data:
		return refuse(CodeDigestMismatch, "sha256", "it is %s, but the data sent hashes to %s; send one of the two, or the data as a file to attach it", d.sha256, d.data)
	case d.sha256 != nil:
		d.subject, d.hashedFrom = *d.sha256, FromSHA256
	case d.data != nil:
		d.subject, d.hashedFrom = *d.data, FromData
	case files == 1:
		d.subject, d.hashedFrom = d.theFiles()[0].SHA256, FromFile
	case files > 1:
		return refuse(CodeSubjectRequired, "sha256", "%d files were sent and nothing says which digest they belong to; send sha256 or data, or one file a request", files)
	default:
		return refuse(CodeSubjectRequired, "sha256", "there is nothing to seal; send sha256, data or one file")
	}
	return nil
}

// checkExpected holds the sender's own digest of a file against what arrived.
func (d *draft) checkExpected() error {
	if d.expect == nil {
		return nil
	}
	var got []string
	hits := 0
	for _, f := range d.theFiles() {
		got = append(got, f.SHA256.String())
		if f.SHA256 == *d.expect {
			hits++
		}
	}
	if hits == 1 {
		return nil
	}
	received := strings.Join(got, ", ")
	if received == "" {
		received = "no file"
	}
	return refuse(CodeDigestMismatch, "expectFileSha256", "%d of the files received have %s, exactly one must; received: %s", hits, d.expect, received)
}

// decideOCR turns the request's default and the files' own wishes into one
// answer for each file.
func (d *draft) decideOCR() error {
	left := len(d.fileOCR)
	for _, s := range d.files {
		wish, own := d.fileOCR[s.index]
		if s.file == nil {
			continue
		}
		s.file.OCR = d.ocr
		if own {
			s.file.OCR = wish
			left--
		}
	}
	if left > 0 {
		return refuse(CodeBadField, "ocr", "ocr:<index> counts the file fields from 0, and an index given names no file; correct it")
	}
	if d.ocr && d.chosen() == 0 {
		return refuse(CodeFileRequired, "ocr", "there is no file to read; send one, or leave ocr out")
	}
	return nil
}
