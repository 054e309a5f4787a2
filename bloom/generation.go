package bloom

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	library "github.com/bits-and-blooms/bloom/v3"
)

const wordBits = 64

// generation is one filter of fixed size: m bits, k of them for each key.
type generation struct {
	words []uint64 // read and written with atomic operations only
	m     uint64
	k     uint64
	ones  atomic.Uint64 // bits set; too high by a few if goroutines raced for one
}

// headroom is the share of bits that a generation has above the number at which
// it would be half full with exactly the keys it was made for.
const headroom = 1.02

// newGeneration returns an empty filter that takes capacity keys before it is
// full and is wrong at no more than errorRate when it is.
func newGeneration(capacity uint64, errorRate float64) *generation {
	m, k := library.EstimateParameters(uint(capacity), errorRate)
	// The library rounds k up. With more positions a key sets more bits, so the
	// filter has to be larger to be half full at its capacity.
	m = max(m, uint(math.Ceil(headroom*float64(capacity)*float64(k)/math.Ln2)))
	words := make([]uint64, (m+wordBits-1)/wordBits)
	return wrap(words, uint64(len(words))*wordBits, uint64(k))
}

// wrap checks what every access relies on: a position past the words would be a
// crash here, and silently "absent" in the library.
func wrap(words []uint64, m, k uint64) *generation {
	if m == 0 || k == 0 || m > uint64(len(words))*wordBits {
		panic(fmt.Sprintf("bloom: %d bits with %d positions do not fit %d words", m, k, len(words)))
	}
	return &generation{words: words, m: m, k: k}
}

// step moves the double hashing on: the position is the high half of a*m, which
// spreads evenly over m without a division, and b grows so that two keys with
// equal a and b modulo m do not share all positions.
func step(a, b, m, i uint64) (position, nextA, nextB uint64) {
	position, _ = bits.Mul64(a, m)
	return position, a + b, b + i
}

// test reports whether all bits of the key with hashes a and b are set.
func (g *generation) test(a, b uint64) bool {
	var p uint64
	for i := range g.k {
		p, a, b = step(a, b, g.m, i)
		if atomic.LoadUint64(&g.words[p/wordBits])&(1<<(p%wordBits)) == 0 {
			return false
		}
	}
	return true
}

// set sets all bits of the key with hashes a and b. The result of OrUint64 is
// ignored on purpose: using it would compile to a loop instead of one
// instruction, and the load before it spares most writes.
func (g *generation) set(a, b uint64) {
	var p, fresh uint64
	for i := range g.k {
		p, a, b = step(a, b, g.m, i)
		word, bit := &g.words[p/wordBits], uint64(1)<<(p%wordBits)
		if atomic.LoadUint64(word)&bit == 0 {
			atomic.OrUint64(word, bit)
			fresh++
		}
	}
	g.ones.Add(fresh)
}

// full reports whether half of the bits are set. Counting bits and not keys
// holds the error rate even against keys that were chosen to set many.
func (g *generation) full() bool { return g.ones.Load() >= g.m/2 }

func (g *generation) fill() float64 { return min(float64(g.ones.Load())/float64(g.m), 1) }

func (g *generation) errorRate() float64 { return math.Pow(g.fill(), float64(g.k)) }
