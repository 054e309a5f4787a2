package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Delays between passes over a submission.
const (
	firstRetry = 250 * time.Millisecond // doubled after every failed pass
	lastRetry  = 30 * time.Second       // and not beyond this
	safetyNet  = 2 * time.Second        // a watch that did not come by then is not waited for
	endPause   = 100 * time.Millisecond // between two looks whether work has ended
)

// task is a submission that has not ended. One pass runs at a time.
type task struct {
	state    *submission // newest state; exchanged, never changed, under Engine.mu; nil until read
	running  bool
	work     uint64 // number of the pass that runs
	again    bool   // another pass was asked for while one ran
	failures int    // passes that failed in a row; owned by the running pass
	timer    *time.Timer
}

func (t *task) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// track makes a new submission known to the engine. Its first pass starts at
// once if there are records to put; else the watch is all it needs. A request
// that joins the submission may have been faster: then its task stands, for a
// submission has one.
func (e *Engine) track(s *submission) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	if e.open[s.ref()] == nil {
		e.open[s.ref()] = &task{state: s.clone()}
	}
	e.mu.Unlock()
	if s.Stored && e.publishWatch(s) {
		e.later(s.ref(), safetyNet)
		return
	}
	e.kick(s.ref())
}

// publishWatch asks the poller to settle a submission. The store remembers it
// should the message be lost. It reports whether the message is under way.
func (e *Engine) publishWatch(s *submission) bool {
	err := e.cfg.Announce.PublishWatch(wire.Watch{
		JobID: s.JobID, SubmissionID: s.ID, SHA256: s.Digest, TenantID: s.Tenant, IncludeAttached: s.IncludeAttached,
	})
	if err != nil {
		e.cfg.Log.Warn("the watch could not be published; the submission is settled without it", "submission", s.ID, "err", err)
	}
	return err == nil
}

// later plans a pass, unless one is running or planned earlier.
func (e *Engine) later(id ref, delay time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.open[id]; t != nil && !t.running && !e.closed {
		t.stop()
		t.timer = time.AfterFunc(delay, func() { e.kick(id) })
	}
}

// kick runs a pass over a submission soon. A kick during a pass makes it run
// once more.
func (e *Engine) kick(id ref) { e.start(id, func() {}) }

// start is kick that calls done after the pass. It reports false, and does not
// call done, if a pass is running or the engine closes.
func (e *Engine) start(id ref, done func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	t := e.open[id]
	if t == nil {
		t = &task{}
		e.open[id] = t
	}
	t.stop()
	if t.running {
		t.again = true
		return false
	}
	t.running, t.work = true, e.begin()
	e.wg.Go(func() {
		defer done()
		e.run(id, t)
	})
	return true
}

// begin returns the number of a pass or a heal that begins. mu is held.
func (e *Engine) begin() uint64 {
	e.works++
	return e.works
}

// letEnd returns when every pass and every heal has ended that is under way now.
func (e *Engine) letEnd(ctx context.Context) error {
	e.mu.Lock()
	last := e.works
	e.mu.Unlock()
	for e.workingOn(last) {
		if err := pause(ctx, endPause); err != nil {
			return err
		}
	}
	return nil
}

// workingOn reports whether work is under way with a number up to last.
func (e *Engine) workingOn(last uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.open {
		if t.running && t.work <= last {
			return true
		}
	}
	for _, work := range e.mending {
		if work <= last {
			return true
		}
	}
	return false
}

// run makes passes until none is asked for, and plans the next.
func (e *Engine) run(id ref, t *task) {
	for {
		delay, done := e.pass(e.ctx, id, t)

		e.mu.Lock()
		if t.again && !e.closed {
			t.again, t.work = false, e.begin()
			e.mu.Unlock()
			continue
		}
		t.running = false
		switch {
		case done:
			delete(e.open, id)
		case !e.closed:
			t.timer = time.AfterFunc(delay, func() { e.kick(id) })
		}
		e.mu.Unlock()
		return
	}
}

// pass does the next thing that a submission needs. It returns when to come
// back, or done when it has ended. Copies that are still missing then are the
// healer's.
func (e *Engine) pass(ctx context.Context, id ref, t *task) (delay time.Duration, done bool) {
	s, err := e.current(id)
	if fault.Is(err, fault.NotFound) {
		return 0, true // asked for by a watch, but never stored
	}
	if err != nil {
		e.cfg.Log.ErrorContext(ctx, "a submission can not be read", "submission", id.submission, "err", err)
		return lastRetry, false
	}
	if s.ended() {
		e.healSoon(s)
		return 0, true
	}
	if !e.take(e.slots) {
		return 0, false
	}
	delay, err = e.advance(ctx, s)
	<-e.slots
	switch {
	case errors.Is(err, errCrash):
		return 0, true
	case err == nil:
		t.failures = 0
	case ctx.Err() == nil:
		delay = e.failed(ctx, s, t, err)
	}
	if s.ended() {
		e.healSoon(s)
	}
	return delay, s.ended()
}

// advance moves a submission one step on and publishes its new state. It
// returns how long nothing needs to be done.
func (e *Engine) advance(ctx context.Context, s *submission) (time.Duration, error) {
	if s.quiet() {
		return 0, e.deliverQuiet(ctx, s)
	}
	if s.Stored {
		return 0, e.settle(ctx, s)
	}
	if err := e.deliver(ctx, s); err != nil {
		return 0, err
	}
	if err := e.at("accept.put"); err != nil {
		return 0, err
	}
	defer e.publish(s)
	if !s.ended() && e.publishWatch(s) {
		return safetyNet, nil
	}
	return 0, nil
}

// current returns the newest state of a submission, as a copy.
func (e *Engine) current(id ref) (*submission, error) {
	e.mu.Lock()
	if t := e.open[id]; t != nil && t.state != nil {
		defer e.mu.Unlock()
		return t.state.clone(), nil
	}
	e.mu.Unlock()
	return e.load(id)
}

// publish makes a state the newest and wakes who waits for it. The caller must
// be the pass that works on the submission.
func (e *Engine) publish(s *submission) {
	e.mu.Lock()
	if t := e.open[s.ref()]; t != nil {
		t.state = s.clone()
	}
	e.mu.Unlock()
	e.hub.ping(s.ref())
}

// failed notes why a pass failed and returns when to try again.
func (e *Engine) failed(ctx context.Context, s *submission, t *task, err error) time.Duration {
	t.failures++
	delay := max(backoff(t.failures), fault.RetryAfter(err))
	kind, text := reason(err)
	s.retryAt(e.cfg.Now(), delay, fault.CodeOf(err), kind.String(), text)
	e.metrics.retries.Inc()
	if t.failures&(t.failures-1) == 0 { // 1, 2, 4, 8, ...
		e.cfg.Log.WarnContext(ctx, "a submission is tried again", "submission", s.ID, "attempt", t.failures, "in", delay, "err", err)
	}
	e.publish(s)
	return delay
}

// reason is what a tenant is told about a failed attempt. What was accepted is
// no longer its sender's fault: an archive or a chain that refuses it is
// something for an operator, and the log has its words.
func reason(err error) (fault.Kind, string) {
	switch kind := fault.KindOf(err); kind {
	case fault.Transient:
		if f, ok := errors.AsType[*fault.Error](err); ok {
			return kind, f.Error() // and not what else went wrong beside it
		}
		return kind, err.Error()
	case fault.Corrupt:
		return kind, neutral
	}
	return fault.Internal, neutral
}

const neutral = "an internal error; it is tried again"

// backoff is the delay before attempt n+1, with up to a fifth of jitter.
func backoff(n int) time.Duration {
	d := lastRetry
	if n < 10 {
		d = min(firstRetry<<(n-1), lastRetry)
	}
	return d - rand.N(d/5)
}
