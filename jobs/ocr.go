package jobs

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/verae/archive/bridge/envelope"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Fetchers knows who could fetch a file. Its method may be called from many
// goroutines.
type Fetchers interface {
	// FetchesFiles reports whether somebody has the right to fetch the files of a
	// tenant now.
	FetchesFiles(tenant wire.TenantID) bool
}

// ocrJob is what is known of an OCR job for ever: the same file, attached to the
// same digest by the same tenant, is never read a second time.
type ocrJob struct {
	JobID      string            `json:"jobId"` // see envelope.OCRJobID
	Tenant     wire.TenantID     `json:"tenant"`
	Submission wire.SubmissionID `json:"submission"` // the first that asked for it
	File       wire.RecordID     `json:"file"`
	Envelope   wire.EnvelopeID   `json:"envelope"` // of its message
	QueuedAt   wire.Time         `json:"queuedAt"`
	DoneAt     wire.Time         `json:"doneAt,omitzero"` // the message was published; empty: it waits
}

// ocrJobKey is the key of an OCR job: the bytes that its id tells in hex.
func ocrJobKey(id string) []byte {
	b, err := hex.DecodeString(id[max(0, len(id)-32):])
	if err != nil || len(b) != 16 {
		b = uuidBytes(id) // not one of ours: equals the key of none
	}
	return rowKey(rowOCRJob, b)
}

// ocrWaitingKey is the key of a message that waits. Ids of one aggregator rise, so
// that the oldest comes first.
func ocrWaitingKey(id wire.EnvelopeID) []byte {
	return rowKey(rowOCRWaiting, uuidBytes(string(id)))
}

// fetchable refuses a request for the text of a file that nobody may fetch, by a
// key of its tenant or of whom it is shared with: its message would come to
// nothing, wherever it goes.
func (e *Engine) fetchable(d *draft, req *splitter.Request) error {
	if !d.wantsOCR() {
		return nil
	}
	readers := []wire.TenantID{d.Tenant}
	for _, s := range req.ShareWith {
		if s.Mode == wire.ModeFiles {
			readers = append(readers, s.TenantID)
		}
	}
	fetches := func(t wire.TenantID) bool { return t == wire.Public || e.cfg.Fetchers.FetchesFiles(t) }
	if e.cfg.Fetchers != nil && slices.ContainsFunc(readers, fetches) {
		return nil
	}
	return fault.New(fault.Invalid, "OCR_NO_WORKER",
		"ocr: no API key may fetch files of tenant %s, so no OCR worker could: leave ocr out, or have an operator make a key: verae keys create ocr --file KEYS_FILE --scopes files --tenants %s",
		d.Tenant, d.Tenant).InField("ocr")
}

// wantsOCR reports whether the text of a file is asked for.
func (s *submission) wantsOCR() bool {
	for i := range s.Files {
		if s.Files[i].OCR {
			return true
		}
	}
	return false
}

// queueOCR adds the message of every file whose text is wanted, but for those that
// were asked for before, and returns how many it added. It belongs into the commit
// that ends a submission: then archives have acknowledged the file under its CID,
// and a crash neither loses the message nor makes a second one.
func (t *tx) queueOCR(s *submission, now time.Time) (queued int, err error) {
	for i := range s.Files {
		if !s.Files[i].OCR {
			continue
		}
		added, err := t.queueFile(s, i, now)
		if err != nil {
			return 0, err
		}
		if added {
			queued++
		}
	}
	return queued, nil
}

func (t *tx) queueFile(s *submission, i int, now time.Time) (added bool, err error) {
	payload := s.ocrPayload(i)
	key := ocrJobKey(payload.JobID)
	if _, known, err := t.get(key); err != nil || known {
		return false, err
	}
	if err := payload.Check(); err != nil {
		return false, fault.Wrap(fault.Internal, err)
	}
	message, err := envelope.Mint(payload, now)
	if err != nil {
		return false, fault.Wrap(fault.Internal, err)
	}
	row, err := encodeRow(ocrJob{
		JobID: payload.JobID, Tenant: s.Tenant, Submission: s.ID, File: s.fileRecord(i), Envelope: message.ID, QueuedAt: wire.At(now),
	})
	if err != nil {
		return false, err
	}
	t.set(key, row)
	t.set(ocrWaitingKey(message.ID), frameRow(message.Bytes()))
	return true, nil
}

// ocrPayload is the job of the i-th file. A file without a name goes by its CID.
func (s *submission) ocrPayload(i int) *envelope.OCRJob {
	f, name := &s.Files[i], s.Files[i].CID
	for _, p := range s.Parts {
		if p.File == i+1 && p.Name != "" {
			name = p.Name
		}
	}
	return &envelope.OCRJob{
		Kind: envelope.KindOCR, JobID: envelope.OCRJobID(s.Tenant, s.Digest, f.SHA256, f.CID),
		IPFSCID: f.CID, Filename: name, SHA1: f.SHA1, Bytes: &f.Size,
		Origin: &envelope.Origin{Domain: envelope.DomainManual, Ref: "verae/" + string(s.ID) + "/" + s.fileRecord(i).String()},
	}
}
