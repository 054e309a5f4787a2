package bloom

import (
	"math/rand/v2"
	"slices"
	"testing"

	library "github.com/bits-and-blooms/bloom/v3"
)

// positions lists what test and set walk through.
func (g *generation) positions(a, b uint64) []uint64 {
	var out []uint64
	var p uint64
	for i := range g.k {
		p, a, b = step(a, b, g.m, i)
		out = append(out, p)
	}
	return out
}

// TestSameAnswersAsTheLibrary wraps our words with the library and compares the
// answers: same bits set, same verdicts, present and absent.
func TestSameAnswersAsTheLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	g := newGeneration(2000, 0.01)
	ref := library.FromWithM(make([]uint64, len(g.words)), uint(g.m), uint(g.k))
	view := library.FromWithM(g.words, uint(g.m), uint(g.k))
	for range 2000 {
		a, b := rng.Uint64(), rng.Uint64()|1
		g.set(a, b)
		for _, p := range g.positions(a, b) {
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
		a, b := rng.Uint64(), rng.Uint64()|1
		if got, want := g.test(a, b), view.TestLocations(g.positions(a, b)); got != want {
			t.Fatalf("a=%x b=%x: %v, the library says %v", a, b, got, want)
		}
	}
}

// TestPositionsAreFrozen pins the derivation: filters that are stored or sent
// will depend on it.
func TestPositionsAreFrozen(t *testing.T) {
	g := wrap(make([]uint64, 16), 1000, 7)
	for _, tc := range []struct {
		a, b uint64
		want []uint64
	}{
		{0, 1, []uint64{0, 0, 0, 0, 0, 0, 0}},
		{1 << 63, 1<<60 + 1, []uint64{500, 562, 625, 687, 750, 812, 875}},
		{0xffffffffffffffff, 0x123456789abcdef1, []uint64{999, 71, 142, 213, 284, 355, 426}},
	} {
		if got := g.positions(tc.a, tc.b); !slices.Equal(got, tc.want) {
			t.Errorf("a=%x b=%x: %v, want %v", tc.a, tc.b, got, tc.want)
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
	g := newGeneration(1000, 0.001)
	a, b := uint64(0x0123456789abcdef), uint64(0xfedcba9876543211)
	g.set(a, b)
	for _, p := range g.positions(a, b) {
		g.words[p/wordBits] &^= 1 << (p % wordBits)
		if g.test(a, b) {
			t.Errorf("the key is still found with bit %d cleared", p)
		}
		g.words[p/wordBits] |= 1 << (p % wordBits)
	}
	if !g.test(a, b) {
		t.Error("the key is denied with all its bits set")
	}
}
