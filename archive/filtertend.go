package archive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

const (
	// filterRetry is how long after a failure the filter is saved or rebuilt again.
	filterRetry = time.Minute
	// A snapshot is made when more keys have come since the last one than
	// snapshotKeys and a snapshotShare-th of all: that bounds what a start after a
	// crash has to replay, and what saving costs.
	snapshotKeys  = 100_000
	snapshotShare = 20
)

// tending is what an archive knows of its filter beside the bits: its snapshots,
// and what has become of them.
type tending struct {
	wake chan struct{} // capacity 1: the filter has changed

	// loaded says that the filter came from a snapshot, which has the keys up to
	// the number from. They never change after open.
	loaded bool
	from   uint64

	covered  atomic.Uint64 // number up to which the snapshot on disk has all keys; 0: there is none that is right
	saved    atomic.Uint64 // keys in it
	want     atomic.Bool   // one is wanted, however few keys have come
	alarmed  atomic.Bool   // that keys were denied was told since the last rebuild
	repaired uint64        // keys that were denied when discardDenying last looked; of the tender, then of Close
	bare     atomic.Bool   // it removed the snapshots, and none was written since

	replayed, rejected, ahead, corruptChunks atomic.Uint64
	saveErrors                               atomic.Uint64
	saveTook, rebuildTook                    atomic.Int64 // nanoseconds, the last ones

	mu   sync.Mutex
	held error // see hold
}

// hold says why no records may be taken, or with nil that they may.
func (t *tending) hold(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = why
}

// stays is a condition of health: nil, or why a snapshot that is not to be
// believed is still on the disk.
func (t *tending) stays() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

// tend looks after the filter until ctx ends: it saves it, rebuilds its base, and
// removes snapshots that could not be removed. What fails is tried again a minute
// later.
func (n *Node) tend(ctx context.Context) {
	for {
		wake, later := n.tending.wake, (<-chan time.Time)(nil)
		if err := n.tendOnce(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("the filter can not be looked after; it is tried again, and queries are answered", "err", err)
			wake, later = nil, time.After(filterRetry)
		}
		select {
		case <-wake:
		case <-later:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) tendOnce(ctx context.Context) error {
	if why := n.tending.stays(); why != nil {
		n.discardFilters(why)
		if why := n.tending.stays(); why != nil {
			return why
		}
	}
	n.discardDenying()
	if !n.trustsIndex() {
		return nil
	}
	stats := n.filter.Stats()
	if capacity, needed := n.filter.NeedsRebuild(); needed {
		if stats.Degraded { // it takes new keys for known ones
			capacity = max(capacity, n.filterParams().Capacity)
		}
		return n.rebuildFilter(ctx, capacity, n.fillFilter)
	}
	if n.tending.due(stats.Keys) {
		return n.saveFilter()
	}
	return nil
}

// discardDenying removes the snapshots if the filter denied stored keys since it
// last did: they may deny the same ones. That is so whatever else is wrong, and
// also when there is no time left for a rebuild.
func (n *Node) discardDenying() {
	denied := n.filter.Stats().Repaired
	if denied == n.tending.repaired || n.health.failure() != nil {
		return
	}
	n.tending.repaired = denied
	if n.tending.bare.Load() {
		return // it may go on denying for millions of keys
	}
	n.discardFilters(fault.New(fault.Corrupt, "FILTER_DENIES", "archive: the filter denied %d keys that are stored", denied))
	n.tending.bare.Store(n.tending.stays() == nil)
}

// trustsIndex reports whether the filter may be made of the index, and stored:
// the index has been read once, and nothing is known to be wrong.
func (n *Node) trustsIndex() bool {
	select {
	case <-n.loaded:
	default:
		return false
	}
	return (n.filter.Ready() || n.filter.Denied()) && n.health.readOnly() == nil && n.health.failure() == nil && n.health.damage() == ""
}

// due reports whether so many keys, or anything else, make a snapshot worth its
// time.
func (t *tending) due(keys uint64) bool {
	return t.want.Load() || keys > t.saved.Load()+max(snapshotKeys, keys/snapshotShare)
}

// saveFilter writes a snapshot. One that fails costs the next start some time.
func (n *Node) saveFilter() (err error) {
	defer func() {
		if err != nil {
			n.tending.saveErrors.Add(1)
		}
	}()
	seq, keys, began := n.durable.Load(), n.filter.Keys(), time.Now()
	if n.filter.SecretID() == 0 || seq == 0 {
		return nil // see filterSecret; nothing to store
	}
	if use := n.disk.Usage(); use.Known && use.Free < use.Reserve+uint64(n.filter.Bytes()) {
		return fault.New(fault.Transient, pebblex.CodeDiskFull, "archive: there is no room above the reserve to store the filter, which takes %d bytes", n.filter.Bytes())
	}
	head, err := n.headAt(seq)
	if err != nil {
		return err
	}
	dir := n.cfg.filterDir()
	if err := pebblex.Mkdir(n.cfg.FS, dir); err != nil {
		return err
	}
	n.tending.bare.Store(false)
	if err := n.filter.Save(filterFS{n.cfg.FS}, dir, bloom.Mark{Identity: n.filterIdentity(), Seq: seq, Head: head}); err != nil {
		return err
	}
	n.tending.want.Store(false)
	n.tending.covered.Store(seq)
	n.tending.saved.Store(keys)
	n.tending.saveTook.Store(int64(time.Since(began)))
	n.cfg.Log.Info("the filter was stored", "keys", keys, "seq", seq, "dur", time.Since(began))
	return nil
}

// saveLast stores the filter before the store is closed, so that the next start
// has nothing to read. Nothing is stored that is stored already.
func (n *Node) saveLast() {
	n.discardDenying()
	if !n.trustsIndex() || n.tending.stays() != nil || n.tending.covered.Load() == n.durable.Load() && !n.tending.want.Load() {
		return
	}
	if err := n.saveFilter(); err != nil {
		n.cfg.Log.Warn("the filter was not stored; the next start builds what is missing of it from the store", "err", err)
	}
}
