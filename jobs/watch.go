package jobs

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Watch is the job poller: it settles the submission that a message names. A
// message that names no known submission comes from an edge that knows only
// the original contract, and stands for a pure hash of its tenant: it is
// recorded before it is worked on.
func (e *Engine) Watch(ctx context.Context, w wire.Watch) error {
	if w.SubmissionID != "" {
		id := ref{w.TenantID, w.SubmissionID}
		if s, err := e.current(id); err == nil || !fault.Is(err, fault.NotFound) {
			if err != nil || !s.ended() {
				e.kick(id)
			}
			return err
		}
	}
	s, err := e.record(ctx, w)
	if err == nil {
		e.kick(s.ref())
	}
	return err
}

// record makes the submission of a watch that names none. The same watch again
// finds the one that it made.
func (e *Engine) record(ctx context.Context, w wire.Watch) (s *submission, err error) {
	if w.SHA256.IsZero() {
		return nil, fault.New(fault.Invalid, "SHA256_MISSING", "sha256: a watch must name the digest").InField("sha256")
	}
	if w.TenantID, err = wire.ParseTenantID(string(w.TenantID)); err != nil {
		return nil, badField(err)
	}
	if w.JobID, err = wire.ParseJobID(string(w.JobID)); err != nil {
		return nil, badField(err)
	}
	if w.SubmissionID == "" {
		w.SubmissionID = wire.SubmissionID(w.JobID) // one submission a job id, however often it is watched
	}
	if w.SubmissionID, err = wire.ParseSubmissionID(string(w.SubmissionID)); err != nil {
		return nil, badField(err)
	}
	err = e.store.update(ctx, func(t *tx) error {
		id := ref{w.TenantID, w.SubmissionID}
		row, ok, err := t.get(rowKey(rowSubmission, id.key()))
		if err != nil {
			return err
		}
		if ok {
			first, err := decodeRow[submission](id.key(), row)
			s = &first
			return err
		}
		if err := e.Room(); err != nil {
			return err
		}
		d := &draft{submission: submission{
			ID: w.SubmissionID, Tenant: w.TenantID, Digest: w.SHA256, HashedFrom: splitter.FromSHA256, Placement: w.SHA256,
			AttachedAt: wire.At(e.cfg.Now()), IncludeAttached: w.IncludeAttached, Status: wire.StatusPending, Stored: true, Copied: true,
		}}
		s = &d.submission
		if err := e.write(t, d, nil); err != nil {
			return err
		}
		if err := e.adopt(t, d, w.JobID); err != nil {
			return err
		}
		return entries(s)[0].Check() // what the chain will never seal is not taken
	})
	return s, err
}

// adopt makes the job id that a foreign edge gave out resolve, unless it stands
// for another digest already.
func (e *Engine) adopt(t *tx, d *draft, id wire.JobID) error {
	key := rowKey(rowJob, uuidBytes(string(id)))
	row, ok, err := t.get(key)
	if err != nil {
		return err
	}
	if ok {
		payload, err := openRow(key, row)
		if err == nil && wire.Digest(payload) != d.Digest {
			err = fault.New(fault.Conflict, "JOB_ID_TAKEN", "jobId: %s stands for another digest", id)
		}
		if err != nil {
			return err
		}
	}
	d.JobID = id
	if err := t.alias(id, d.Digest); err != nil {
		return err
	}
	return t.putSubmission(&d.submission)
}

// Pending returns how many submissions the store still lists as unfinished
// work.
func (e *Engine) Pending() (n int, err error) {
	err = e.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{rowPending}, func(_, _ []byte) (bool, error) {
			n++
			return true, nil
		})
	})
	return n, err
}
