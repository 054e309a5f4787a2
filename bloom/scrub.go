package bloom

// Scrub looks for keys that are in the store, given by their hashes, and adds those
// again that the set denies. It returns how many there were: more than none means that memory rots,
// or that a key was stored and not added. Then other keys may be denied too, so
// that NeedsRebuild asks for a new base, and until there is one Test answers Maybe
// to everything and no snapshot is made. A set that is not complete denies
// nothing and is left alone.
//
// An owner walks through the keys of his store with it, slowly and for ever.
func (s *Set) Scrub(hashes ...Hash) (denied int) {
	st := s.state.Load()
	if !st.complete {
		return 0
	}
	for _, h := range hashes {
		h.B |= 1
		if st.has(h) || s.state.Load().has(h) { // asked twice: it may be newer than st
			continue
		}
		s.counts.repaired.Add(1) // first: who sees the set right again sees what it denied
		s.AddHash(h)
		s.change(func(st *state) bool {
			first := !st.doubted
			st.doubted = true
			return first
		})
		denied++
	}
	s.counts.scrubbed.Add(uint64(len(hashes)))
	return denied
}
