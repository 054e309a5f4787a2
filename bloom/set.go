package bloom

import (
	"math"
	"sync"
	"sync/atomic"
)

// Verdict is the answer of a filter. Its zero value is Maybe, so that what was
// never decided sends the question on to the store.
type Verdict uint8

// The two answers.
const (
	Maybe  Verdict = iota // in the set, or not: look
	Absent                // surely not in the set
)

// Bounds of [Params]. Values outside are moved to the nearest bound.
const (
	MinCapacity  = 1 << 10 // keys; a smaller filter saves nothing
	MaxCapacity  = 1 << 32 // keys; about 8 GB at an error rate of 0.1 %
	MinErrorRate = 1e-6
	MaxErrorRate = 0.5
)

// Defaults that a zero [Params] stands for.
const (
	DefaultCapacity  = 1 << 20
	DefaultErrorRate = 0.001
)

// Params size a filter.
type Params struct {
	// Capacity is the number of keys the first generation is made for; 0 means
	// DefaultCapacity. More keys are no error, they cost memory and time.
	Capacity uint64
	// ErrorRate is the wanted share of absent keys that are answered Maybe; 0
	// means DefaultErrorRate. A NaN counts as 0.
	ErrorRate float64
	// MaxBytes is the most memory that bits may take, those of a base that is
	// being rebuilt among them; 0 means no limit. A Set that would need more takes
	// keys as ever and is wrong more often: Stats.Degraded says so. Nothing is
	// ever denied for want of memory.
	MaxBytes uint64
	// Rebuilds says that the owner rebuilds the base whenever NeedsRebuild asks for
	// it. Then at most two small generations are added meanwhile. Without it each
	// generation is twice as large as the one before, without end.
	Rebuilds bool
	// Secret is what positions are derived under.
	Secret Secret
}

func (p Params) clamped() Params {
	if p.Capacity == 0 {
		p.Capacity = DefaultCapacity
	}
	if p.ErrorRate == 0 || math.IsNaN(p.ErrorRate) {
		p.ErrorRate = DefaultErrorRate
	}
	p.Capacity = min(max(p.Capacity, MinCapacity), MaxCapacity)
	p.ErrorRate = min(max(p.ErrorRate, MinErrorRate), MaxErrorRate)
	return p
}

// Set is a set of keys that can be added to and asked. All its methods may be
// called from many goroutines at once, unless they say otherwise; none of them
// blocks a reader.
type Set struct {
	params Params
	k0, k1 uint64 // the secret, as SipHash takes it

	state atomic.Pointer[state] // never nil

	changing sync.Mutex // held while state is replaced
	saving   sync.Mutex // held while a snapshot is written to a directory

	padded atomic.Bool // some bits are set because nobody knows them

	counts counts
}

// state is what a reader sees: it is replaced as a whole and never changed,
// except for the bits inside the generations.
type state struct {
	complete bool
	doubted  bool          // Scrub found a key denied: others may be
	gens     []*generation // newest first, the base last; at least one
	next     *generation   // the base that is being rebuilt, or nil; never asked
}

// New returns an empty Set that is not complete yet. Fill it with Add and then
// call Complete.
func New(p Params) *Set {
	p = p.clamped()
	m, k := size(p.Capacity, p.budget(0))
	if p.MaxBytes > 0 {
		m = max(min(m, p.MaxBytes/(lineBits/8)*lineBits), lineBits)
	}
	return newSet(p, []*generation{newGeneration(m, k)})
}

// newSet returns an incomplete Set of these generations. The parameters are
// clamped.
func newSet(p Params, gens []*generation) *Set {
	s := &Set{params: p}
	s.k0, s.k1 = p.Secret.words()
	s.state.Store(&state{gens: gens})
	return s
}

// Complete says that every key of the set has been added. Before that, Test
// answers Maybe to everything.
func (s *Set) Complete() {
	s.change(func(st *state) bool { st.complete = true; return true })
}

// change replaces the state by a copy that f changed, if f says so. One change
// runs at a time.
func (s *Set) change(f func(*state) bool) {
	s.changing.Lock()
	defer s.changing.Unlock()
	st := *s.state.Load()
	if f(&st) {
		s.state.Store(&st)
	}
}

// Ready reports whether the set is complete, and no key was denied that is in the
// store: whether Test answers anything but Maybe.
func (s *Set) Ready() bool { return s.state.Load().exact() }

// Denied reports whether Scrub found that the set, which is complete, denied a
// key. Then it answers Maybe to everything until the base is rebuilt.
func (s *Set) Denied() bool { return s.state.Load().doubted }

func (st *state) exact() bool { return st.complete && !st.doubted }

// SecretID returns the id of the secret that positions are derived under; 0 is
// that of no fleet.
func (s *Set) SecretID() uint32 { return s.params.Secret.ID }

// Hash returns the hash of key under the secret of the set, for all that takes
// hashes of this set and of every other one under the same secret. An owner may
// derive hashes in another way, of what is no key of 32 bytes: then he uses that
// alone.
func (s *Set) Hash(key [32]byte) Hash { return hash(s.k0, s.k1, &key) }

// Test reports whether key is surely absent. It takes no lock and allocates
// nothing.
func (s *Set) Test(key [32]byte) Verdict { return s.TestHash(hash(s.k0, s.k1, &key)) }

// TestHash is Test for the key with hash h.
func (s *Set) TestHash(h Hash) Verdict {
	h.B |= 1 // it may come from elsewhere
	st, count := s.state.Load(), s.counts.of(h)
	switch {
	case !st.exact():
		count.notReady.Add(1)
		return Maybe
	case st.has(h):
		count.maybe.Add(1)
		return Maybe
	}
	count.absent.Add(1)
	return Absent
}

// Add puts key into the set. When it returns, Test answers Maybe for key, in
// every goroutine and for ever. Call it before the key's record can be seen.
func (s *Set) Add(key [32]byte) { s.AddHash(hash(s.k0, s.k1, &key)) }

// AddHash is Add for the key with hash h.
func (s *Set) AddHash(h Hash) {
	h.B |= 1
	st := s.state.Load()
	if st.next != nil {
		st.next.set(h) // known or not: what is taken for known here may not be there
	}
	if st.has(h) {
		return // and will be so for ever: bits are never cleared
	}
	newest := st.gens[0]
	newest.set(h)
	if newest.full() {
		s.grow(newest)
	}
}

func (st *state) has(h Hash) bool {
	for _, g := range st.gens {
		if g.has(h) {
			return true
		}
	}
	return false
}
