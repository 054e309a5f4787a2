package jobs

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

func eventKey(id ref, n int) []byte { return append(id.key(), ordinal(n)...) }

// save makes the state of a submission durable.
func (e *Engine) save(ctx context.Context, s *submission) error {
	return e.store.update(ctx, func(t *tx) error {
		if s.Control != "" {
			s.Copied = e.complete(s) // an archive may have been enrolled since; see spreadControls
		}
		return t.save(s)
	})
}

// save writes a submission. Once every record has its copies, the bytes leave
// the outbox, unless later archives are to have them too, and once nothing is left to do the submission leaves the work
// list.
func (t *tx) save(s *submission) error {
	id := s.ref().key()
	if s.Copied && s.Control == "" || s.Status == wire.StatusFailed {
		for n := range s.Parts {
			t.del(rowKey(rowOutbox, id, ordinal(n)))
		}
	}
	if s.idle() {
		t.del(rowKey(rowPending, id))
	}
	return t.putSubmission(s)
}

// sealed notes the chain's answer, and makes every job id in it resolve.
func (e *Engine) sealed(ctx context.Context, s *submission, seals []chain.Seal) error {
	return e.store.update(ctx, func(t *tx) error { return t.sealed(s, seals) })
}

func (t *tx) sealed(s *submission, seals []chain.Seal) error {
	s.Sealed, s.SealJobID, s.AlreadySealed = true, seals[0].JobID, seals[0].SubmissionID != s.ID
	for _, seal := range seals {
		if seal.JobID == "" {
			continue
		}
		if err := t.alias(seal.JobID, seal.Digest); err != nil {
			return err
		}
	}
	return t.save(s)
}

// finish is step 3 of settle: one commit ends the submission and stores the
// bytes of its event, made here and never again.
func (e *Engine) finish(ctx context.Context, s *submission, seals []chain.Seal, found receipts.Gathered) error {
	done := s.clone()
	done.Status, done.EventID = wire.StatusCompleted, wire.NewEventID()
	done.cleared()
	done.Sealed, done.SealJobID, done.AlreadySealed = true, seals[0].JobID, seals[0].SubmissionID != s.ID
	view, err := e.completed(ctx, done, &seals[0], s.IncludeAttached, found)
	if err != nil {
		return err
	}
	job, err := receipts.Assemble(view)
	if err != nil {
		return err
	}
	queued := 0
	ended, err := e.end(ctx, done, wire.EventCompleted, job, func(t *tx) (err error) {
		if queued, err = t.queueOCR(done, e.cfg.Now()); err != nil {
			return err
		}
		return t.sealed(done, seals)
	})
	if err != nil {
		return err
	}
	if ended == done {
		e.metrics.completed.Inc()
		e.countQueued(queued)
	}
	*s = *ended
	return nil
}

// fail ends a submission that can not be carried out. Its idempotency key and
// fingerprint are free again from the same commit on, so that its sender may
// try anew. The pass that calls it goes on with s as failed.
func (e *Engine) fail(ctx context.Context, s *submission, why *fault.Error) error {
	done := s.clone()
	done.Status, done.EventID = wire.StatusFailed, wire.NewEventID()
	done.ReasonCode, done.ReasonKind, done.Reason, done.NextAttempt = why.Code, why.Kind.String(), why.Error(), ""
	ended, err := e.end(ctx, done, wire.EventFailed, e.unfinished(done), func(t *tx) error {
		if err := t.release(done, rowKey(rowFingerprint, done.Fingerprint[:])); err != nil {
			return err
		}
		if err := t.release(done, rowKey(rowIdempotency, tenantTag(done.Tenant), done.Idempotency[:])); err != nil {
			return err
		}
		return t.save(done)
	})
	if err != nil {
		return err
	}
	if ended == done {
		e.metrics.failed.Inc()
		e.cfg.Log.WarnContext(ctx, "a submission failed", "submission", s.ID, "err", why)
	}
	*s = *ended
	if err := e.at("fail.committed"); err != nil {
		return err
	}
	if !s.quiet() {
		e.announce(eventKey(s.ref(), 0))
	}
	return nil
}

// release deletes a row that names the submission as the one to join.
func (t *tx) release(s *submission, key []byte) error {
	row, ok, err := t.get(key)
	if err != nil || !ok {
		return err
	}
	v, err := decodeRow[seen](key, row)
	if err == nil && v.Tenant == s.Tenant && v.Submission == s.ID {
		t.del(key)
	}
	return err
}

// end writes the last state of a submission together with its event, unless it
// has ended before. One that has no job has no event either. It returns the state
// that stands: s, or the earlier one.
func (e *Engine) end(ctx context.Context, s *submission, name string, job wire.Job, write func(*tx) error) (*submission, error) {
	event, err := wire.Encode(wire.Event{ID: s.EventID, Event: name, TenantID: s.Tenant, Job: job})
	if err != nil {
		return nil, fmt.Errorf("jobs: encode event: %w", err)
	}
	key, ended := eventKey(s.ref(), 0), s
	err = e.store.update(ctx, func(t *tx) error {
		before, err := t.submission(s.ref())
		if err != nil {
			return err
		}
		if before.ended() {
			ended = before
			return nil
		}
		if !s.quiet() {
			t.set(rowKey(rowEvent, key), frameRow(event))
			t.set(rowKey(rowUnannounced, key), nil)
		}
		return write(t)
	})
	return ended, err
}

// announce publishes a stored event, and notes that it was. An event that can
// not be announced now is announced by the sweep: losing the message costs
// time, not truth. An event may be announced more than once; its bytes and its
// id are the same every time.
func (e *Engine) announce(key []byte) {
	if err := e.tell(key); err != nil && e.ctx.Err() == nil {
		e.cfg.Log.Warn("an event could not be announced; it is tried again", "err", err)
	}
}

// tell is announce with its error. An event that the bus will never carry,
// because it is too large, counts as announced: the job tells the same.
func (e *Engine) tell(key []byte) error {
	event, err := e.event(key)
	if err != nil {
		return err
	}
	err = e.cfg.Announce.PublishEvent(event)
	if fault.Is(err, fault.Invalid) {
		e.cfg.Log.Warn("an event is not announced", "err", err)
		err = nil
	}
	if err != nil {
		return err
	}
	return e.store.post(e.ctx, func(t *tx) error {
		t.del(rowKey(rowUnannounced, key))
		return nil
	})
}

// event returns the bytes of a stored event.
func (e *Engine) event(key []byte) (event []byte, err error) {
	err = e.store.view(func(r pebble.Reader) error {
		k := rowKey(rowEvent, key)
		row, ok, err := getRow(r, k)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Corrupt, "EVENT_MISSING", "jobs: event row %x is not there", k)
		}
		event, err = openRow(k, row)
		return err
	})
	return event, err
}
