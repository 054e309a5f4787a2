package archive

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/verae/archive/internal/fault"
)

// DefaultLease is the default of Config.Lease.
const DefaultLease = 2 * time.Second

// graceText is what is in the file that asks for a grace.
const graceText = "verae-grace/1: this archive was restored and has not been served yet\n"

// gracePath is a file that is there until a restored archive has been served for
// a lease, or was served and closed in order.
func (c Config) gracePath() string { return c.FS.PathJoin(c.Dir, "grace") }

// grace is how an archive waits before it takes records. Whoever relies on what it
// was before, in the belief that it knows all that is there, has let go of that by
// then. That is so after a restore, and after an end that left leases out.
type grace struct {
	restored time.Duration // after a restore, from the start; 0: it was not
	leased   time.Duration // with leases out, from the start; 0: there were none
	began    time.Time
}

// beginGrace looks why there is something to wait for. Files are removed once it is
// over.
func (n *Node) beginGrace(ctx context.Context) error {
	if n.cfg.Lease < 0 {
		return nil
	}
	n.grace.began = time.Now()
	_, err := n.cfg.FS.Stat(n.cfg.gracePath())
	switch {
	case err == nil:
		n.grace.restored = n.cfg.Lease
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if n.grace.leased, err = n.leases.find(n.cfg); err != nil {
		return err
	}
	length := max(n.grace.restored, n.grace.leased)
	if length == 0 {
		return nil
	}
	n.health.watch(n.inGrace)
	n.background.Go(func() {
		select {
		case <-time.After(length):
			n.giveBack()
		case <-ctx.Done():
		}
		if n.grace.restored == 0 || n.health.failure() != nil {
			return
		}
		if err := n.cfg.FS.Remove(n.cfg.gracePath()); err != nil {
			n.cfg.Log.Warn("the grace of a restored archive is observed again at the next start", "err", err)
		}
	})
	return nil
}

// inGrace returns why no record is taken yet, or nil.
func (n *Node) inGrace() error {
	if err := n.unsettled(); err != nil {
		return err
	}
	return n.grace.left(n.grace.restored, "it was restored, and takes")
}

// unsettled returns why it may not be told yet that something is stored, also if it
// is, or nil: before the last start it may have been stored and not acknowledged, and
// a mirror of that time may still deny it.
func (n *Node) unsettled() error {
	return n.grace.left(n.grace.leased, "aggregators relied on its filter when it ended, and it takes")
}

func (g *grace) left(length time.Duration, why string) error {
	if length == 0 {
		return nil
	}
	left := time.Until(g.began.Add(length))
	if left <= 0 {
		return nil
	}
	return fault.New(fault.Transient, "GRACE", "archive: %s records %s after its start", why, length).After(left)
}
