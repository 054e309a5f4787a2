package jobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bridge/envelope"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// maxLeased is how many messages may be claimed at a time, by all bridges
// together. It bounds memory, and what a claim has to pass over.
const maxLeased = 10 * wire.MaxOutboxItems

// ocrOutbox is the part of the engine that hands out messages. The messages are in
// the store, who has claimed them is in memory: after a restart they are handed
// out again, with the same bytes and the same ids.
type ocrOutbox struct {
	waiting atomic.Int64 // messages in the store

	mu     sync.Mutex // guards leased; held while a claim reads the store
	leased map[wire.EnvelopeID]time.Time
}

// ClaimOCR hands out messages that wait and that nobody else has claimed, the
// oldest first. Each comes again, byte for byte, when its lease ends before it
// was reported as done. No message is an answer too.
func (e *Engine) ClaimOCR(ctx context.Context, c wire.OutboxClaim) (wire.OutboxItems, error) {
	if err := c.Check(); err != nil {
		return wire.OutboxItems{}, fault.New(fault.Invalid, codeBadClaim, "claim: %w", err)
	}
	o := &e.ocr
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now() // its monotonic part: a lease does not depend on the wall clock
	o.expire(now)
	items := []wire.OutboxItem{}
	err := e.store.view(func(r pebble.Reader) error {
		return waitingOCR(r, func(id wire.EnvelopeID, row []byte) bool {
			if len(o.leased)+len(items) >= maxLeased {
				return false
			}
			if _, taken := o.leased[id]; taken {
				return true
			}
			message, err := openRow(ocrWaitingKey(id), row)
			if err != nil { // the others go out all the same; a check lists it
				e.cfg.Log.ErrorContext(ctx, "an OCR message is damaged and stays where it is", "id", id, "err", err)
				return true
			}
			items = append(items, wire.OutboxItem{ID: id, Envelope: bytes.Clone(message)})
			return len(items) < c.Max
		})
	})
	if err != nil {
		return wire.OutboxItems{}, err
	}
	for i := range items {
		o.leased[items[i].ID] = now.Add(c.Lease())
	}
	e.metrics.ocrClaimed.Add(float64(len(items)))
	return wire.OutboxItems{Items: items}, nil
}

// DoneOCR takes messages out of the outbox that were published, also when their
// lease has ended, and returns how many of them it took out. It may be repeated.
func (e *Engine) DoneOCR(ctx context.Context, d wire.OutboxDone) (wire.OutboxCount, error) {
	if err := d.Check(); err != nil {
		return wire.OutboxCount{}, fault.New(fault.Invalid, codeBadClaim, "done: %w", err)
	}
	var done int
	at := wire.At(e.cfg.Now())
	err := e.store.update(ctx, func(t *tx) error {
		for _, id := range d.IDs {
			there, err := t.publishedOCR(id, at)
			if err != nil {
				return err
			}
			if there {
				done++
			}
		}
		return nil
	})
	if err != nil {
		return wire.OutboxCount{}, err
	}
	e.ocr.waiting.Add(int64(-done))
	e.metrics.ocrDone.Add(float64(done))
	e.ocr.release(d.IDs)
	return wire.OutboxCount{Done: done}, nil
}

// codeBadClaim refuses a request to the outbox.
const codeBadClaim = "BAD_CLAIM"

// publishedOCR takes a message out of the outbox and notes when. It reports whether
// it was there.
func (t *tx) publishedOCR(id wire.EnvelopeID, at wire.Time) (there bool, err error) {
	key := ocrWaitingKey(id)
	row, there, err := t.get(key)
	if err != nil || !there {
		return false, err
	}
	_, payload, err := readOCR(key, row)
	if err != nil {
		return false, err
	}
	jobKey := ocrJobKey(payload.JobID)
	if row, there, err = t.get(jobKey); err != nil {
		return false, err
	}
	if !there {
		return false, fault.New(fault.Corrupt, "OCR_JOB_MISSING", "jobs: row %x is missing, whose message waits", jobKey)
	}
	job, err := decodeRow[ocrJob](jobKey, row)
	if err != nil {
		return false, err
	}
	job.DoneAt = at
	if row, err = encodeRow(job); err != nil {
		return false, err
	}
	t.set(jobKey, row)
	t.del(key)
	return true, nil
}

// readOCR reads the row of a message that waits.
func readOCR(key, row []byte) (envelope.Envelope, envelope.OCRJob, error) {
	bytes, err := openRow(key, row)
	if err != nil {
		return envelope.Envelope{}, envelope.OCRJob{}, err
	}
	message, err := envelope.Parse(bytes)
	if err != nil {
		return envelope.Envelope{}, envelope.OCRJob{}, fault.New(fault.Corrupt, "OCR_MESSAGE", "jobs: row %x is no message: %v", key, err)
	}
	payload, err := message.OCRJob()
	if err != nil {
		return envelope.Envelope{}, envelope.OCRJob{}, fault.New(fault.Corrupt, "OCR_MESSAGE", "jobs: row %x is no OCR job: %v", key, err)
	}
	return message, payload, nil
}

// waitingOCR calls fn with the messages that wait, the oldest first, until it
// returns false. row is good until fn returns.
func waitingOCR(r pebble.Reader, fn func(id wire.EnvelopeID, row []byte) bool) (err error) {
	prefix := []byte{rowOCRWaiting}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("jobs: scan %x: %w", prefix, err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if key := it.Key(); len(key) == 1+16 && !fn(wire.EnvelopeID(uuidText(key[1:])), it.Value()) {
			break
		}
	}
	if err := it.Error(); err != nil {
		_ = it.Close() // says the same
		return fmt.Errorf("jobs: scan %x: %w", prefix, err)
	}
	return it.Close()
}

// expire forgets the leases that have ended. mu is held.
func (o *ocrOutbox) expire(now time.Time) {
	for id, until := range o.leased {
		if !now.Before(until) {
			delete(o.leased, id)
		}
	}
}

// release forgets the leases of messages that are gone from the store. Until then
// they keep a claim that still sees them from handing them out.
func (o *ocrOutbox) release(ids []wire.EnvelopeID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		delete(o.leased, id)
	}
}

// countQueued counts messages that a commit has added.
func (e *Engine) countQueued(n int) {
	e.ocr.waiting.Add(int64(n))
	e.metrics.ocrQueued.Add(float64(n))
}

// countOCR counts the messages that wait.
func (e *Engine) countOCR() error {
	n := int64(0)
	err := e.store.view(func(r pebble.Reader) error {
		return waitingOCR(r, func(wire.EnvelopeID, []byte) bool { n++; return true })
	})
	e.ocr.waiting.Store(n)
	return err
}

// oldestOCR is how long the oldest message has waited, in seconds; 0 if none does.
func (e *Engine) oldestOCR() (seconds float64) {
	err := e.store.view(func(r pebble.Reader) error {
		return waitingOCR(r, func(id wire.EnvelopeID, _ []byte) bool {
			made := time.UnixMilli(int64(binary.BigEndian.Uint64(uuidBytes(string(id))) >> 16))
			seconds = max(0, e.cfg.Now().Sub(made).Seconds())
			return false
		})
	})
	if err != nil {
		return 0 // the store is closed; nobody reads this figure any more
	}
	return seconds
}
