package archive

import (
	"context"
	"errors"
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

// tending is what an archive knows of a filter beside the bits: its snapshots, and
// what has become of them.
type tending struct {
	// loaded says that the filter came from a snapshot, which has everything up to
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

// tend looks after the filters until ctx ends: it saves them, rebuilds their bases,
// and removes snapshots that could not be removed. What fails is tried again a
// minute later.
func (n *Node) tend(ctx context.Context) {
	for {
		wake, later := n.wake, (<-chan time.Time)(nil)
		if err := n.tendOnce(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Error("a filter can not be looked after; it is tried again, and queries are answered", "err", err)
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

// tendOnce looks after one filter after the other: a rebuild takes memory.
func (n *Node) tendOnce(ctx context.Context) error {
	defer n.renewFeed()
	return errors.Join(n.keys.tendOnce(ctx), n.views.tendOnce(ctx))
}

func (f *filter) tendOnce(ctx context.Context) error {
	if why := f.stays(); why != nil {
		f.discard(why)
		if why := f.stays(); why != nil {
			return why
		}
	}
	f.discardDenying()
	if !f.trustsIndex() {
		return nil
	}
	stats := f.set.Stats()
	if capacity, needed := f.set.NeedsRebuild(); needed {
		if stats.Degraded { // it takes new keys for known ones
			capacity = max(capacity, f.params().Capacity)
		}
		return f.rebuild(ctx, capacity, f.fill)
	}
	if f.due(stats.Keys) {
		return f.save()
	}
	return nil
}

// discardDenying removes the snapshots if the filter denied what is stored since it
// last did: they may deny the same. That is so whatever else is wrong, and also
// when there is no time left for a rebuild.
func (f *filter) discardDenying() {
	denied := f.set.Stats().Repaired
	if denied == f.repaired || f.n.health.failure() != nil {
		return
	}
	f.repaired = denied
	if f.bare.Load() {
		return // it may go on denying for millions of keys
	}
	f.discard(fault.New(fault.Corrupt, "FILTER_DENIES", "archive: the filter %s denied %d keys that are stored", f.name, denied))
	f.bare.Store(f.stays() == nil)
}

// trustsIndex reports whether the filter may be made of the index, and stored:
// the index has been read once, and nothing is known to be wrong.
func (f *filter) trustsIndex() bool {
	select {
	case <-f.n.loaded:
	default:
		return false
	}
	h := f.n.health
	return f.known() && h.readOnly() == nil && h.failure() == nil && h.damage() == ""
}

// due reports whether so many keys, or anything else, make a snapshot worth its
// time.
func (t *tending) due(keys uint64) bool {
	return t.want.Load() || keys > t.saved.Load()+max(snapshotKeys, keys/snapshotShare)
}

// save writes a snapshot. One that fails costs the next start some time.
func (f *filter) save() (err error) {
	defer func() {
		if err != nil {
			f.saveErrors.Add(1)
		}
	}()
	n, seq, keys, began := f.n, f.n.durable.Load(), f.set.Keys(), time.Now()
	if f.set.SecretID() == 0 || seq == 0 {
		return nil // see filterSecret; nothing to store
	}
	if use := n.disk.Usage(); use.Known && use.Free < use.Reserve+uint64(f.set.Bytes()) {
		return fault.New(fault.Transient, pebblex.CodeDiskFull, "archive: there is no room above the reserve to store the filter %s, which takes %d bytes", f.name, f.set.Bytes())
	}
	head, err := n.headAt(seq)
	if err != nil {
		return err
	}
	if err := pebblex.Mkdir(n.cfg.FS, f.dir); err != nil {
		return err
	}
	f.bare.Store(false)
	if err := f.set.Save(filterFS{n.cfg.FS}, f.dir, bloom.Mark{Identity: f.identity(), Seq: seq, Head: head}); err != nil {
		return err
	}
	f.want.Store(false)
	f.covered.Store(seq)
	f.saved.Store(keys)
	f.saveTook.Store(int64(time.Since(began)))
	f.log().Info("the filter was stored", "keys", keys, "seq", seq, "dur", time.Since(began))
	return nil
}

// saveLast stores the filter before the store is closed, so that the next start
// has nothing to read. Nothing is stored that is stored already.
func (f *filter) saveLast() {
	f.discardDenying()
	if !f.trustsIndex() || f.stays() != nil || f.covered.Load() == f.n.durable.Load() && !f.want.Load() {
		return
	}
	if err := f.save(); err != nil {
		f.log().Warn("the filter was not stored; the next start builds what is missing of it from the store", "err", err)
	}
}
