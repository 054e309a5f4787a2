package bus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// Bounds of what is done for one mirror.
const (
	maxDeltasQueued     = 1024     // messages
	maxDeltaBytesQueued = 16 << 20 // their payloads together
	maxDeltasAtOnce     = 64       // that are acknowledged together

	growth   = 3 // a mirror may grow to so many times the size it was copied with
	maxGrown = 2 // generations that it may have beyond those it was copied with, before it is copied anew

	uselessRate = 0.1 // of wrong answers, from which on a mirror gives way to its successor before that is there

	firstRetry = 250 * time.Millisecond // before the copying of a filter is tried again
	maxRetry   = 30 * time.Second
	renewEvery = time.Minute // between two copies of a filter whose mirror has grown
)

// A follower keeps the mirror of one archive: one goroutine applies deltas and
// acknowledges them, and waits for nothing else; one asks the archive for what
// there is to ask; one, now and then, copies the filter.
type follower struct {
	m      *Mirrors
	id     wire.ArchiveID
	deltas chan *nats.Msg
	queued atomic.Int64  // bytes in deltas
	wake   chan struct{} // has a value when there is something to see to
	work   context.Context
	stop   context.CancelFunc

	serving atomic.Pointer[copied] // the mirror that is asked; nil: none
	told    atomic.Uint64          // the furthest position that is known of the feed

	mu      sync.Mutex // guards all below, and writes of serving
	next    *copied    // the mirror that takes its place when it is trusted; nil: none
	epoch   uint64     // rises when mirrors are dropped: a copy that was begun before is not taken
	copying bool
	abort   context.CancelFunc // ends the copy that is being made; nil: none was
	retry   time.Duration      // before the next copy, if this one fails
	after   time.Time          // when a filter may be copied next
	reason  string             // why there is no mirror, or none that is trusted; a word for people
}

// A copied is a mirror with what it was copied from.
type copied struct {
	mirror   *mirror.Mirror
	set      *bloom.Set // its bits
	boot     string
	feed     string
	reserved uint64 // bytes, of Mirrors.used
	gens     int    // generations that it was copied with

	lapsed  atomic.Bool  // a delta was missed: what came is to be asked for
	doubted atomic.Bool  // a delta was of another feed
	behind  atomic.Int64 // since when it lacks something, by the clock; 0: it does not

	asked, renewal time.Duration // when a lease was asked for, and when to ask for the next; of the goroutine that asks
}

func newFollower(m *Mirrors, id wire.ArchiveID) *follower {
	f := &follower{
		m: m, id: id, deltas: make(chan *nats.Msg, maxDeltasQueued), wake: make(chan struct{}, 1), reason: "not heard yet",
	}
	f.work, f.stop = context.WithCancel(m.work)
	return f
}

// take queues a delta. What finds no room is missed, and asked for.
func (f *follower) take(msg *nats.Msg) {
	if f.queued.Add(int64(len(msg.Data))) <= maxDeltaBytesQueued {
		select {
		case f.deltas <- msg:
			return
		default:
		}
	}
	f.queued.Add(-int64(len(msg.Data)))
	f.m.metrics.deltas.WithLabelValues("dropped").Inc()
	f.miss()
}

func (f *follower) kick() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// miss has the archive asked for what came.
func (f *follower) miss() {
	for _, c := range f.copies() {
		c.lapsed.Store(true)
	}
	f.kick()
}

// copies returns the mirrors there are: none, one, or two.
func (f *follower) copies() []*copied {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*copied
	for _, c := range []*copied{f.serving.Load(), f.next} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// pump applies deltas as they come, and acknowledges them.
func (f *follower) pump() {
	for {
		select {
		case msg := <-f.deltas:
			copies := f.copies()
			f.apply(copies, msg)
			for range min(len(f.deltas), maxDeltasAtOnce) {
				f.apply(copies, <-f.deltas)
			}
			for _, c := range copies {
				f.ack(c)
			}
		case <-f.work.Done():
			return
		}
	}
}

// apply applies one delta. Whoever may send on the subject can send anything; what
// is not of the process that is mirrored is not looked at.
func (f *follower) apply(copies []*copied, msg *nats.Msg) {
	f.queued.Add(-int64(len(msg.Data)))
	d, err := wire.Decode[wire.Delta](msg.Data)
	if err == nil {
		err = d.Check()
	}
	switch {
	case err != nil, d.ArchiveID != f.id:
		f.m.metrics.deltas.WithLabelValues("malformed").Inc()
		return
	case d.KeyID != f.m.keyID:
		f.m.metrics.deltas.WithLabelValues("other-key").Inc()
		return
	}
	outcome := "unused"
	for _, c := range copies {
		if feedOf(c.boot, d.Feed) {
			outcome = f.applyTo(c, d)
		}
	}
	f.m.metrics.deltas.WithLabelValues(outcome).Inc()
}

// applyTo applies a delta to one mirror. One of another feed is the word of the
// archive that the filter is not the one that was copied, or that of a stranger: the
// archive is asked.
func (f *follower) applyTo(c *copied, d wire.Delta) (outcome string) {
	if d.Feed != c.feed {
		c.doubted.Store(true)
		f.kick()
		return "other-feed"
	}
	switch _, err := c.mirror.Apply(d); fault.CodeOf(err) {
	case "":
		f.tell(d.To)
		return "applied"
	case codeGap:
		if !c.lapsed.Swap(true) {
			f.m.metrics.gaps.Inc()
		}
		f.kick()
		return "gap"
	}
	return "unused" // it was dropped meanwhile
}

// grown reports whether a new copy would be smaller or faster than the mirror is,
// or wrong less often.
func (c *copied) grown() bool {
	s := c.set.Stats()
	return s.Degraded || s.Generations > c.gens+maxGrown
}

// tell notes how far the archive is.
func (f *follower) tell(to uint64) {
	for {
		old := f.told.Load()
		if to <= old || f.told.CompareAndSwap(old, to) {
			return
		}
	}
}

// ack tells the archive what a mirror has.
func (f *follower) ack(c *copied) {
	holder, feed, at := standing(c.mirror)
	if feed == "" {
		return
	}
	if err := f.m.tell(f.id, wire.OpAck, wire.DeltaAck{Holder: holder, Feed: feed, At: at}); err != nil {
		f.m.metrics.unsent.Inc() // the next lease says the same
	}
}

// standing returns how far a mirror is, under its holder id.
func standing(m *mirror.Mirror) (holder, feed string, at uint64) {
	holder = m.Holder()
	feed, at = m.Position()
	return holder, feed, at
}

// drop ends the mirrors of the archive at once, and gives their leases back.
func (f *follower) drop(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reason = reason
	f.epoch++
	if f.abort != nil {
		f.abort()
	}
	f.told.Store(0)
	f.discard(f.serving.Load())
	f.discard(f.next)
	f.serving.Store(nil)
	f.next = nil
}

// discard ends one mirror. mu is held.
func (f *follower) discard(c *copied) {
	if c == nil {
		return
	}
	feed, at := c.mirror.Position()
	holder := c.mirror.Drop()
	f.m.release(c.reserved)
	if feed == "" {
		return
	}
	if err := f.m.tell(f.id, wire.OpLease, wire.LeaseRequest{Holder: holder, Feed: feed, At: at, Release: true}); err != nil {
		f.m.metrics.unsent.Inc() // it runs out
	}
}
