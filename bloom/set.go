// Package bloom answers one question about a 32-byte key: is it surely absent
// from a set, or perhaps in it?
//
// An archive asks it before every query it hears. "Surely absent" is silence at
// the price of a few memory reads; "perhaps" is checked in the store. So a wrong
// "perhaps" costs a read, and a wrong "absent" would deny a record that is there:
// there is none. Bits are only ever set, a key is in the filter before its record
// can be seen, and a [Set] that has not been told that it is complete answers
// [Maybe] to everything.
//
// The filter is the one of github.com/bits-and-blooms/bloom, which sizes it and
// against whose TestLocations it is tested. Its own Add and Test are not used:
// they are not safe beside each other. Here words are read and set with atomic
// operations, so that any number of goroutines may test and add at the same time
// without a lock.
//
// A filter has a size, and beyond it it answers "perhaps" to everything. So a Set
// is a list of generations: when one is half full of ones, which is when it holds
// as many keys as it was made for, the next one, twice as large and half as often
// wrong, takes the keys. The error rate of the whole stays below the wanted one.
//
// Positions are derived from two 64-bit hashes of the key under a secret of the
// process: keys come from clients, who could otherwise choose the bits that they
// set. A filter that leaves its process will need a hash under a shared secret;
// that is [Set.hash] and nothing else.
package bloom

import (
	"hash/maphash"
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
// called from many goroutines at once; none of them blocks a reader.
type Set struct {
	params Params
	seeds  [2]maphash.Seed

	state atomic.Pointer[state] // never nil
	keys  atomic.Uint64

	growing sync.Mutex // held while state is replaced
}

// state is what a reader sees: it is replaced as a whole and never changed,
// except for the bits inside the generations.
type state struct {
	complete bool
	gens     []*generation // newest first, at least one
}

// New returns an empty Set that is not complete yet. Fill it with Add and then
// call Complete.
func New(p Params) *Set {
	s := &Set{params: p.clamped(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	s.state.Store(&state{gens: []*generation{s.generation(0)}})
	return s
}

// generation returns an empty generation number i, counted from 0. Each has
// half the error rate of the one before and the first has half of the wanted
// rate, so that all of them together stay below it.
func (s *Set) generation(i int) *generation {
	capacity := uint64(MaxCapacity)
	if i < 32 && s.params.Capacity<<i < MaxCapacity {
		capacity = s.params.Capacity << i
	}
	return newGeneration(capacity, math.Ldexp(s.params.ErrorRate, -(i+1)))
}

// Complete says that every key of the set has been added. Before that, Test
// answers Maybe to everything.
func (s *Set) Complete() {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.state.Store(&state{complete: true, gens: s.state.Load().gens})
}

// Ready reports whether the set is complete.
func (s *Set) Ready() bool { return s.state.Load().complete }

// Test reports whether key is surely absent. It takes no lock and allocates
// nothing.
func (s *Set) Test(key [32]byte) Verdict {
	st := s.state.Load()
	if !st.complete {
		return Maybe
	}
	return st.test(s.hash(&key))
}

// Add puts key into the set. When it returns, Test answers Maybe for key, in
// every goroutine and for ever. Call it before the key's record can be seen.
func (s *Set) Add(key [32]byte) {
	a, b := s.hash(&key)
	st := s.state.Load()
	if st.test(a, b) == Maybe {
		return // and will be so for ever: bits are never cleared, generations never dropped
	}
	newest := st.gens[0]
	newest.set(a, b)
	s.keys.Add(1)
	if newest.full() {
		s.grow(newest)
	}
}

// grow puts a generation in front of full, unless another goroutine has done so.
func (s *Set) grow(full *generation) {
	s.growing.Lock()
	defer s.growing.Unlock()
	st := s.state.Load()
	if st.gens[0] != full {
		return
	}
	gens := make([]*generation, 0, len(st.gens)+1)
	gens = append(gens, s.generation(len(st.gens)))
	gens = append(gens, st.gens...)
	s.state.Store(&state{complete: st.complete, gens: gens})
}

func (st *state) test(a, b uint64) Verdict {
	for _, g := range st.gens {
		if g.test(a, b) {
			return Maybe
		}
	}
	return Absent
}

// hash returns the two words from which the positions of key are derived. The
// second is odd, so that no step of the double hashing is zero.
func (s *Set) hash(key *[32]byte) (a, b uint64) {
	return maphash.Bytes(s.seeds[0], key[:]), maphash.Bytes(s.seeds[1], key[:]) | 1
}
