package bloom

import "math/bits"

// lane is how many keys are hashed before the first of them is looked for. Hashing
// keeps the processor from asking the memory for the next key's words; after it
// the words of all keys in a lane are asked for at once.
const lane = 16

// TestBatch appends to dst what Test says of each key, in their order, and
// returns it. It allocates nothing if dst has room. A batch costs about half of
// as many calls of Test.
func (s *Set) TestBatch(dst []Verdict, keys [][32]byte) []Verdict {
	for len(keys) > 0 {
		n := min(len(keys), lane)
		dst = s.testLane(dst, keys[:n])
		keys = keys[n:]
	}
	return dst
}

func (s *Set) testLane(dst []Verdict, keys [][32]byte) []Verdict {
	var hashes [lane]Hash
	for i := range keys {
		hashes[i] = hash(s.k0, s.k1, &keys[i])
	}
	st, count := s.state.Load(), s.counts.of(hashes[0])
	if !st.exact() {
		count.notReady.Add(uint64(len(keys)))
		for range keys {
			dst = append(dst, Maybe)
		}
		return dst
	}
	found := st.hasLane(hashes[:len(keys)])
	n := uint64(bits.OnesCount32(found))
	count.maybe.Add(n)
	count.absent.Add(uint64(len(keys)) - n)
	for i := range keys {
		verdict := Absent
		if found>>i&1 != 0 {
			verdict = Maybe
		}
		dst = append(dst, verdict)
	}
	return dst
}

// hasLane returns a bit for each hash that is found.
func (st *state) hasLane(hashes []Hash) (found uint32) {
	for _, g := range st.gens {
		var perhaps uint32
		for i, h := range hashes {
			if g.mayHave(h) {
				perhaps |= 1 << i
			}
		}
		for perhaps &^= found; perhaps != 0; perhaps &= perhaps - 1 {
			i := bits.TrailingZeros32(perhaps)
			if g.has(hashes[i]) {
				found |= 1 << i
			}
		}
	}
	return found
}
