package bloom

import (
	"math/rand/v2"
	"slices"
	"testing"

	library "github.com/bits-and-blooms/bloom/v3"
)

func (g *generation) positions(h Hash) []uint64 { return h.Positions(nil, g.m, int(g.k)) }

func small(capacity uint64, errorRate float64) *generation {
	return newGeneration(size(capacity, errorRate))
}

// TestSameAnswersAsTheLibrary wraps our words with the library and compares the
// answers: same bits set, same verdicts, present and absent.
func TestSameAnswersAsTheLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	g := small(2000, 0.01)
	ref := library.FromWithM(make([]uint64, len(g.words)), uint(g.m), uint(g.k))
	view := library.FromWithM(g.words, uint(g.m), uint(g.k))
	for range 2000 {
		h := Hash{rng.Uint64(), rng.Uint64() | 1}
		g.set(h)
		for _, p := range g.positions(h) {
			ref.BitSet().Set(uint(p))
		}
	}
	if !slices.Equal(g.words, ref.BitSet().Words()) {
		t.Fatal("the words differ from those of the library")
	}
	if got, want := g.ones.Load(), uint64(ref.BitSet().Count()); got != want {
		t.Errorf("%d ones counted, %d set", got, want)
	}
	for range 200_000 {
		h := Hash{rng.Uint64(), rng.Uint64() | 1}
		if got, want := g.has(h), view.TestLocations(g.positions(h)); got != want {
			t.Fatalf("%x: %v, the library says %v", h, got, want)
		}
	}
}

func TestWrapRefusesPositionsOutsideTheWords(t *testing.T) {
	for _, tc := range []struct {
		words int
		m, k  uint64
		ok    bool
	}{
		{2, 128, 3, true}, {2, 1, 1, true}, {2, 129, 3, false}, {2, 0, 3, false}, {2, 128, 0, false}, {0, 0, 1, false},
		{2, 128, maxK, true}, {2, 128, maxK + 1, false},
	} {
		func() {
			defer func() {
				if ok := recover() == nil; ok != tc.ok {
					t.Errorf("%+v accepted: %v", tc, ok)
				}
			}()
			wrap(make([]uint64, tc.words), tc.m, tc.k)
		}()
	}
}

// TestEveryBitCounts clears one bit after another: the key must then be denied,
// so no position is computed and ignored.
func TestEveryBitCounts(t *testing.T) {
	for _, k := range []uint64{1, 2, 3, 11} {
		g := newGeneration(1<<14, k)
		h := Hash{0x0123456789abcdef, 0xfedcba9876543211}
		g.set(h)
		for _, p := range g.positions(h) {
			g.words[p/wordBits] &^= 1 << (p % wordBits)
			if g.has(h) {
				t.Errorf("k=%d: the key is still found with bit %d cleared", k, p)
			}
			g.words[p/wordBits] |= 1 << (p % wordBits)
		}
		if !g.has(h) {
			t.Errorf("k=%d: the key is denied with all its bits set", k)
		}
	}
}

// A generation is half full at its capacity, knows that capacity, and its size is
// what whole cache lines need for it.
func TestSizeIsForItsCapacity(t *testing.T) {
	for _, capacity := range []uint64{MinCapacity, 5000, 1 << 20, 1e8, MaxCapacity} {
		for _, rate := range []float64{MaxErrorRate / 2, 0.005, DefaultErrorRate / 2, MinErrorRate / 2, minBudget} {
			m, k := size(capacity, rate)
			g := generation{m: m, k: k}
			if m%lineBits != 0 || k < 1 || k > maxK {
				t.Fatalf("%d keys at %g: m %d, k %d", capacity, rate, m, k)
			}
			if got := g.capacity(); got < capacity*995/1000 || got > capacity*1005/1000+lineBits/k {
				t.Errorf("%d keys at %g: a capacity of %d", capacity, rate, got)
			}
		}
	}
}
