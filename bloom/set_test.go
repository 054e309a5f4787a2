package bloom

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// key returns the n-th of a sequence of well-spread keys.
func key(n uint64) (k [32]byte) {
	rng := rand.New(rand.NewPCG(n, 0x9e3779b97f4a7c15))
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

func TestIncompleteSetAnswersMaybe(t *testing.T) {
	s := New(Params{})
	s.Add(key(1))
	if got := s.Test(key(2)); got != Maybe || s.Ready() || s.EstimatedErrorRate() != 1 {
		t.Errorf("before Complete: verdict %d, ready %v, error rate %v", got, s.Ready(), s.EstimatedErrorRate())
	}
	s.Complete()
	if got := s.Test(key(2)); got != Absent || !s.Ready() {
		t.Errorf("after Complete: verdict %d, ready %v", got, s.Ready())
	}
	if got := s.Test(key(1)); got != Maybe {
		t.Error("after Complete the key that was added is denied")
	}
	var undecided Verdict
	if undecided != Maybe {
		t.Error("the zero verdict is not Maybe")
	}
}

func TestNoFalseNegativeThroughGrowth(t *testing.T) {
	n := uint64(1_000_000)
	if testing.Short() {
		n = 100_000
	}
	s := New(Params{Capacity: MinCapacity})
	s.Complete()
	for i := range n {
		s.Add(key(i))
		if s.Test(key(i)) != Maybe {
			t.Fatalf("key %d is denied right after it was added", i)
		}
	}
	for i := range n {
		if s.Test(key(i)) != Maybe {
			t.Fatalf("key %d of %d is denied", i, n)
		}
	}
	if s.Generations() < 6 {
		t.Errorf("%d generations: the filter did not grow", s.Generations())
	}
}

// TestErrorRateHoldsThroughGrowth measures the error rate at every doubling.
func TestErrorRateHoldsThroughGrowth(t *testing.T) {
	const probes = 100_000
	for _, want := range []float64{0.05, 0.01, 0.001} {
		s := New(Params{Capacity: MinCapacity, ErrorRate: want})
		s.Complete()
		next := uint64(500)
		for n := range uint64(50_000) {
			s.Add(key(n))
			if n != next {
				continue
			}
			next *= 2
			wrong := 0
			for i := range uint64(probes) {
				if s.Test(key(1<<40+i)) == Maybe {
					wrong++
				}
			}
			// Five standard deviations above the wanted rate.
			limit := probes*want + 5*math.Sqrt(probes*want)
			if float64(wrong) > limit {
				t.Errorf("rate %v, %d keys: %d of %d wrong, limit %.0f", want, n, wrong, probes, limit)
			}
			if e := s.EstimatedErrorRate(); e > want {
				t.Errorf("rate %v, %d keys: estimated %v", want, n, e)
			}
		}
	}
}

func TestChosenKeysDoNotSaturate(t *testing.T) {
	s := New(Params{Capacity: MinCapacity})
	s.Complete()
	for i := range uint64(10 * MinCapacity) { // counters, not digests
		var k [32]byte
		binary.BigEndian.PutUint64(k[24:], i)
		s.Add(k)
	}
	if s.Fill() > 0.51 || s.EstimatedErrorRate() > DefaultErrorRate {
		t.Errorf("fill %v, estimated error rate %v", s.Fill(), s.EstimatedErrorRate())
	}
}

func TestAddOfAKnownKeyChangesNothing(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity}, 1000)
	keys, fill := s.Keys(), s.Fill()
	for i := range uint64(1000) {
		s.Add(key(i))
	}
	if s.Keys() != keys || s.Fill() != fill {
		t.Errorf("keys %d -> %d, fill %v -> %v", keys, s.Keys(), fill, s.Fill())
	}
	if keys < 990 || keys > 1000 {
		t.Errorf("%d keys counted of 1000", keys)
	}
}

func TestParamsAreClamped(t *testing.T) {
	for _, tc := range []struct{ in, want Params }{
		{Params{}, Params{DefaultCapacity, DefaultErrorRate}},
		{Params{1, 1}, Params{MinCapacity, MaxErrorRate}},
		{Params{MinCapacity, MaxErrorRate}, Params{MinCapacity, MaxErrorRate}},
		{Params{math.MaxUint64, 1e-300}, Params{MaxCapacity, MinErrorRate}},
		{Params{5000, -1}, Params{5000, MinErrorRate}},
		{Params{5000, math.NaN()}, Params{5000, DefaultErrorRate}},
		{Params{5000, math.Inf(1)}, Params{5000, MaxErrorRate}},
	} {
		if got := tc.in.clamped(); got != tc.want {
			t.Errorf("%+v became %+v, want %+v", tc.in, got, tc.want)
		}
	}
}

// TestGenerationIsFullBeyondItsCapacity: a set that was made for n keys takes n
// keys in one generation.
func TestGenerationIsFullBeyondItsCapacity(t *testing.T) {
	for _, rate := range []float64{MaxErrorRate, 0.01, DefaultErrorRate, MinErrorRate} {
		const n = 100_000
		s := filled(Params{Capacity: n, ErrorRate: rate}, n)
		if s.Generations() != 1 || s.Fill() < 0.4 {
			t.Errorf("rate %v: %d generations, fill %v", rate, s.Generations(), s.Fill())
		}
		for i := range uint64(n) {
			s.Add(key(n + i))
		}
		if s.Generations() != 2 {
			t.Errorf("rate %v, twice the capacity: %d generations, want 2", rate, s.Generations())
		}
	}
}

func TestGenerationsStayWithinBounds(t *testing.T) {
	s := &Set{params: Params{Capacity: MinCapacity, ErrorRate: MaxErrorRate}}
	before := 0
	for i := range 5 {
		g := s.generation(i)
		if len(g.words) <= before {
			t.Errorf("generation %d has %d words, the one before %d", i, len(g.words), before)
		}
		before = len(g.words)
	}
}

// TestSetBehavesLikeASet compares with a map under random operations.
func TestSetBehavesLikeASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Params{Capacity: MinCapacity, ErrorRate: 0.01})
		model := map[[32]byte]bool{}
		keyGen := rapid.Custom(func(t *rapid.T) (k [32]byte) {
			copy(k[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
			return k
		})
		t.Repeat(map[string]func(*rapid.T){
			"add":      func(t *rapid.T) { k := keyGen.Draw(t, "k"); s.Add(k); model[k] = true },
			"complete": func(*rapid.T) { s.Complete() },
			"grow": func(*rapid.T) {
				if s.Generations() < 5 { // each doubles the memory
					s.grow(s.state.Load().gens[0])
				}
			},
			"": func(t *rapid.T) {
				for k := range model {
					if s.Test(k) != Maybe {
						t.Fatalf("key %x is denied", k)
					}
				}
			},
		})
	})
}

// TestReadersBesideWriters is BL-03: eight writers and eight readers, and a key
// is known the moment its Add returned. It is worth most under -race.
func TestReadersBesideWriters(t *testing.T) {
	const writers, each = 8, 2_000
	s := New(Params{Capacity: MinCapacity})
	s.Complete()
	var added [writers]atomic.Uint64
	var stop atomic.Bool
	var adding, reading sync.WaitGroup
	for w := range writers {
		adding.Go(func() {
			for i := range uint64(each) {
				s.Add(key(uint64(w)<<32 + i))
				added[w].Store(i + 1)
			}
		})
		reading.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for !stop.Load() {
				from := rng.IntN(writers)
				n := added[from].Load()
				if n == 0 {
					continue
				}
				if s.Test(key(uint64(from)<<32+rng.Uint64N(n))) != Maybe {
					t.Error("a key is denied although its Add had returned")
					return
				}
			}
		})
	}
	adding.Wait()
	stop.Store(true)
	reading.Wait()
}

func TestTestDoesNotAllocate(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity}, 5000)
	n := uint64(0)
	var k [32]byte
	if got := testing.AllocsPerRun(1000, func() {
		n++
		binary.LittleEndian.PutUint64(k[:], n)
		s.Test(k)
	}); got != 0 {
		t.Errorf("%v allocations a call", got)
	}
}
