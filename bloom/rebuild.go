package bloom

import (
	"iter"

	"github.com/verae/archive/internal/fault"
)

const (
	rebuildFill = 0.45      // of the base, at which a larger one is wanted
	largeBase   = 100 << 20 // keys, above which a base grows by half and not to twice its size
	// spare is how much larger than the keys it gets a base under MaxBytes has to
	// be: one that is full when it is swapped in would be rebuilt at once.
	spare = 1.25
)

// Rebuild is a new base of a Set while it is filled. It is not asked until it is
// swapped in, so that a rebuild that fails or is given up costs nothing but time.
//
// The owner, who has a store with a committer,
//
//  1. calls Set.StartRebuild on the goroutine of the committer, between two
//     batches: no key is then in Set.Add, or added and not yet in the store;
//  2. only then takes an iterator over the store;
//  3. gives AddHash every key of the store, on any goroutine;
//  4. calls Swap.
//
// What the store had at the second step comes by the third, and what came later
// is added to both bases by Set.Add. A key that is added before the first step
// and committed after the second is in neither: that is why the committer
// begins it.
type Rebuild struct {
	set *Set
	gen *generation
}

// NeedsRebuild reports whether a new base is wanted, and for how many keys: the
// base is nearly full, there are other generations beside it, its bits are
// damaged, or it was made for another error rate. It is false while one is being
// rebuilt, while the set is not complete, and where MaxBytes leaves no room. An
// owner who knows of more keys gives StartRebuild the larger number: a set that
// is degraded takes new keys for known ones and does not count them.
func (s *Set) NeedsRebuild() (capacity uint64, needed bool) {
	st := s.state.Load()
	if st.next != nil || !st.complete {
		return 0, false
	}
	base, n := st.base(), st.keys()
	_, k := size(base.capacity(), s.params.budget(0))
	if base.fill() < rebuildFill && len(st.gens) == 1 && base.k == k && !s.damaged() {
		return 0, false
	}
	capacity = 2 * n
	if n > largeBase {
		capacity = n + n/2
	}
	capacity = min(max(capacity, s.params.Capacity), MaxCapacity)
	_, _, ok := s.params.newBase(st, capacity)
	return capacity, ok
}

// newBase returns the size of a new base beside those of st, which is false if
// MaxBytes leaves too little room for one.
func (p Params) newBase(st *state, capacity uint64) (m, k uint64, ok bool) {
	m, k = size(min(max(capacity, MinCapacity), MaxCapacity), p.budget(0))
	if p.MaxBytes == 0 || st.bytes()+m/8 <= p.MaxBytes {
		return m, k, true
	}
	m = (p.MaxBytes - min(st.bytes(), p.MaxBytes)) / (lineBits / 8) * lineBits
	g := generation{m: m, k: k}
	return m, k, m > 0 && float64(g.capacity()) >= spare*float64(st.keys())
}

// StartRebuild begins a new base for so many keys; NeedsRebuild says how many.
// From its return on Set.Add adds to both bases. It is called when no Add is
// under way and every key that was added is in the store, or is never going to
// be.
//
// It fails with REBUILDING if a rebuild is under way, and with FILTER_MEMORY if
// MaxBytes leaves no room for a base that would be better.
func (s *Set) StartRebuild(capacity uint64) (*Rebuild, error) {
	r := &Rebuild{set: s}
	var err error
	s.change(func(st *state) bool {
		m, k, ok := s.params.newBase(st, capacity)
		switch {
		case st.next != nil:
			err = fault.New(fault.Conflict, "REBUILDING", "bloom: the base is being rebuilt; cancel that first")
		case !ok:
			err = fault.New(fault.Conflict, "FILTER_MEMORY", "bloom: %d of %d bytes are in use, which leaves too little for a base of %d keys; allow more memory", st.bytes(), s.params.MaxBytes, capacity)
		default:
			r.gen = newGeneration(m, k)
			st.next = r.gen
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// AddHash puts the keys with these hashes into the new base. Many goroutines may
// do so at once; many keys in one call take half of the time.
func (r *Rebuild) AddHash(hashes ...Hash) { r.gen.setAll(hashes) }

// Swap makes the new base the only generation, and the set complete. Before that
// it looks for the keys whose hashes are in sample, which must be in the store, and
// if the new base denies one, gives up with REBUILD_DENIES: the set stays as it is, and the
// owner, who has reason to be alarmed, starts over. It fails with REBUILD_OVER if the
// rebuild was swapped in or cancelled before.
func (r *Rebuild) Swap(sample iter.Seq[Hash]) error {
	for h := range sample {
		if h.B |= 1; !r.gen.has(h) {
			r.Cancel()
			r.set.counts.aborted.Add(1)
			return fault.New(fault.Corrupt, "REBUILD_DENIES", "bloom: the new base denies the key with hash %016x, which is stored; rebuild it again", h.A)
		}
	}
	err := error(fault.New(fault.Conflict, "REBUILD_OVER", "bloom: this rebuild has ended"))
	r.set.change(func(st *state) bool {
		if st.next != r.gen {
			return false
		}
		*st, err = state{complete: true, gens: []*generation{r.gen}}, nil
		r.set.padded.Store(false)
		r.set.counts.rebuilds.Add(1)
		return true
	})
	if err == nil {
		r.set.counts.observe()
	}
	return err
}

// Cancel gives the rebuild up. It does nothing after Swap.
func (r *Rebuild) Cancel() {
	r.set.change(func(st *state) bool {
		if st.next != r.gen {
			return false
		}
		st.next = nil
		return true
	})
}

// setAll sets the bits of keys, a lane at a time: asked of the memory, then set.
func (g *generation) setAll(hashes []Hash) {
	for len(hashes) > 0 {
		n := min(len(hashes), lane)
		for _, h := range hashes[:n] {
			h.B |= 1
			g.fetch(h)
		}
		for _, h := range hashes[:n] {
			h.B |= 1
			g.set(h)
		}
		hashes = hashes[n:]
	}
}
