package bloom

import "math"

const (
	maxOverflow = 2       // generations beside the base, where the owner rebuilds it
	minBudget   = 0x1p-60 // of a generation; it needs maxK positions at most
)

// budget returns the error rate of generation i, counted from the base. Each has
// half of the one before and the base has half of the wanted rate, so that all of
// them together stay below it.
func (p Params) budget(i int) float64 { return max(math.Ldexp(p.ErrorRate, -(i+1)), minBudget) }

// following returns the size of the generation that would follow those of st. It
// is false if none may: then the newest one goes on taking keys.
func (p Params) following(st *state) (m, k uint64, ok bool) {
	n := len(st.gens)
	capacity := 2 * st.gens[0].capacity()
	if p.Rebuilds {
		capacity = st.gens[n-1].capacity() / 4
		if n > maxOverflow {
			return 0, 0, false
		}
	}
	m, k = size(min(max(capacity, MinCapacity), MaxCapacity), p.budget(n))
	return m, k, p.MaxBytes == 0 || st.bytes()+m/8 <= p.MaxBytes
}

// grow puts a generation in front of full, unless another goroutine has done so
// or none may follow.
func (s *Set) grow(full *generation) {
	st := s.state.Load()
	if _, _, ok := s.params.following(st); !ok || st.gens[0] != full {
		return // asked without the lock: a degraded set asks at every key
	}
	s.change(func(st *state) bool {
		m, k, ok := s.params.following(st)
		if !ok || st.gens[0] != full {
			return false
		}
		st.gens = append([]*generation{newGeneration(m, k)}, st.gens...)
		return true
	})
}

// bytes returns the memory that the bits take.
func (st *state) bytes() (n uint64) {
	for _, g := range st.gens {
		n += g.bytes()
	}
	if st.next != nil {
		n += st.next.bytes()
	}
	return n
}
