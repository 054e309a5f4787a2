package splitter

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/wire"
)

// draft collects the fields of a request in whatever order and form they come.
// Its setters check what a field says by itself; check decides, once everything
// has arrived, what the fields say together.
type draft struct {
	ctx    context.Context // of the call that reads the request
	cfg    *Config
	limits Limits
	in     intake

	sha256, data    *wire.Digest
	public, private []byte
	files           []fileSlot
	attachments     []Attachment
	attached, seal  bool
	everybody       bool
	ocr             bool
	fileOCR         map[int]bool // by the index the sender uses
	shares          map[wire.TenantID]string
	callback        string
	expect          *wire.Digest
	tenant          wire.TenantID
	idempotencyKey  string
	wait            time.Duration
	subject         wire.Digest
	hashedFrom      string
}

// fileSlot is a place for a file in the request. A form may leave it empty.
type fileSlot struct {
	index int   // as the sender counts
	file  *File // nil: nothing was chosen
}

func newDraft(ctx context.Context, cfg *Config) *draft {
	return &draft{
		ctx: ctx, cfg: cfg, limits: cfg.Limits.withDefaults(), in: intake{to: cfg.Uploader},
		fileOCR: make(map[int]bool), shares: make(map[wire.TenantID]string), tenant: cfg.TenantID,
	}
}

// setSHA256 takes the digest that the sender states.
func (d *draft) setSHA256(text string) error {
	digest, err := wire.ParseDigest(text)
	if err != nil {
		return refuseText(CodeBadDigest, "sha256", err)
	}
	d.sha256 = &digest
	return nil
}

func (d *draft) setExpect(text string) error {
	digest, err := wire.ParseDigest(text)
	if err != nil {
		return refuseText(CodeBadDigest, "expectFileSha256", err)
	}
	d.expect = &digest
	return nil
}

// setData takes the digest of the data that was sent. Data is always hashed as
// the bytes given, also when it reads like a digest.
func (d *draft) setData(digest [32]byte) { d.data = (*wire.Digest)(&digest) }

// place fixes the placement by what is known when the first file begins.
func (d *draft) place() {
	switch {
	case d.sha256 != nil:
		d.in.place(*d.sha256)
	case d.data != nil:
		d.in.place(*d.data)
	default:
		d.in.place(submissionKey(d.cfg.SubmissionID))
	}
}

// addSlot makes room for a file that the sender counts as index.
func (d *draft) addSlot(index int) *fileSlot {
	d.files = append(d.files, fileSlot{index: index})
	return &d.files[len(d.files)-1]
}

// chosen counts the files that were really sent.
func (d *draft) chosen() int {
	n := 0
	for _, s := range d.files {
		if s.file != nil {
			n++
		}
	}
	return n
}

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
		return refuse(CodeBadField, "ocr", "there is no file to read; send one, or leave ocr out")
	}
	return nil
}

// theFiles are the files in the sender's order.
func (d *draft) theFiles() []File {
	var files []File
	for _, s := range d.files {
		if s.file != nil {
			files = append(files, *s.file)
		}
	}
	return files
}

// request returns the finished request and hands the uploads over to it.
func (d *draft) request() *Request {
	req := &Request{
		Subject: d.subject, HashedFrom: d.hashedFrom, Placement: d.in.placement,
		TenantID: d.tenant, IdempotencyKey: d.idempotencyKey, Wait: d.wait,
		PublicMetadata: d.public, PrivateMetadata: d.private,
		Files: d.theFiles(), Attachments: d.attachments,
		IncludeAttached: d.attached, SealMetadata: d.seal, ShareWith: d.sortedShares(),
		OCR: d.ocr, CallbackURL: d.callback, ExpectFileSHA256: d.expect,
		uploads: d.in.opened,
	}
	return req
}

// at is the name of an element of a list field.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
