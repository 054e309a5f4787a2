package bus

import (
	"context"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Codes of package mirror that decide what becomes of a mirror.
const (
	codeFeed   = "MIRROR_FEED"  // another feed: copy the filter
	codeAhead  = "MIRROR_AHEAD" // the feed is shorter than the mirror says: copy the filter
	codeGone   = "DELTAS_GONE"  // the deltas that are missing are not kept: copy the filter
	codeGap    = "MIRROR_GAP"   // a delta is missing: ask for it
	codeBehind = "LEASE_BEHIND" // no lease before the deltas that are missing were asked for
)

// What is waited for before something is asked again.
const (
	deltaPatience = 50 * time.Millisecond // for a delta that is on its way
	askPatience   = 20 * time.Millisecond // between two questions for a lease
	refusedRetry  = 500 * time.Millisecond
)

// run follows the archive until it is retired, or the mirrors are closed.
func (f *follower) run() {
	defer f.stop()
	f.m.done.Go(f.pump)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for f.work.Err() == nil {
		f.look()
		timer.Reset(followInterval)
		select {
		case <-f.wake:
		case <-timer.C:
		case <-f.work.Done():
		}
	}
	f.drop("not followed any more")
}

// look does what there is to do now.
func (f *follower) look() {
	seen := f.m.roster.sight(f.id)
	if why := f.unfit(seen); why != "" {
		f.unless(why)
		return
	}
	for _, c := range f.copies() {
		if c.boot != seen.boot {
			f.drop("the archive was started anew")
		}
	}
	if !seen.heard {
		// The mirror is kept: who was not heard may be back in a moment. It is not
		// asked meanwhile, and gets no lease.
		f.because("silent")
		return
	}
	f.load(seen)
	for _, c := range f.copies() {
		f.tend(c)
	}
	f.promote()
}

// unfit says why an archive is not to be mirrored; empty if it is.
func (f *follower) unfit(seen sight) string {
	switch {
	case !seen.enrolled:
		return "not enrolled"
	case seen.boot == "":
		return "not heard yet"
	case !seen.sound:
		return "not trusted"
	case seen.keyID == "":
		return "without a filter key"
	case seen.keyID != f.m.keyID:
		return "another filter key"
	case seen.state == wire.StateDraining:
		return wire.StateDraining
	}
	return ""
}

// unless drops the mirrors, if there are any, and says why there are none.
func (f *follower) unless(why string) {
	f.because(why)
	f.mu.Lock()
	had, copying := f.serving.Load() != nil || f.next != nil, f.copying
	f.mu.Unlock()
	if had {
		f.m.log.Info("a mirror was dropped", "archive", f.id, "reason", why)
	}
	if had || copying {
		f.drop(why)
	}
}

func (f *follower) because(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reason = why
}

// load begins to copy the filter if there is no mirror, or if it has grown out of
// the size it was copied with.
func (f *follower) load(seen sight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.serving.Load()
	wanted := c == nil || f.next == nil && c.grown()
	if !wanted || f.copying || time.Now().Before(f.after) || !f.m.mayLoad() {
		return
	}
	select {
	case f.m.loads <- struct{}{}:
	default:
		return // others are at it
	}
	f.copying = true
	if c == nil {
		f.reason = "its filter is being copied"
	}
	var ctx context.Context
	ctx, f.abort = context.WithCancel(f.work)
	epoch, abort := f.epoch, f.abort
	f.m.done.Go(func() {
		c, err := f.fetch(ctx, seen)
		abort()
		<-f.m.loads
		f.fetched(c, err, epoch)
		f.kick()
	})
}

// fetched takes a copy.
func (f *follower) fetched(c *copied, err error, epoch uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.copying = false
	if err != nil && epoch != f.epoch {
		return // it was given up
	}
	if err != nil {
		outcome := "failed"
		if fault.CodeOf(err) == codeNoRoom {
			outcome = "no-room"
		}
		f.m.metrics.loads.WithLabelValues(outcome).Inc()
		f.reason = "its filter can not be copied: " + cut(err.Error(), maxPullText)
		f.retry = min(max(2*f.retry, firstRetry), maxRetry)
		f.after = time.Now().Add(max(f.retry, fault.RetryAfter(err)))
		if c := f.serving.Load(); c != nil && fault.CodeOf(err) == codeNoRoom && c.set.EstimatedErrorRate() > uselessRate {
			f.serving.Store(nil) // both have no room, and this one spares few questions
			f.discard(c)
			f.after = time.Time{}
		}
		if f.m.failed.now() && f.work.Err() == nil {
			f.m.log.Warn("a filter could not be copied; its archive is asked every time", "archive", f.id, "again", f.retry, "err", err)
		}
		return
	}
	f.m.metrics.loads.WithLabelValues("loaded").Inc()
	f.retry, f.after = 0, time.Now().Add(firstRetry)
	switch {
	case epoch != f.epoch:
		f.discard(c)
	case f.serving.Load() == nil:
		f.serving.Store(c)
	default:
		f.next, f.after = c, time.Now().Add(renewEvery)
	}
}

// remove ends one mirror, if it is still there.
func (f *follower) remove(c *copied, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c {
	case f.serving.Load():
		f.serving.Store(nil)
		f.told.Store(0)
	case f.next:
		f.next = nil
	default:
		return
	}
	f.reason = why
	f.discard(c)
	f.m.log.Info("a mirror was dropped", "archive", f.id, "reason", why)
}

// promote has the next mirror take the place of the one that is asked, once it is
// trusted.
func (f *follower) promote() {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.serving.Load()
	if f.next == nil || old != nil && !f.next.mirror.Trusted() {
		return
	}
	f.serving.Store(f.next)
	f.next = nil
	f.discard(old)
}

// tend asks for what a mirror lacks, and for its lease.
func (f *follower) tend(c *copied) {
	if c.lapsed.Swap(false) {
		f.repair(c)
	}
	now, doubted := f.m.cfg.Clock(), c.doubted.Load()
	if now >= c.renewal || doubted && now >= c.asked+askPatience {
		c.doubted.Store(false)
		if err := f.renew(c); err != nil && doubted {
			f.remove(c, "the archive may have another feed")
		}
	}
	f.late(c)
}

// repair asks for the deltas that a mirror lacks.
func (f *follower) repair(c *copied) {
	for f.work.Err() == nil {
		_, feed, at := standing(c.mirror)
		if feed == "" {
			return // dropped meanwhile
		}
		reply, err := asking(f.work, f.m.conn.bulk, f.id, wire.OpDeltas, wire.DeltasRequest{Feed: feed, After: at}, deltasTimeout)
		d, err := answered[wire.Delta](reply, err, f.id)
		if err == nil {
			_, err = c.mirror.Apply(d)
		}
		if err != nil {
			f.unrepaired(c, err)
			return
		}
		f.m.metrics.repairs.Add(float64(d.To - d.From))
		f.ack(c)
		f.tell(d.To)
		if d.To <= at || d.To-d.From < wire.MaxDeltaHashes/2 {
			return // that was all, or brought nothing
		}
	}
}

func (f *follower) unrepaired(c *copied, err error) {
	switch fault.CodeOf(err) {
	case codeFeed, codeGone, codeAhead:
		f.remove(c, "what it lacks can only be copied: "+fault.CodeOf(err))
	default:
		c.lapsed.Store(true)
		f.because("deltas are missing: " + cut(err.Error(), maxPullText))
	}
}
