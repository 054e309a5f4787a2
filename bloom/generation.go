package bloom

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	library "github.com/bits-and-blooms/bloom/v3"
)

const (
	wordBits = 64
	lineBits = 512 // of a cache line; m is a multiple of it
	maxK     = 64
)

// generation is one filter of fixed size: m bits, k of them for each key.
type generation struct {
	words []uint64 // read and written with atomic operations only, once it is shared
	m     uint64
	k     uint64

	_    [64]byte      // readers of the above and writers of the below share no cache line
	ones atomic.Uint64 // bits set; too high by a few if goroutines raced for one
	keys atomic.Uint64 // keys that set a bit
}

// slack is the share of bits that a generation has above the number at which it
// would be half full with exactly the keys it was made for: for positions that
// coincide by chance, of which a small filter sees more or less.
func slack(capacity float64) float64 { return 1.003 + 1/math.Sqrt(capacity) }

// size returns how many bits, and how many positions a key, a filter has that
// takes capacity keys before half of its bits are ones and is then wrong at no
// more than errorRate.
func size(capacity uint64, errorRate float64) (m, k uint64) {
	_, hashes := library.EstimateParameters(uint(capacity), errorRate)
	// The library rounds the positions up. With more of them a key sets more bits,
	// so the filter has to be larger to be half full at its capacity.
	n, k := float64(capacity), min(max(uint64(hashes), 1), maxK)
	lines := math.Ceil(slack(n) * n * float64(k) / math.Ln2 / lineBits)
	return uint64(lines) * lineBits, k
}

// newGeneration returns an empty filter of m bits, which must be a multiple of lineBits.
func newGeneration(m, k uint64) *generation { return wrap(make([]uint64, m/wordBits), m, k) }

// wrap checks what every access relies on: a position past the words would be a
// crash here, and silently "absent" in the library.
func wrap(words []uint64, m, k uint64) *generation {
	if m == 0 || k == 0 || k > maxK || m > uint64(len(words))*wordBits {
		panic(fmt.Sprintf("bloom: %d bits with %d positions do not fit %d words", m, k, len(words)))
	}
	return &generation{words: words, m: m, k: k}
}

// capacity returns how many keys the generation takes before it is full.
func (g *generation) capacity() uint64 {
	n := float64(g.m) * math.Ln2 / float64(g.k)
	return uint64(n / slack(max(n, 1)))
}

// has reports whether all bits of the key with hash h are set.
func (g *generation) has(h Hash) bool {
	if !g.mayHave(h) {
		return false
	}
	var p uint64
	for i := range g.k {
		p, h = h.step(g.m, i)
		if atomic.LoadUint64(&g.words[p/wordBits])>>(p%wordBits)&1 == 0 {
			return false
		}
	}
	return true
}

// mayHave looks at the first two positions of a key only, which is enough for
// three of four absent keys. Both words are asked of the memory before one is
// looked at: a branch between them would make two waits of one.
func (g *generation) mayHave(h Hash) bool {
	p, _ := bits.Mul64(h.A, g.m)
	q, _ := bits.Mul64(h.A+h.B, g.m)
	u := atomic.LoadUint64(&g.words[p/wordBits]) >> (p % wordBits)
	v := atomic.LoadUint64(&g.words[q/wordBits]) >> (q % wordBits)
	return u&v&1 != 0 || g.k == 1
}

// fetch reads the words of a key, so that they are near when they are set: a loop
// that also looks at them would wait for each in turn.
func (g *generation) fetch(h Hash) (sum uint64) {
	var p uint64
	for i := range g.k {
		p, h = h.step(g.m, i)
		sum |= atomic.LoadUint64(&g.words[p/wordBits])
	}
	return sum
}

// set sets all bits of the key with hash h. The result of OrUint64 is ignored on
// purpose: using it would compile to a loop instead of one instruction, and the
// load before it spares most writes.
func (g *generation) set(h Hash) {
	g.fetch(h)
	var p, fresh uint64
	for i := range g.k {
		p, h = h.step(g.m, i)
		word, bit := &g.words[p/wordBits], uint64(1)<<(p%wordBits)
		if atomic.LoadUint64(word)&bit == 0 {
			atomic.OrUint64(word, bit)
			fresh++
		}
	}
	if fresh > 0 {
		g.ones.Add(fresh)
		g.keys.Add(1)
	}
}

func (g *generation) bytes() uint64 { return 8 * uint64(len(g.words)) }

// full reports whether half of the bits are set.
func (g *generation) full() bool { return g.ones.Load() >= g.m/2 }

func (g *generation) fill() float64 { return min(float64(g.ones.Load())/float64(g.m), 1) }

func (g *generation) errorRate() float64 { return math.Pow(g.fill(), float64(g.k)) }
