package receipts

import (
	"context"
	"time"

	"github.com/verae/archive/wire"
)

// MaxLate is how many answers are waited for beyond their deadline at a time by
// one Gatherer. The others end as they are.
const MaxLate = 256

// Late waits for what archives still answer after the deadline, until all have
// answered in full, the time that GatherLate was given has passed, or ctx ends.
// It returns the answer as it is then, and whether it has records that it did not
// have at the deadline. Whoever got one must call it once: until then it holds
// memory. It may be called from another goroutine.
type Late func(ctx context.Context) (found Gathered, more bool)

// GatherLate is [Gatherer.Gather], which keeps its deadline, and goes on
// listening for extra beyond it. late is nil where nothing can come any more, or
// too many are waited for.
func (g *Gatherer) GatherLate(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind, extra time.Duration) (found Gathered, late Late, err error) {
	if !g.mayBeLate(extra) {
		found, err = g.Gather(ctx, digest, tenant, kinds)
		return found, nil, err
	}
	f := fanout{extra: extra, release: func() { g.late.Add(-1) }}
	found, err = g.timed(ctx, question{digest: digest, tenant: tenant, kinds: kinds}, &f)
	if err != nil || found.Reason != wire.ReasonDeadline || f.run == nil || f.run.done() {
		f.end()
		return found, nil, err
	}
	return found, func(ctx context.Context) (Gathered, bool) { return f.later(ctx, found) }, nil
}

// mayBeLate reports whether one more question may go on beyond its deadline, and
// counts it.
func (g *Gatherer) mayBeLate(extra time.Duration) bool {
	if extra <= 0 {
		return false
	}
	if g.late.Add(1) > MaxLate {
		g.late.Add(-1)
		return false
	}
	return true
}

// A fanout is a question to the archives under way.
type fanout struct {
	extra   time.Duration // how long it goes on beyond the wait
	release func()        // nil: nothing to release
	found   func()        // see gathering

	asking context.Context // ends when nobody listens to replies any more
	cancel context.CancelFunc
	run    *gathering // nil before the archives are asked
	next   func(context.Context) (reply wire.Reply, gone wire.ArchiveID, ok bool)
	stop   func()
}

// prepare returns the context under which the archives are asked. It ends with
// ctx, which has the deadline of the wait, until asked is called.
func (f *fanout) prepare(ctx context.Context) (asked func()) {
	f.asking = ctx
	if f.extra == 0 {
		return func() {}
	}
	deadline, _ := ctx.Deadline()
	f.asking, f.cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(f.extra))
	unhook := context.AfterFunc(ctx, f.cancel)
	return func() { unhook() }
}

// end stops listening.
func (f *fanout) end() {
	for _, end := range []func(){f.stop, f.cancel, f.release} {
		if end != nil {
			end()
		}
	}
}

// later is Late of a question whose answer at the deadline was first.
func (f *fanout) later(ctx context.Context, first Gathered) (found Gathered, more bool) {
	defer f.end()
	for !f.run.done() && f.hear(ctx) && ctx.Err() == nil {
	}
	if ctx.Err() != nil {
		return Gathered{}, false
	}
	had := make(map[wire.RecordID]bool, len(first.Records))
	for i := range first.Records {
		had[first.Records[i].Record.ID] = true
	}
	found = f.run.late()
	for i := range found.Records {
		more = more || !had[found.Records[i].Record.ID]
	}
	return found, more
}
