package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// keep is step 3. It returns the submission that now stands for the request:
// the draft, or the earlier one that the request joins.
func (e *Engine) keep(ctx context.Context, d *draft, known *chain.Seal) (s *submission, joined bool, err error) {
	err = e.store.update(ctx, func(t *tx) error {
		first, err := e.recognise(t, d)
		if err != nil || first != nil {
			s, joined = first, true
			return err
		}
		if err := cmpErr(d.unread, e.Room()); err != nil {
			return err
		}
		s = &d.submission
		return e.write(t, d, known)
	})
	if err != nil {
		return nil, false, err
	}
	if !joined {
		e.track(s)
	}
	return s, joined, nil
}

// recognise returns the submission that a request repeats, or nil.
func (e *Engine) recognise(t *tx, d *draft) (*submission, error) {
	idem, fp := idempotencyKey(d), fingerprintKey(d)
	if !d.Idempotency.IsZero() {
		row, err := getSeen(t, idem, e.cfg.Now().Add(-e.cfg.IdempotencyTTL))
		if err != nil {
			return nil, err
		}
		first, err := t.joinable(row)
		if err == nil && first != nil && row.Content != d.content {
			err = errKeyReused
		}
		if err != nil || first != nil {
			return first, err
		}
	}
	if d.Fingerprint.IsZero() {
		return nil, nil
	}
	row, err := getSeen(t, fp, e.cfg.Now().Add(-e.cfg.ResubmitWindow))
	if err != nil {
		return nil, err
	}
	first, err := t.joinable(row)
	if err != nil || first == nil || d.Idempotency.IsZero() {
		return first, err
	}
	return first, e.writeSeen(t, idem, d, first.ID, e.cfg.IdempotencyTTL) // the new key names the first submission too
}

// joinable returns the submission that a row names, or nil. One that failed is
// not joined: fail releases the keys that it came with, but any number of later
// keys may name it.
func (t *tx) joinable(row *seen) (*submission, error) {
	if row == nil {
		return nil, nil
	}
	s, err := t.submission(ref{row.Tenant, row.Submission})
	if err != nil || s.Status == wire.StatusFailed {
		return nil, err
	}
	return s, nil
}

// getSeen returns the row of a fingerprint or idempotency key that is younger
// than since, or nil.
func getSeen(t *tx, key []byte, since time.Time) (*seen, error) {
	row, ok, err := t.get(key)
	if err != nil || !ok {
		return nil, err
	}
	v, err := decodeRow[seen](key, row)
	if err != nil || v.At <= since.Unix() {
		return nil, err
	}
	return &v, nil
}

// write puts a new submission into the store: step 3.
func (e *Engine) write(t *tx, d *draft, known *chain.Seal) error {
	listed := byte(rowUnsealed)
	if !d.Unsealed {
		listed = rowByDigest
		if err := reserveAll(t, &d.submission, known); err != nil {
			return err
		}
	}
	id := d.ref().key()
	if _, taken, err := t.get(rowKey(rowSubmission, id)); err != nil || taken {
		return errors.Join(err, fault.New(fault.Conflict, "SUBMISSION_EXISTS", "submissionId: %s is taken", d.ID))
	}
	for n, put := range d.puts {
		t.set(rowKey(rowOutbox, id, ordinal(n)), frameRow(put))
	}
	t.set(rowKey(listed, tenantTag(d.Tenant), d.Digest[:], uuidBytes(string(d.ID))), nil)
	t.set(rowKey(rowPending, id), nil)
	if !d.Fingerprint.IsZero() {
		if err := e.writeSeen(t, fingerprintKey(d), d, d.ID, e.cfg.ResubmitWindow); err != nil {
			return err
		}
	}
	if !d.Idempotency.IsZero() {
		if err := e.writeSeen(t, idempotencyKey(d), d, d.ID, e.cfg.IdempotencyTTL); err != nil {
			return err
		}
	}
	return t.putSubmission(&d.submission)
}

func (e *Engine) writeSeen(t *tx, key []byte, d *draft, id wire.SubmissionID, keep time.Duration) error {
	now := e.cfg.Now()
	row, err := encodeRow(seen{Tenant: d.Tenant, Submission: id, Content: d.content, At: now.Unix()})
	if err != nil {
		return err
	}
	t.set(key, row)
	t.set(expiryKey(now.Add(keep), key), nil)
	return nil
}

// reserveAll gives a submission's digests their job ids. The subject's is the
// chain's, when the chain was asked and knew one.
func reserveAll(t *tx, s *submission, known *chain.Seal) (err error) {
	var chains wire.JobID
	if known != nil {
		chains = known.JobID
	}
	if s.JobID, err = reserve(t, s.Digest, chains); err != nil {
		return err
	}
	for i := range s.Files {
		if s.Files[i].JobID, err = reserve(t, s.Files[i].SHA256, ""); err != nil {
			return err
		}
	}
	if !s.MetadataDigest.IsZero() {
		s.MetadataJobID, err = reserve(t, s.MetadataDigest, "")
	}
	return err
}

// reserve returns the job id of a digest: known, if the chain gave it, else the
// one given out before, else a new one. Every id returned here resolves to the
// digest from this commit on.
func reserve(t *tx, d wire.Digest, known wire.JobID) (wire.JobID, error) {
	key := rowKey(rowReservation, d[:])
	row, ok, err := t.get(key)
	if err != nil {
		return "", err
	}
	id := known
	if ok && id == "" {
		r, err := decodeRow[reservation](key, row)
		if err != nil {
			return "", err
		}
		return r.JobID, nil
	}
	if id == "" {
		id = wire.NewJobID()
	}
	if !ok {
		if row, err = encodeRow(reservation{id}); err != nil {
			return "", err
		}
		t.set(key, row)
	}
	return id, t.alias(id, d)
}

// alias makes a job id resolve to a digest for ever.
func (t *tx) alias(id wire.JobID, d wire.Digest) error {
	key := rowKey(rowJob, uuidBytes(string(id)))
	_, ok, err := t.get(key)
	if err == nil && !ok {
		t.set(key, frameRow(d[:]))
	}
	return err
}

func (t *tx) submission(id ref) (*submission, error) {
	key := rowKey(rowSubmission, id.key())
	row, ok, err := t.get(key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fault.New(fault.Corrupt, "SUBMISSION_MISSING", "jobs: a row names submission %s, which is not there", id.submission)
	}
	s, err := decodeRow[submission](key, row)
	return &s, err
}

func (t *tx) putSubmission(s *submission) error {
	row, err := encodeRow(s)
	if err == nil {
		t.set(rowKey(rowSubmission, s.ref().key()), row)
	}
	return err
}

func fingerprintKey(d *draft) []byte { return rowKey(rowFingerprint, d.Fingerprint[:]) }

func idempotencyKey(d *draft) []byte {
	return rowKey(rowIdempotency, tenantTag(d.Tenant), d.Idempotency[:])
}
