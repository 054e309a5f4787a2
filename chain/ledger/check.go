package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

// Check reads the whole ledger and recomputes it from its leaves: every tree
// hash, the root, size and signature of every block, that leaves and seal rows
// are one to one, that time never goes back, that there is nothing else in the
// store, and that the fork guard is contained in it. It returns the first
// contradiction as a fault.Corrupt that names the row. Sealing goes on meanwhile;
// blocks that come later are not looked at.
func (l *Ledger) Check(ctx context.Context) (err error) {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.mu.RUnlock()
	seen, guarded, err := readGuard(l.cfg, l.key)
	if err != nil {
		return err
	}
	promised := l.head.Load()
	snap := l.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()

	c := &checker{l: l, db: snap, edge: &tlogx.Edge{}}
	if err := c.run(ctx); err != nil {
		return fault.Wrap(kindOf(err), fmt.Errorf("ledger: check: %w", err))
	}
	if c.edge.Size() < promised.size {
		return damaged("%d leaves, but %d were promised", c.edge.Size(), promised.size)
	}
	if c.edge.Size() == promised.size && (c.edge.Root() != promised.root || c.blocks != promised.blocks) {
		return damaged("the store is not what this process has written")
	}
	if !guarded {
		return nil // it was missing at open and was not needed yet
	}
	_, err = compareGuard(l.cfg, seen, c.edge.Size(), hashReader(snap))
	return err
}
