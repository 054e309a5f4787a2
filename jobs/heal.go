package jobs

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of the work over submissions that nobody waits for. Healing has slots
// of its own, so that archives that take long to take a copy hold up nobody.
const (
	workPage = 256           // keys of the work list that are read at a time
	maxWakes = maxPasses / 2 // submissions being woken at a time; the other passes are for new ones
	maxHeals = 32            // submissions being healed at a time
)

// Nudge tries every submission that still needs work again, soon. It is called
// when archives come back, and waits for nothing.
func (e *Engine) Nudge() {
	signal(e.wake)
	signal(e.returned)
}

// signal leaves a message in a channel of one, unless one is there.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waker gives every unfinished submission a pass after Open and after Nudge,
// some at a time, until the engine closes.
func (e *Engine) waker() {
	waking := make(chan struct{}, maxWakes)
	for {
		select {
		case <-e.wake:
		case <-e.ctx.Done():
			return
		}
		e.walk(func(s *submission) {
			if s.ended() || !e.take(waking) {
				return
			}
			if !e.start(s.ref(), func() { <-waking }) {
				<-waking
			}
		})
	}
}

// healer brings ended submissions to their full number of copies, until the
// engine closes. What they lack is in the store, so that a long shortage costs
// no memory: it pages through the work list when archives come back, and, while
// copies are missing, now and then, the less often the longer nothing helps.
func (e *Engine) healer() {
	var next <-chan time.Time // nil while no copy is known to be missing
	var healed atomic.Int64   // since the last round began
	for rounds := 1; ; {      // in a row that healed nothing, and one
		select {
		case <-e.lacking:
			if next == nil {
				next = time.After(backoff(rounds))
			}
			continue
		case <-e.returned:
			rounds = 1
		case <-next:
		case <-e.ctx.Done():
			return
		}
		if rounds++; healed.Swap(0) > 0 {
			rounds = 1
		}
		next = nil
		e.spreadControls()
		if e.healAll(func() { healed.Add(1) }) > 0 {
			next = time.After(backoff(rounds))
		}
	}
}

// healAll starts to heal every ended submission that can be, and returns how
// many lacked copies. It does not wait for the last ones; healed is called after
// each that succeeds.
func (e *Engine) healAll(healed func()) (left int) {
	e.walk(func(s *submission) {
		if !s.ended() || s.idle() {
			return
		}
		left++
		if e.healable(s) && e.take(e.healing) {
			e.startHeal(s.ref(), healed)
		}
	})
	e.metrics.uncopied.Set(float64(left))
	return left
}

// healable reports whether an archive takes puts that lacks what s needs there.
// It spares the archives, and the outbox, a try that can not succeed.
func (e *Engine) healable(s *submission) bool {
	here := e.cfg.Archives.Rank(s.Placement)
	return e.complete(s) || slices.ContainsFunc(s.Parts, func(p part) bool {
		return e.lacks(s, &p) > 0 && slices.ContainsFunc(here, func(id wire.ArchiveID) bool { return !slices.Contains(p.Acks, id) })
	})
}

// healSoon heals a submission that has just ended, if that can be and there is
// room. Else, and if it fails, it is the healer's: an ended submission is never
// kept in memory.
func (e *Engine) healSoon(s *submission) {
	if s.idle() {
		return
	}
	if e.healable(s) {
		select {
		case e.healing <- struct{}{}:
			e.startHeal(s.ref(), func() {})
			return
		default:
		}
	}
	signal(e.lacking)
}

// startHeal heals an ended submission in a slot that the caller took, unless
// that is being done.
func (e *Engine) startHeal(id ref, healed func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.mending[id] > 0 {
		<-e.healing
		return
	}
	e.mending[id] = e.begin()
	e.wg.Go(func() {
		if e.tryHeal(e.ctx, id) {
			healed()
		}
		e.mu.Lock()
		delete(e.mending, id)
		e.mu.Unlock()
		<-e.healing
	})
}

// tryHeal heals an ended submission, and tells the healer if that fails.
func (e *Engine) tryHeal(ctx context.Context, id ref) bool {
	s, err := e.load(id)
	if err == nil && !s.idle() {
		err = e.heal(ctx, s)
	}
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil, errors.Is(err, errCrash):
		return false
	case fault.CodeOf(err) == codeNoArchive:
		e.cfg.Log.DebugContext(ctx, "copies are missing", "submission", id.submission, "err", err)
	default:
		e.cfg.Log.WarnContext(ctx, "copies are missing; they are tried again", "submission", id.submission, "err", err)
	}
	e.metrics.retries.Inc()
	signal(e.lacking)
	return false
}

// heal brings an ended submission to its full number of copies. Then its bytes
// leave the outbox. What was reached is kept also if it is not all.
func (e *Engine) heal(ctx context.Context, s *submission) error {
	before := s.spread()
	err := e.place(ctx, s, e.want(s))
	s.Copied = e.complete(s)
	if !s.Copied {
		err = cmpErr(err, shortage(len(e.cfg.Archives.Rank(s.Placement)), e.want(s)))
		if s.spread() == before {
			return err
		}
	} else {
		err = nil
		s.cleared() // of why it had to wait
	}
	if err := e.at("heal.placed"); err != nil {
		return err
	}
	return errors.Join(err, e.save(ctx, s))
}

// take takes a slot, and reports false if the engine closes first.
func (e *Engine) take(slots chan<- struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-e.ctx.Done():
		return false
	}
}

// walk calls fn for every submission of the work list. One that can not be read
// is reported and passed over: the others need their copies all the same.
func (e *Engine) walk(fn func(*submission)) {
	err := e.eachPending(func(id []byte) error {
		s, err := e.loadKey(id)
		if err == nil {
			fn(s)
		} else if e.ctx.Err() == nil {
			e.cfg.Log.Error("a submission can not be read", "row", id, "err", err)
		}
		return e.ctx.Err()
	})
	if err != nil && e.ctx.Err() == nil {
		e.cfg.Log.Error("the work list can not be read", "err", err)
	}
}

// eachPending calls fn with the key form of every submission of the work list,
// reading a page at a time: it keeps neither memory nor the store's view.
func (e *Engine) eachPending(fn func(id []byte) error) error {
	for from := []byte{rowPending}; ; {
		var page [][]byte
		err := e.store.view(func(r pebble.Reader) error {
			return scanFrom(r, []byte{rowPending}, from, func(key, _ []byte) (bool, error) {
				page = append(page, key)
				return len(page) < workPage, nil
			})
		})
		if err != nil {
			return err
		}
		for _, key := range page {
			if err := fn(key[1:]); err != nil {
				return err
			}
		}
		if len(page) < workPage {
			return nil
		}
		from = append(page[workPage-1], 0)
	}
}
