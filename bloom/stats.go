package bloom

import (
	"math"
	"sync/atomic"
)

// stripes spread the counts of tests over cache lines, so that readers on many
// processors do not wait for one another. A key's stripe comes from its hash.
const stripes = 8

// counts are those of a Set since it was made.
type counts struct {
	tests [stripes]tests

	confirmed      atomic.Uint64
	falsePositives atomic.Uint64

	rebuilds, aborted  atomic.Uint64
	scrubbed, repaired atomic.Uint64

	window atomic.Pointer[window] // where observation began; nil is the start
}

type tests struct {
	absent, maybe, notReady atomic.Uint64

	_ [40]byte // to the end of the cache line
}

// window is what had been counted when the observation of the error rate began.
type window struct{ absent, falsePositives uint64 }

func (c *counts) of(h Hash) *tests { return &c.tests[h.A%stripes] }

func (c *counts) total() (absent, maybe, notReady uint64) {
	for i := range c.tests {
		absent += c.tests[i].absent.Load()
		maybe += c.tests[i].maybe.Load()
		notReady += c.tests[i].notReady.Load()
	}
	return absent, maybe, notReady
}

// observe begins the observation of the error rate anew.
func (c *counts) observe() {
	absent, _, _ := c.total()
	c.window.Store(&window{absent, c.falsePositives.Load()})
}

// observed returns the absent keys that were tested since the observation began,
// and how many of them were answered Maybe.
func (c *counts) observed() (tested, wrong uint64) {
	absent, _, _ := c.total()
	wrong = c.falsePositives.Load()
	if w := c.window.Load(); w != nil {
		absent, wrong = absent-w.absent, wrong-w.falsePositives
	}
	return absent + wrong, wrong
}

// Confirm tells what came of a Maybe of a complete set: whether the store had the
// key. The observed error rate comes from it.
func (s *Set) Confirm(found bool) {
	if found {
		s.counts.confirmed.Add(1)
	} else {
		s.counts.falsePositives.Add(1)
	}
}

// Stats are figures of a Set. Counts are since it was made; they are read one
// after another, while others count on.
type Stats struct {
	Ready       bool
	Keys        uint64  // added and not in the set before, as far as it could tell
	Generations int     // of which the base is one
	Bytes       uint64  // memory of the bits, of a base that is being rebuilt too
	Fill        float64 // share of ones in the generation that takes keys; 0.5 is full
	BaseFill    float64 // share of ones in the base

	// EstimatedErrorRate is the share of absent keys that are answered Maybe, by
	// the fill of each generation; 1 while everything is.
	EstimatedErrorRate float64
	// ObservedErrorRate is the share that were, by Confirm, of all absent keys that
	// were tested since the base was made; 0 if there were none.
	ObservedErrorRate float64
	// Suspect says that the observed rate is more than twice the estimated one,
	// and not by chance: a wrong secret, a broken filter, or somebody who searches
	// for keys that it takes for present.
	Suspect bool
	// Degraded says that more keys came than there may be memory for, or
	// generations while the owner does not rebuild. The error rate rises with each
	// key; nothing is denied.
	Degraded bool
	// Damaged says that bits were wrong, or are set because nobody knows them. A
	// rebuild mends it.
	Damaged bool

	Absent, Maybe, NotReady   uint64 // verdicts; NotReady are those of a set that was not Ready
	Confirmed, FalsePositives uint64 // by Confirm

	Rebuilding               bool
	Rebuilds, RebuildsFailed uint64 // bases swapped in; bases that denied a stored key
	Scrubbed, Repaired       uint64 // keys looked at by Scrub; keys that were denied, which must stay 0
}

// Stats returns the figures of the set.
func (s *Set) Stats() Stats {
	st := s.state.Load()
	_, _, mayGrow := s.params.following(st)
	out := Stats{
		Ready: st.exact(), Keys: st.keys(), Generations: len(st.gens), Bytes: st.bytes(),
		Fill: st.gens[0].fill(), BaseFill: st.base().fill(), EstimatedErrorRate: st.errorRate(),
		Degraded: st.gens[0].full() && !mayGrow, Damaged: s.damaged(), Rebuilding: st.next != nil,
		Confirmed: s.counts.confirmed.Load(), FalsePositives: s.counts.falsePositives.Load(),
		Rebuilds: s.counts.rebuilds.Load(), RebuildsFailed: s.counts.aborted.Load(),
		Scrubbed: s.counts.scrubbed.Load(), Repaired: s.counts.repaired.Load(),
	}
	out.Absent, out.Maybe, out.NotReady = s.counts.total()
	if tested, wrong := s.counts.observed(); tested > 0 {
		out.ObservedErrorRate = float64(wrong) / float64(tested)
		out.Suspect = suspect(float64(tested), float64(wrong), out.EstimatedErrorRate)
	}
	return out
}

// suspect reports whether wrong of tested is more than twice the estimated rate
// and five standard deviations beyond it. The fill only grows while one base is
// observed, so that the rate now is the highest there was.
func suspect(tested, wrong, estimated float64) bool {
	expected := 2 * estimated * tested
	return wrong > expected+5*math.Sqrt(expected)+5
}

// damaged reports whether a rebuild would mend anything.
func (s *Set) damaged() bool { return s.Denied() || s.padded.Load() }

// Keys returns how many keys were added that were not in the set before. A key
// that was taken for present by mistake is not counted.
func (s *Set) Keys() uint64 { return s.state.Load().keys() }

// Fill returns the share of ones, between 0 and 1, in the generation that takes
// the keys now. At 0.5 it is full.
func (s *Set) Fill() float64 { return s.state.Load().gens[0].fill() }

// Generations returns the number of generations. More than four or five cost
// time in every Test: make the next Set with a larger capacity.
func (s *Set) Generations() int { return len(s.state.Load().gens) }

// Bytes returns the memory that the bits take, those of a base that is being
// rebuilt among them.
func (s *Set) Bytes() int { return int(s.state.Load().bytes()) }

// EstimatedErrorRate returns the share of absent keys that Test is expected to
// answer Maybe, computed from the fill of each generation. It is 1 while the set
// is not Ready.
func (s *Set) EstimatedErrorRate() float64 { return s.state.Load().errorRate() }

func (st *state) base() *generation { return st.gens[len(st.gens)-1] }

func (st *state) keys() (n uint64) {
	for _, g := range st.gens {
		n += g.keys.Load()
	}
	return n
}

func (st *state) errorRate() float64 {
	if !st.exact() {
		return 1
	}
	right := 1.0
	for _, g := range st.gens {
		right *= 1 - g.errorRate()
	}
	return 1 - right
}
