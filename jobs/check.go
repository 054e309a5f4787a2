package jobs

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// checker walks one state of a job store.
type checker struct {
	r      pebble.Reader
	seals  Seals
	report CheckReport
	found  []error
}

// Lengths of keys; see the package comment.
const (
	refLen    = 16 + 16
	digestLen = 32
	numberLen = 4
	timeLen   = 8
)

// note remembers what is wrong.
func (c *checker) note(format string, args ...any) {
	c.found = append(c.found, fault.New(fault.Corrupt, "JOBS_DAMAGED", "jobs: "+format, args...))
}

func (c *checker) run(ctx context.Context) error {
	for _, kind := range []struct {
		prefix byte
		length int // of the key behind its prefix; 0: any
		check  func(key, row []byte) error
	}{
		{rowMeta, 0, c.decodes},
		{rowReservation, digestLen, c.reservation},
		{rowJob, 16, c.job},
		{rowSubmission, refLen, func(key, row []byte) error { return c.submission(ctx, key, row) }},
		{rowByDigest, 16 + digestLen + 16, c.byDigest},
		{rowUnsealed, 16 + digestLen + 16, c.byDigest},
		{rowFingerprint, digestLen, c.seen},
		{rowIdempotency, 16 + digestLen, c.seen},
		{rowOutbox, refLen + numberLen, c.outbox},
		{rowPending, refLen, c.pending},
		{rowEvent, refLen + numberLen, c.event},
		{rowUnannounced, refLen + numberLen, c.unannounced},
		{rowExpiry, 0, c.expiry},
		{rowAccount, 0, c.decodes},
		{rowLost, 0, c.decodes},
		{rowVanished, 16 + 2*digestLen, func([]byte, []byte) error { return nil }},
		{rowSteering, 16 + 2*digestLen, c.steering},
		{rowControl, refLen, c.control},
		{rowSpread, 0, c.decodes},
		{rowOCRJob, 16, c.ocrJob},
		{rowOCRWaiting, 16, c.ocrWaiting},
	} {
		err := scan(c.r, []byte{kind.prefix}, func(key, row []byte) (bool, error) {
			if len(c.found) >= maxFindings {
				return false, errEnough
			}
			if kind.length > 0 && len(key) != 1+kind.length {
				c.note("key %x has %d bytes, not %d", key, len(key), 1+kind.length)
				return true, ctx.Err()
			}
			if err := kind.check(key, row); err != nil {
				return false, err
			}
			return true, ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return c.nothingElse()
}

// nothingElse finds rows of no known kind.
func (c *checker) nothingElse() error {
	known := []byte{rowAccount, rowLost, rowVanished, rowMeta, rowReservation, rowJob, rowSubmission, rowByDigest, rowFingerprint, rowIdempotency, rowOutbox, rowPending, rowEvent, rowUnannounced, rowExpiry, rowSteering, rowControl, rowSpread, rowUnsealed, rowOCRJob, rowOCRWaiting}
	for prefix := range 256 {
		if bytes.IndexByte(known, byte(prefix)) >= 0 {
			continue
		}
		err := scan(c.r, []byte{byte(prefix)}, func(key, _ []byte) (bool, error) {
			c.note("key %x is none of the job store's", key)
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// decodes notes a row that does not match its checksum.
func (c *checker) decodes(key, row []byte) error {
	if _, err := openRow(key, row); err != nil {
		c.note("%w", err)
	}
	return nil
}

// there notes a row that is missing although why needs it.
func (c *checker) there(key []byte, why string, of []byte) error {
	_, ok, err := getRow(c.r, key)
	if err == nil && !ok {
		c.note("row %x is missing: %s (row %x)", key, why, of)
	}
	return err
}

func (c *checker) reservation(key, row []byte) error {
	v, err := decodeRow[reservation](key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	return c.there(rowKey(rowJob, uuidBytes(string(v.JobID))), "the job id was given out", key)
}

func (c *checker) job(key, row []byte) error {
	c.report.Jobs++
	digest, err := openRow(key, row)
	if err != nil {
		c.note("%w", err)
	} else if len(digest) != digestLen {
		c.note("row %x has a digest of %d bytes", key, len(digest))
	}
	return nil
}

func (c *checker) submission(ctx context.Context, key, row []byte) error {
	c.report.Submissions++
	s, err := decodeRow[submission](key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	id := s.ref().key()
	if !bytes.Equal(id, key[1:]) {
		c.note("row %x is of submission %s of another tenant or id", key, s.ID)
		return nil
	}
	if s.Control != "" {
		return c.controlOf(&s, key)
	}
	listed := byte(rowByDigest)
	if s.Unsealed {
		listed = rowUnsealed
	}
	if err := c.there(rowKey(listed, tenantTag(s.Tenant), s.Digest[:], uuidBytes(string(s.ID))), "a submission is found by its digest", key); err != nil {
		return err
	}
	if !s.idle() {
		c.report.Unfinished++
		if err := c.there(rowKey(rowPending, id), "the submission needs work", key); err != nil {
			return err
		}
	}
	if s.ended() && !s.Unsealed {
		if err := c.there(rowKey(rowEvent, eventKey(s.ref(), 0)), "the submission has ended", key); err != nil {
			return err
		}
	}
	if !s.Copied && !s.Reopened && s.Status != wire.StatusFailed {
		for n := range s.Parts {
			if err := c.there(rowKey(rowOutbox, id, ordinal(n)), "the record lacks copies", key); err != nil {
				return err
			}
		}
	}
	if err := c.ocrOf(&s, key); err != nil {
		return err
	}
	return c.sealed(ctx, &s, key)
}

// sealed compares what a submission knows of its seals with the ledger. A seal
// that the ledger does not have would be made a second time.
func (c *checker) sealed(ctx context.Context, s *submission, key []byte) error {
	if c.seals == nil || !s.Sealed {
		return nil
	}
	digests := []wire.Digest{s.Digest}
	for i := range s.Files {
		digests = append(digests, s.Files[i].SHA256)
	}
	if !s.MetadataDigest.IsZero() {
		digests = append(digests, s.MetadataDigest)
	}
	for n, d := range digests {
		seal, ok, err := c.seals.Lookup(ctx, d)
		switch {
		case err != nil:
			return err
		case !ok:
			c.note("submission %s (row %x) has the seal of %s, the ledger has none: the ledger is older than the job store", s.ID, key, d)
		case n == 0 && s.SealJobID != "" && seal.JobID != s.SealJobID:
			c.note("submission %s (row %x) has the job id %s for %s, the ledger %s", s.ID, key, s.SealJobID, d, seal.JobID)
		}
	}
	return nil
}

func (c *checker) byDigest(key, _ []byte) error {
	tag, id := key[1:17], key[17+digestLen:]
	return c.there(rowKey(rowSubmission, tag, id), "it is listed under its digest", key)
}

func (c *checker) seen(key, row []byte) error {
	v, err := decodeRow[seen](key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	return c.there(rowKey(rowSubmission, ref{v.Tenant, v.Submission}.key()), "a repeated request joins it", key)
}

// outbox checks that the bytes of a put are those of the record that the
// submission names.
func (c *checker) outbox(key, row []byte) error {
	c.report.Outbox++
	id, n := key[1:1+refLen], int(binary.BigEndian.Uint32(key[1+refLen:]))
	s, ok, err := c.load(id, "a put of it waits", key)
	if err != nil || !ok {
		return err
	}
	payload, err := openRow(key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	put, err := wire.DecodePut(payload)
	switch {
	case err != nil:
		c.note("row %x is no put: %w", key, err)
	case n >= len(s.Parts) || put.Record.ID() != s.Parts[n].RecordID:
		c.note("row %x is not the record %d of submission %s", key, n, s.ID)
	}
	return nil
}

// load reads a submission that another row is about.
func (c *checker) load(id []byte, why string, of []byte) (*submission, bool, error) {
	key := rowKey(rowSubmission, id)
	row, ok, err := getRow(c.r, key)
	if err != nil {
		return nil, false, err
	}
	if !ok {
		c.note("row %x is missing: %s (row %x)", key, why, of)
		return nil, false, nil
	}
	s, err := decodeRow[submission](key, row)
	return &s, err == nil, nil // a bad one was noted when it was walked
}

func (c *checker) pending(key, _ []byte) error {
	return c.there(rowKey(rowSubmission, key[1:]), "it is on the work list", key)
}

func (c *checker) event(key, row []byte) error {
	c.report.Events++
	payload, err := openRow(key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	s, ok, err := c.load(key[1:1+refLen], "it has an event", key)
	if err != nil || !ok {
		return err
	}
	event, err := wire.Decode[wire.Event](payload)
	if err != nil || event.TenantID != s.Tenant {
		c.note("row %x is no event of tenant %s: %v", key, s.Tenant, err)
	}
	return nil
}

func (c *checker) unannounced(key, _ []byte) error {
	return c.there(rowKey(rowEvent, key[1:]), "it is to be announced", key)
}

// expiry looks at the form only: the row it is about may have gone before.
func (c *checker) expiry(key, _ []byte) error {
	if len(key) <= 1+timeLen || key[1+timeLen] != rowFingerprint && key[1+timeLen] != rowIdempotency {
		c.note("row %x lets something else than a key expire", key)
	}
	return nil
}
