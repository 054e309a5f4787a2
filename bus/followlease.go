package bus

import (
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// renew asks for a lease.
func (f *follower) renew(c *copied) error {
	holder, feed, at := standing(c.mirror)
	if feed == "" {
		return nil // dropped meanwhile
	}
	c.asked = f.m.cfg.Clock()
	reply, err := asking(f.work, f.m.conn.ctl, f.id, wire.OpLease, wire.LeaseRequest{Holder: holder, Feed: feed, At: at}, leaseTimeout)
	g, err := answered[wire.LeaseGrant](reply, err, f.id)
	if err == nil && (g.ArchiveID != f.id || g.LeaseMs == 0) {
		err = fault.New(fault.Corrupt, CodeBadAck, "archive %s: asked for a lease, it gave one of %d ms of archive %q", f.id, g.LeaseMs, g.ArchiveID)
	}
	if err != nil {
		f.refused(c, err)
		return err
	}
	c.mirror.Granted(holder, c.asked, g)
	f.tell(g.At)
	c.renewal = c.asked + time.Duration(g.LeaseMs)*time.Millisecond/3
	if c.mirror.Trusted() {
		f.because("")
	} else {
		f.because("deltas are missing")
	}
	return nil
}

// refused sees to a lease that was not given.
func (f *follower) refused(c *copied, err error) {
	code := fault.CodeOf(err)
	if f.work.Err() == nil {
		f.m.metrics.refused.Inc()
		f.because("no lease: " + cut(err.Error(), maxPullText))
	}
	c.renewal = c.asked + max(refusedRetry, fault.RetryAfter(err))
	switch code {
	case codeFeed, codeAhead:
		f.remove(c, "the archive has another feed")
	case codeBehind:
		c.lapsed.Store(true)
		c.renewal = c.asked + askPatience
		f.kick()
	}
}

// late asks for a delta that should have come by now: the last of a series is
// missed without a gap.
func (f *follower) late(c *copied) {
	_, at := c.mirror.Position()
	now := int64(f.m.cfg.Clock())
	switch since := c.behind.Load(); {
	case at >= f.told.Load() && !c.lapsed.Load():
		c.behind.Store(0)
	case since == 0:
		c.behind.Store(max(now, 1))
	case now-since >= int64(deltaPatience):
		c.lapsed.Store(true)
	}
}
