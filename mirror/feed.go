package mirror

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of a Feed.
const (
	// DefaultLease is how long a lease is when FeedConfig does not say. It is also
	// the longest that puts wait for an aggregator that has died.
	DefaultLease = 2 * time.Second

	// MaxLag is how old the oldest delta may be that a holder has not
	// acknowledged, for his lease to be renewed.
	MaxLag = 250 * time.Millisecond

	// MaxHolders is how many leases may be out at a time.
	MaxHolders = 64

	// MaxKept is how many hashes are kept for those who lack them, 16 bytes each.
	// Who lacks more copies the whole filter.
	MaxKept = 1 << 20

	// keepFor is how long deltas are kept for who copies the filter, before he has a
	// lease.
	keepFor = 30 * time.Second
)

// FeedConfig configures a Feed.
type FeedConfig struct {
	Archive wire.ArchiveID
	ID      string        // names this feed; no other one of this archive, ever, has the same
	KeyID   string        // of the filter key
	Lease   time.Duration // 0 means DefaultLease
	Seq     uint64        // last record of the store, whose pairs are in the filter before the feed begins
	Clock   Clock         // nil is the machine's

	// Before is called before the first lease is given, and has to make durable
	// that one may be out. If it fails none is given. Nil: nobody needs to know.
	Before func() error
	// Send tells everybody a delta; it keeps their order, and may lose them. Nil:
	// nobody listens.
	Send func(wire.Delta)
}

// A Feed is an archive's side of the mirrors of its filter: what is added, who has
// it, and whom the archive waits for. Its methods may be called from many
// goroutines.
type Feed struct {
	cfg   FeedConfig
	clock Clock
	lease time.Duration

	leased  atomic.Bool // leases may be out; guarded by mu for writes
	before  sync.Mutex  // serialises cfg.Before; taken before mu
	told    bool        // Before has been called; guarded by before
	sending sync.Mutex  // keeps deltas in their order; taken before mu

	mu      sync.Mutex // guards all below
	id      string
	at, seq uint64 // where the feed ends
	kept    []run  // the newest of it, without a gap
	hashes  int    // in kept
	keep    time.Duration
	holders map[string]*holder
	closed  error         // no lease is given while it is not nil
	wake    chan struct{} // closed and replaced when somebody who waits may go on
	stats   FeedStats
}

// run is a part of the feed that went out as one delta.
type run struct {
	from, to, seq uint64
	when          time.Duration
	hashes        []byte
}

// holder is a lease that is out.
type holder struct {
	at    uint64 // has everything up to it
	need  uint64 // is believed from there on: what is before was perhaps acknowledged without him
	until time.Duration
}

// FeedStats are figures of a feed.
type FeedStats struct {
	Holders int           // leases that are out
	Lag     time.Duration // age of the oldest delta that one of them has not acknowledged
	Kept    int           // hashes kept for those who lack them
	At      uint64

	Sent    uint64        // deltas
	Granted uint64        // leases, and renewals
	Refused uint64        // of them
	RanOut  uint64        // leases whose holder did not come back in time
	Waits   uint64        // puts that waited for a holder
	Waited  time.Duration // they, together
}

// NewFeed returns a feed that begins at position 0.
func NewFeed(c FeedConfig) *Feed {
	f := &Feed{cfg: c, clock: c.Clock.or(), lease: c.Lease, id: c.ID, seq: c.Seq, holders: map[string]*holder{}, wake: make(chan struct{})}
	if f.lease <= 0 {
		f.lease = DefaultLease
	}
	return f
}

// SetSend is FeedConfig.Send of a feed that is older than its way out.
func (f *Feed) SetSend(send func(wire.Delta)) {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.cfg.Send = send
}

// Append says that the pairs with these hashes were added to the filter, and that
// with them it has those of every record up to seq. It comes after their bits are
// set and before the record is committed, and is called by one goroutine.
func (f *Feed) Append(seq uint64, hashes []bloom.Hash) {
	f.sending.Lock()
	defer f.sending.Unlock()
	for _, r := range f.add(seq, hashes) {
		if f.cfg.Send != nil {
			f.cfg.Send(f.delta(r))
		}
	}
}

// add moves the end of the feed, and returns what has to be sent.
func (f *Feed) add(seq uint64, hashes []bloom.Hash) []run {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	f.expire(now)
	if len(f.holders) == 0 && now >= f.keep {
		f.at, f.seq = f.at+uint64(len(hashes)), seq
		f.kept, f.hashes = nil, 0
		return nil
	}
	first := len(f.kept)
	for len(hashes) > 0 {
		part := hashes[:min(len(hashes), wire.MaxDeltaHashes)]
		hashes = hashes[len(part):]
		r := run{from: f.at, to: f.at + uint64(len(part)), seq: f.seq, when: now, hashes: encode(part)}
		if len(hashes) == 0 {
			r.seq = seq
		}
		f.kept = append(f.kept, r)
		f.at, f.hashes = r.to, f.hashes+len(part)
	}
	f.seq = seq
	sent := append([]run(nil), f.kept[first:]...)
	f.stats.Sent += uint64(len(sent))
	f.forget()
	return sent
}

// forget drops the oldest of what is kept beyond MaxKept.
func (f *Feed) forget() {
	n := 0
	for f.hashes > MaxKept && n < len(f.kept)-1 {
		f.hashes -= len(f.kept[n].hashes) / wire.HashSize
		f.kept[n] = run{}
		n++
	}
	f.kept = f.kept[n:]
}

func (f *Feed) delta(r run) wire.Delta {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.Delta{ArchiveID: f.cfg.Archive, Feed: f.id, KeyID: f.cfg.KeyID, From: r.from, To: r.to, Seq: r.seq, Hashes: r.hashes}
}

// Position returns where the feed ends: the position, and the record up to which
// it has all.
func (f *Feed) Position() (at, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.seq
}

// Await returns when no holder can be believed to know all up to position at
// without knowing it: each has acknowledged that much, or his lease has run out.
// A put whose pairs end there may be acknowledged then. It fails only with the
// error of ctx.
func (f *Feed) Await(ctx context.Context, at uint64) error {
	if !f.leased.Load() {
		return nil // a lease that is given now covers only what comes after
	}
	began := time.Time{}
	for {
		wake, next := f.waiting(at)
		if wake == nil {
			f.waited(began)
			return nil
		}
		if began.IsZero() {
			began = time.Now()
		}
		timer := time.NewTimer(next)
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fault.New(fault.Transient, "HOLDERS_WAIT", "mirror: aggregators have not acknowledged what was added: %w", ctx.Err())
		}
		timer.Stop()
	}
}

// waiting returns nil if nobody has to be waited for, else what to wait for, and
// how long at most.
func (f *Feed) waiting(at uint64) (wake <-chan struct{}, next time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	f.expire(now)
	for _, h := range f.holders {
		if h.at < at && h.need < at {
			if left := h.until - now; wake == nil || left < next {
				next = left
			}
			wake = f.wake
		}
	}
	return wake, next
}

func (f *Feed) waited(began time.Time) {
	if began.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Waits++
	f.stats.Waited += time.Since(began)
}

// expire ends the leases that have run out. mu is held.
func (f *Feed) expire(now time.Duration) {
	for id, h := range f.holders {
		if now >= h.until {
			f.stats.RanOut++
			f.end(id)
		}
	}
}

// end removes a holder. mu is held.
func (f *Feed) end(id string) {
	delete(f.holders, id)
	f.leased.Store(len(f.holders) > 0)
	f.progress()
}

// progress wakes those who wait. mu is held.
func (f *Feed) progress() {
	close(f.wake)
	f.wake = make(chan struct{})
}

// Ack takes the word of a holder that he has all up to a position.
func (f *Feed) Ack(a wire.DeltaAck) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.holders[a.Holder]; h != nil && a.Feed == f.id && a.At <= f.at && a.At > h.at {
		h.at = a.At
		f.progress()
	}
}

// Since returns what came after a position, as much as fits into one delta;
// nothing if that is where the feed ends. It fails with MIRROR_FEED for another
// feed, and with DELTAS_GONE if that is not kept any more: then the filter has to
// be copied anew.
func (f *Feed) Since(q wire.DeltasRequest) (wire.Delta, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.knows(q.Feed, q.After); err != nil {
		return wire.Delta{}, err
	}
	f.keep = max(f.keep, f.clock()+keepFor)
	d := wire.Delta{ArchiveID: f.cfg.Archive, Feed: f.id, KeyID: f.cfg.KeyID, From: q.After, To: q.After, Seq: f.seq}
	if q.After == f.at {
		return d, nil
	}
	if !f.has(q.After) {
		return wire.Delta{}, fault.New(fault.NotFound, "DELTAS_GONE", "mirror: what was added after %d is not kept; copy the filter", q.After)
	}
	for _, r := range f.kept {
		if r.to <= d.To {
			continue
		}
		if r.to-d.From > wire.MaxDeltaHashes {
			break
		}
		d.Hashes = append(d.Hashes, r.hashes[(d.To-r.from)*wire.HashSize:]...)
		d.To, d.Seq = r.to, r.seq
	}
	return d, nil
}

// has reports whether all that came after a position is kept. mu is held.
func (f *Feed) has(after uint64) bool {
	return after == f.at || len(f.kept) > 0 && f.kept[0].from <= after
}

func (f *Feed) knows(id string, at uint64) error {
	switch {
	case id != f.id:
		return fault.New(fault.Conflict, "MIRROR_FEED", "mirror: this is feed %s; copy the filter anew", f.id)
	case at > f.at:
		return fault.New(fault.Invalid, "MIRROR_AHEAD", "mirror: the feed ends at %d, and %d is claimed", f.at, at)
	}
	return nil
}

// Follow begins to keep what is added, for somebody who is about to copy the
// filter, and returns where the feed ends: every bit that was added up to there is
// set when Follow returns.
func (f *Feed) Follow() (id string, at, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep = max(f.keep, f.clock()+keepFor)
	return f.id, f.at, f.seq
}

// Break gives the feed another id: what was copied of the filter is not to be
// believed, and everybody has to copy it anew. Leases that are out are waited for
// until they run out or are given back.
func (f *Feed) Break(id string) {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.mu.Lock()
	f.id, f.kept, f.hashes = id, nil, 0
	news := run{from: f.at, to: f.at, seq: f.seq}
	f.mu.Unlock()
	if f.cfg.Send != nil {
		f.cfg.Send(f.delta(news))
	}
}

// Refuse says why no lease is given or renewed, or with nil that they are.
func (f *Feed) Refuse(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = why
}

// Idle reports whether no lease is out.
func (f *Feed) Idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(f.clock())
	return len(f.holders) == 0
}

// Stats returns the figures of the feed.
func (f *Feed) Stats() FeedStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	f.expire(now)
	s := f.stats
	s.Holders, s.Kept, s.At = len(f.holders), f.hashes, f.at
	for _, h := range f.holders {
		s.Lag = max(s.Lag, f.lag(h, now))
	}
	return s
}
