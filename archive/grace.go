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

// beginGrace makes a restored archive wait for a lease before it takes records.
// Whoever relies on what it was before it was restored, in the belief that it
// knows all that is there, has let go of that by then.
func (n *Node) beginGrace(ctx context.Context) error {
	_, err := n.cfg.FS.Stat(n.cfg.gracePath())
	if errors.Is(err, os.ErrNotExist) || n.cfg.Lease < 0 {
		return nil
	}
	if err != nil {
		return err
	}
	until := time.Now().Add(n.cfg.Lease)
	n.grace = func() error {
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		return fault.New(fault.Transient, "GRACE", "archive: it was restored, and takes records %s after its start", n.cfg.Lease).After(left)
	}
	n.health.watch(n.grace)
	n.background.Go(func() {
		select {
		case <-time.After(n.cfg.Lease):
		case <-ctx.Done():
		}
		if n.health.failure() != nil {
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
	if n.grace == nil {
		return nil
	}
	return n.grace()
}
