package bloom

// setAll sets the bits of keys, a lane at a time: hashed, then asked of the
// memory, then set.
func (g *generation) setAll(k0, k1 uint64, keys [][32]byte) {
	var hashes [lane]Hash
	for len(keys) > 0 {
		n := min(len(keys), lane)
		for i := range n {
			hashes[i] = hash(k0, k1, &keys[i])
		}
		for i := range n {
			g.fetch(hashes[i])
		}
		for i := range n {
			g.set(hashes[i])
		}
		keys = keys[n:]
	}
}
