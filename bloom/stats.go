package bloom

// Keys returns how many keys were added that were not in the set before. A key
// that was taken for present by mistake is not counted.
func (s *Set) Keys() uint64 { return s.keys.Load() }

// Fill returns the share of ones, between 0 and 1, in the generation that takes
// the keys now. At 0.5 it is full.
func (s *Set) Fill() float64 { return s.state.Load().gens[0].fill() }

// Generations returns the number of generations. More than four or five cost
// time in every Test: make the next Set with a larger capacity.
func (s *Set) Generations() int { return len(s.state.Load().gens) }

// Bytes returns the memory that the bits take.
func (s *Set) Bytes() int {
	n := 0
	for _, g := range s.state.Load().gens {
		n += 8 * len(g.words)
	}
	return n
}

// EstimatedErrorRate returns the share of absent keys that Test is expected to
// answer Maybe, computed from the fill of each generation. It is 1 while the set
// is not complete.
func (s *Set) EstimatedErrorRate() float64 {
	st := s.state.Load()
	if !st.complete {
		return 1
	}
	right := 1.0
	for _, g := range st.gens {
		right *= 1 - g.errorRate()
	}
	return 1 - right
}
