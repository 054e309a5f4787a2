package mirror

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// trustShare is how much of a lease its holder relies on, in percent. The rest is
// for clocks that run apart: even if his is slow by 5 % and the archive's fast by
// as much he lets go first.
const trustShare = 85

// MirrorConfig configures a Mirror.
type MirrorConfig struct {
	// Holder names this process: the ids of its leases begin with it.
	Holder string
	// Clock is nil for the machine's.
	Clock Clock
}

// A Mirror is an aggregator's copy of the filter of one archive. Its methods may
// be called from many goroutines; Absent waits for none of the others.
type Mirror struct {
	cfg   MirrorConfig
	clock Clock

	applying sync.Mutex            // serialises deltas; taken before mu
	trust    atomic.Pointer[trust] // nil: not believed
	seq      atomic.Uint64         // records up to it are in the set

	mu    sync.Mutex // guards all below
	set   *bloom.Set // nil: none
	feed  string
	at    uint64
	need  uint64        // of the newest lease
	until time.Duration // when that ends for us; 0: there is none
	loads uint64        // numbers the holder ids
}

// trust is what Absent goes by.
type trust struct {
	set   *bloom.Set
	until time.Duration
}

// NewMirror returns a mirror of nothing, which is not believed.
func NewMirror(c MirrorConfig) *Mirror { return &Mirror{cfg: c, clock: c.Clock.or()} }

// Holder is the id for leases and acknowledgements. It changes with every Load and
// Drop, so that nothing that is said late of an old one means the new one.
func (m *Mirror) Holder() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holder()
}

func (m *Mirror) holder() string { return fmt.Sprintf("%s.%d", m.cfg.Holder, m.loads) }

// Load takes a copy of the filter, complete, that was begun at the position of
// head. It is believed from its first lease on.
func (m *Mirror) Load(set *bloom.Set, head wire.SnapshotHead) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	m.set, m.feed, m.at = set, head.Feed, head.At
	m.seq.Store(head.Seq)
}

// Drop ends the belief in the mirror until it is loaded anew, and returns the
// holder id that it had, for the lease to be given back.
func (m *Mirror) Drop() (holder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	holder = m.holder()
	m.drop()
	return holder
}

func (m *Mirror) drop() {
	m.trust.Store(nil)
	m.set, m.feed, m.at, m.need, m.until = nil, "", 0, 0, 0
	m.loads++
}

// Apply adds a delta. It returns the position to acknowledge, which is that of the
// mirror. It fails with
//   - MIRROR_FEED if the delta is of another feed, or nothing is loaded: the filter
//     has to be copied anew, and a mirror of the other feed is not believed any
//     more;
//   - MIRROR_GAP if something before it has not come yet. The mirror is as good as
//     it was, since the archive waits for its acknowledgement.
func (m *Mirror) Apply(d wire.Delta) (at uint64, err error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	set, at, err := m.accepts(d)
	if err != nil || d.To <= at {
		return at, err
	}
	for b := d.Hashes[(at-d.From)*wire.HashSize:]; len(b) >= wire.HashSize; b = b[wire.HashSize:] {
		set.AddHash(decodeHash(b))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set != set {
		return 0, errFeed(d.Feed) // it was dropped meanwhile
	}
	m.at = d.To
	m.seq.Store(max(m.seq.Load(), d.Seq))
	m.judge()
	return m.at, nil
}

func errFeed(feed string) error {
	return fault.New(fault.Conflict, "MIRROR_FEED", "mirror: no copy of feed %s", feed)
}

// accepts returns what a delta is added to, and the position before it is.
func (m *Mirror) accepts(d wire.Delta) (*bloom.Set, uint64, error) {
	if err := d.Check(); err != nil {
		return nil, 0, fault.New(fault.Invalid, "MALFORMED", "mirror: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.set == nil || d.Feed != m.feed:
		m.trust.Store(nil)
		m.feed, m.until = "", 0 // no lease of the old one makes it good again
		return nil, 0, errFeed(d.Feed)
	case d.From > m.at:
		return nil, 0, fault.New(fault.Transient, "MIRROR_GAP", "mirror: what was added from %d to %d has not come", m.at, d.From)
	}
	return m.set, m.at, nil
}

// Granted takes a lease that was asked for at the time sent, by this mirror's
// clock, under a holder id.
func (m *Mirror) Granted(holder string, sent time.Duration, g wire.LeaseGrant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	until := sent + time.Duration(g.LeaseMs)*time.Millisecond*trustShare/100
	if m.set == nil || holder != m.holder() || g.Feed != m.feed || until <= m.until {
		return
	}
	m.until, m.need = until, g.Need
	m.judge()
}

// judge renews what Absent goes by. mu is held.
func (m *Mirror) judge() {
	if m.until == 0 || m.at < m.need {
		m.trust.Store(nil)
		return
	}
	m.trust.Store(&trust{m.set, m.until})
}

// Position returns the feed that the mirror is of, empty if nothing is loaded, and
// how far it has it.
func (m *Mirror) Position() (feed string, at uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.feed, m.at
}

// Trusted reports whether the mirror is believed now.
func (m *Mirror) Trusted() bool {
	t := m.trust.Load()
	return t != nil && m.clock() < t.until
}

// Absent reports whether the mirror is believed and surely has none of the pairs.
// Then no record with one of them was acknowledged before the call. seq is the
// number up to which that is so of every record, acknowledged or not.
func (m *Mirror) Absent(pairs ...bloom.Hash) (seq uint64, ok bool) {
	return m.AbsentAt(m.clock(), pairs...)
}

// AbsentAt is Absent for who asks many mirrors that go by one clock, at the time
// now by that: what it says is of the moment at which the clock was read.
func (m *Mirror) AbsentAt(now time.Duration, pairs ...bloom.Hash) (seq uint64, ok bool) {
	t := m.trust.Load()
	if t == nil || now >= t.until {
		return 0, false
	}
	seq = m.seq.Load() // before the bits are read
	for _, p := range pairs {
		if t.set.TestHash(p) != bloom.Absent {
			return 0, false
		}
	}
	return seq, true
}

// Acked takes an acknowledgement that this process got itself for a put, from the
// archive's process boot. It reports whether the mirror is believed and has never
// heard of that record, which can not be: then it is to be loaded anew.
func (m *Mirror) Acked(boot string, seq uint64) (contradiction bool) {
	if !m.Trusted() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trust.Load() != nil && m.clock() < m.until && strings.HasPrefix(m.feed, boot+".") && m.seq.Load() < seq
}

// MirrorStats are figures of a mirror.
type MirrorStats struct {
	Loaded, Trusted bool
	At, Seq         uint64
	Bytes           int // of its bits
	Generations     int // of its set; many cost time, and a new copy has one
}

// Stats returns the figures of the mirror.
func (m *Mirror) Stats() MirrorStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := MirrorStats{Loaded: m.set != nil, Trusted: m.Trusted(), At: m.at, Seq: m.seq.Load()}
	if m.set != nil {
		s.Bytes, s.Generations = m.set.Bytes(), m.set.Generations()
	}
	return s
}
