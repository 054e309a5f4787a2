package receipts

import (
	"errors"

	"github.com/verae/archive/wire"
)

// A View is everything that [Assemble] needs: the job, who looks at it, and what
// the chain and the archives know.
type View struct {
	JobID          wire.JobID
	RequestedJobID wire.JobID        // what the caller knows it by; shown when it differs from JobID
	SubmissionID   wire.SubmissionID // empty for a digest the viewer did not submit
	TenantID       wire.TenantID     // the viewer
	Digest         wire.Digest

	// Seal is the seal of Digest. Without one (Kind is empty) the job is pending.
	Seal wire.Receipt
	// SideSeals are the seals of public metadata, by its SHA-256.
	SideSeals map[wire.Digest]wire.Receipt

	Queried  bool // the archives were asked; if not, Gathered is ignored
	Gathered Gathered

	HashedFrom    string
	AlreadySealed *bool // nil while the chain was not asked

	// OpenPrivate opens a private metadata record of the viewer. Nil leaves
	// private metadata closed, as in events and answers that are stored.
	OpenPrivate func(wire.Record) (wire.RawJSON, error)
}

// Assemble returns the job of v, its receipts in the order of law 7: the seal,
// then attachments by instant, then by record id. It does no I/O beside
// v.OpenPrivate, is a function of v alone (the order of v.Gathered.Records does
// not matter), and its result shares memory with v.
//
// Private metadata and its public sister, the metadata records of one
// submission, are one receipt. Where the viewer's own private metadata could
// not be opened, the receipt has privateRecordId but no privateMetadata: that is
// the whole story when its key was forgotten (fault.NotFound). Every other
// reason is returned as an error, joined over all records and of their fault
// kinds, beside a job that is right in all else: the caller decides whether to
// show it or to report the failure.
func Assemble(v View) (wire.Job, error) {
	job := wire.Job{
		JobID:            v.JobID,
		Status:           wire.StatusCompleted,
		SHA256:           v.Digest,
		Receipts:         []wire.Receipt{},
		Files:            []wire.FileEntry{},
		SubmissionID:     v.SubmissionID,
		AlreadySealed:    v.AlreadySealed,
		HashedFrom:       v.HashedFrom,
		ArchivesExpected: []wire.ArchiveID{},
		ArchivesMissing:  []wire.ArchiveID{},
	}
	if v.RequestedJobID != v.JobID {
		job.RequestedJobID = v.RequestedJobID
	}
	if v.Seal.Kind == "" {
		job.Status = wire.StatusPending
	} else {
		job.Receipts = append(job.Receipts, v.Seal)
	}
	if !v.Queried {
		return job, nil
	}
	job.ArchivesQueried = true
	job.ArchiveReplies = v.Gathered.Replied
	job.ArchivesExpected = append(job.ArchivesExpected, v.Gathered.Expected...)
	job.ArchivesMissing = append(job.ArchivesMissing, v.Gathered.Missing...)
	job.Complete, job.CompleteReason = v.Gathered.Complete, v.Gathered.Reason
	return job, v.attach(&job)
}

// attach adds the receipts and files of the gathered records.
func (v *View) attach(job *wire.Job) error {
	records := inOrder(v.Gathered.Records)
	sisters := pair(records, v.Gathered.Vouched)
	var errs []error
	for i := range records {
		held := &records[i]
		switch kind := held.Record.Kind; {
		case !v.shows(&held.Record):
		case kind == wire.KindFile:
			file := fileEntry(held)
			file.Retention = v.retention(&held.Record)
			job.Files = append(job.Files, file)
		case kind == wire.KindMetadata:
			receipt, err := v.metadata(held, sisters.private[i])
			job.Receipts, errs = append(job.Receipts, receipt), append(errs, err)
		case kind == wire.KindPrivateMetadata:
			if !sisters.taken[i] {
				receipt, err := v.metadata(nil, held)
				job.Receipts, errs = append(job.Receipts, receipt), append(errs, err)
			}
		default:
			receipt := attachment(held)
			receipt.Retention = v.retention(&held.Record)
			job.Receipts = append(job.Receipts, receipt)
		}
	}
	return errors.Join(errs...)
}

// shows reports whether the viewer gets to see r at all. Whoever gathered has
// checked that already; what must never be shown is not shown on one promise.
func (v *View) shows(r *wire.Record) bool {
	if _, ok := wire.Visible(r, v.TenantID); !ok {
		return false
	}
	switch string(r.Kind) {
	case wire.ReceiptSeal, wire.ReceiptMetadataAttach:
		return false // an attachment that poses as a receipt of ours
	}
	return r.Kind != wire.KindFile || r.File != nil
}

// retention is the state of r as its tenant sees it; nobody else does.
func (v *View) retention(r *wire.Record) *wire.Retention {
	if r.TenantID != v.TenantID {
		return nil
	}
	return r.Retention.Shown()
}

// attachment is the receipt of a record of a tenant's own kind.
func attachment(h *Held) wire.Receipt {
	r := &h.Record
	out := wire.Receipt{
		Kind:         string(r.Kind),
		AttachedAt:   ShownAt(r),
		ContentType:  r.ContentType,
		Body:         r.Body,
		BodySHA256:   r.BodySHA256,
		RecordID:     r.ID,
		SubmissionID: r.SubmissionID,
		ArchiveIDs:   h.ArchiveIDs,
	}
	if r.File != nil {
		out.FileID = r.ID
	}
	return out
}

func fileEntry(h *Held) wire.FileEntry {
	r := &h.Record
	out := wire.FileEntry{
		ID:           r.ID,
		SHA256:       r.File.SHA256,
		ArchiveIDs:   append([]wire.ArchiveID{}, h.ArchiveIDs...),
		Name:         r.File.Name,
		Size:         r.File.Size,
		ContentType:  r.File.ContentType,
		CID:          r.File.CID,
		AttachedAt:   ShownAt(r),
		RecordID:     r.ID,
		SubmissionID: r.SubmissionID,
	}
	if len(out.ArchiveIDs) > 0 {
		out.ArchiveID = out.ArchiveIDs[0]
	}
	return out
}
