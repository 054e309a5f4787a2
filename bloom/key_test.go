package bloom

import (
	"encoding/binary"
	"math/rand/v2"
)

// key returns the n-th of a sequence of well-spread keys.
func key(n uint64) (k [32]byte) {
	rng := rand.NewPCG(n, 0x9e3779b97f4a7c15)
	for i := 0; i < len(k); i += 8 {
		binary.LittleEndian.PutUint64(k[i:], rng.Uint64())
	}
	return k
}

func filled(p Params, n uint64) *Set {
	s := New(p)
	for i := range n {
		s.Add(key(i))
	}
	s.Complete()
	return s
}
