package archive

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// lending is what a node knows of those who mirror the filter views.
type lending struct {
	mu    sync.Mutex    // held while it is decided whether leases are given
	epoch int           // of the feed; guarded by mu
	mends atomic.Uint64 // what the filter had denied when the feed was broken last
}

// startFeed makes the feed of the filter views, which gives no leases yet.
func (n *Node) startFeed() {
	n.feed = mirror.NewFeed(mirror.FeedConfig{
		Archive: n.cfg.ID, ID: n.feedID(1), KeyID: n.filterKeyID(), Seq: n.tail.seq, Clock: n.cfg.clock,
		Lease:  min(n.cfg.Lease, wire.MaxLeaseMs*time.Millisecond),
		Before: func() error { return n.leases.note(n.cfg) },
	})
	n.lending.epoch = 1
	n.lend()
	n.health.onChange(n.lend)
}

func (n *Node) feedID(epoch int) string { return fmt.Sprintf("%s.%d", n.boot, epoch) }

// Feed returns the feed of the filter over viewers and digests: what is added to it,
// and who is waited for before a record is acknowledged. It is nil if nobody can
// mirror the filter: its key is for this process only, or it is not served.
func (n *Node) Feed() *mirror.Feed {
	if n.secret.ID == 0 || n.cfg.Lease < 0 {
		return nil
	}
	return n.feed
}

// ViewsSnapshot begins a copy of the filter over viewers and digests for somebody
// who follows the feed. It returns what the copy is of, without a session, and what
// writes it, once, at any time.
//
// Errors, all fault.Transient: FILTER_INCOMPLETE while the filter is not complete or
// denied what is stored, DAMAGED and others when the archive is in no state to be
// relied upon, DRAINING when it is about to end.
func (n *Node) ViewsSnapshot() (head wire.SnapshotHead, write func(io.Writer) (int64, error), err error) {
	if err := n.unreliable(); err != nil {
		return wire.SnapshotHead{}, nil, err
	}
	durable := n.durable.Load()
	id, at, seq := n.feed.Follow() // before any bit is read
	size, write, err := n.views.set.Snapshot(bloom.Mark{Identity: n.views.identity(), Seq: durable})
	if err != nil {
		return wire.SnapshotHead{}, nil, fault.New(fault.Transient, fault.CodeOf(err), "archive: %w", err)
	}
	return wire.SnapshotHead{ArchiveID: n.cfg.ID, Feed: id, KeyID: n.filterKeyID(), At: at, Seq: seq, Size: size}, write, nil
}

// unreliable returns why nobody may rely on the filter views now, or nil.
func (n *Node) unreliable() error {
	if err := n.health.doubt(); err != nil {
		return err
	}
	// Read in this order: what was denied is counted first.
	ready := n.views.set.Ready()
	if n.views.set.Stats().Repaired != n.lending.mends.Load() {
		return fault.New(fault.Transient, "FILTER_INCOMPLETE", "archive: the filter views denied what is stored, and is rebuilt")
	}
	if !ready {
		return fault.New(fault.Transient, "FILTER_INCOMPLETE", "archive: the filter views is not complete yet")
	}
	return nil
}

// lend says whether leases are given from now on. It is called whenever that may
// have changed.
func (n *Node) lend() {
	if n.feed == nil {
		return // a copy that is looked at
	}
	n.lending.mu.Lock()
	defer n.lending.mu.Unlock()
	n.feed.Refuse(n.unreliable())
}

// renewFeed makes everybody copy the filter anew once it is right again after it denied
// what is stored: their copies may be as wrong.
func (n *Node) renewFeed() {
	n.lending.mu.Lock()
	defer n.lending.mu.Unlock()
	denied := n.views.set.Stats().Repaired
	if denied != n.lending.mends.Load() && n.views.set.Ready() {
		n.lending.epoch++
		n.feed.Break(n.feedID(n.lending.epoch))
		n.lending.mends.Store(denied)
	}
	n.feed.Refuse(n.unreliable())
}

// settle is the last step before something that was stored is told: everybody who
// relies on a copy of the filter views has what was added up to a position, or relies
// on it no more.
func (n *Node) settle(ctx context.Context, at uint64) error {
	if err := n.feed.Await(ctx, at); err != nil {
		return fault.New(fault.Transient, codeUnknown, "archive: stored, and not acknowledged in time: %w", err)
	}
	return nil
}

// settled is settle for all that can be read now.
func (n *Node) settled(ctx context.Context) error {
	if err := n.unsettled(); err != nil {
		return err
	}
	at, _ := n.feed.Position()
	return n.settle(ctx, at)
}
