package bloom

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/dchest/siphash"
)

// Secret is the key under which positions are derived. Every filter that is
// stored or sent belongs to one secret, which a fleet shares.
type Secret struct {
	// ID names the secret in stored and sent filters. 0 stands for no secret of a
	// fleet: then a Set makes one of its own and is neither stored nor sent.
	ID uint32
	// Key is not to be known to clients. Whoever has it and the bits of a filter
	// can search for keys that it takes for present; no answer becomes wrong.
	Key [16]byte
}

// Format writes the id, never the key, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "filter secret %08x", s.ID) }

// words returns the key as SipHash takes it, and a key of this process for no
// secret.
func (s Secret) words() (k0, k1 uint64) {
	if s.ID == 0 {
		_, _ = rand.Read(s.Key[:]) // it never fails
	}
	return binary.LittleEndian.Uint64(s.Key[:8]), binary.LittleEndian.Uint64(s.Key[8:])
}

// Hash is all that a filter needs to know of a key. It is the same for every
// filter under one secret. B is odd, so that no step from one position to the
// next is zero.
type Hash struct{ A, B uint64 }

// HashKey returns the hash of key under secret: the two little-endian words of
// SipHash-2-4-128, the second with its lowest bit set. Golden vectors freeze it.
func HashKey(secret [16]byte, key [32]byte) Hash {
	k0, k1 := binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])
	return hash(k0, k1, &key)
}

func hash(k0, k1 uint64, key *[32]byte) Hash {
	a, b := siphash.Hash128(k0, k1, key[:])
	return Hash{a, b | 1}
}

// Positions appends to dst the k positions of the key with hash h in a filter of
// m bits, and returns it.
func (h Hash) Positions(dst []uint64, m uint64, k int) []uint64 {
	for i := range uint64(max(k, 0)) {
		var p uint64
		p, h = h.step(m, i)
		dst = append(dst, p)
	}
	return dst
}

// step returns position i and the hash that the next one comes from: the
// position is the high half of A*m, which spreads evenly over m without a
// division, and B grows so that two keys with equal A and B modulo m do not share
// all positions.
func (h Hash) step(m, i uint64) (position uint64, next Hash) {
	position, _ = bits.Mul64(h.A, m)
	return position, Hash{h.A + h.B, h.B + i}
}
