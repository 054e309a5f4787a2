package splitter

import (
	"context"
	"strconv"
	"time"

	"github.com/verae/archive/blob"
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
	profile         blob.Profile // of every file
	unsealed        bool
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
		fileOCR: make(map[int]bool), shares: make(map[wire.TenantID]string), tenant: cfg.TenantID, profile: blob.Default,
	}
}

// setSHA256 takes the digest that the sender states.
func (d *draft) setSHA256(text string) error {
	digest, err := wire.ParseDigest(text)
	if err != nil {
		return refuseText(CodeBadDigest, "sha256", err)
	}
	if digest.IsZero() {
		return refuse(CodeBadDigest, "sha256", "it is all zeros, which stands for no digest; send the SHA-256 of something")
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
		OCR: d.ocr, CallbackURL: d.callback, ExpectFileSHA256: d.expect, Unsealed: d.unsealed,
		uploads: d.in.opened,
	}
	return req
}

// at is the name of an element of a list field.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
