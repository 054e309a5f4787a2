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

func TestIncompleteSetAnswersMaybe(t *testing.T) {
	s := New(Params{})
	s.Add(key(1))
	if got := s.Test(key(2)); got != Maybe || s.Ready() || s.EstimatedErrorRate() != 1 {
		t.Errorf("before Complete: verdict %d, ready %v, error rate %v", got, s.Ready(), s.EstimatedErrorRate())
	}
	if got := s.TestBatch(nil, [][32]byte{key(2), key(3)}); len(got) != 2 || got[0] != Maybe || got[1] != Maybe {
		t.Errorf("before Complete: verdicts %d", got)
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
	n := uint64(500_000)
	if testing.Short() {
		n = 50_000
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

// TestBatchAgreesWithTest compares verdicts over several generations, for batches
// of every length up to two lanes and more.
func TestBatchAgreesWithTest(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity, ErrorRate: 0.1}, 5000)
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 3*lane + 2 {
		keys := make([][32]byte, n)
		for i := range keys {
			keys[i] = key(rng.Uint64N(10_000)) // half of them are there
		}
		before := s.Stats()
		got := s.TestBatch([]Verdict{Absent}, keys)
		after := s.Stats()
		if len(got) != n+1 || got[0] != Absent {
			t.Fatalf("%d verdicts for %d keys after one that was there", len(got), n)
		}
		maybe := uint64(0)
		for i, k := range keys {
			want := s.Test(k)
			if got[i+1] != want {
				t.Fatalf("key %d of %d: %d in a batch, %d alone", i, n, got[i+1], want)
			}
			if want == Maybe {
				maybe++
			}
		}
		if m, a := after.Maybe-before.Maybe, after.Absent-before.Absent; m != maybe || a != uint64(n)-maybe {
			t.Errorf("%d keys, %d perhaps: counted %d and %d", n, maybe, m, a)
		}
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
	params := func(capacity uint64, rate float64) Params { return Params{Capacity: capacity, ErrorRate: rate} }
	for _, tc := range []struct{ in, want Params }{
		{Params{}, params(DefaultCapacity, DefaultErrorRate)},
		{params(1, 1), params(MinCapacity, MaxErrorRate)},
		{params(MinCapacity, MaxErrorRate), params(MinCapacity, MaxErrorRate)},
		{params(math.MaxUint64, 1e-300), params(MaxCapacity, MinErrorRate)},
		{params(5000, -1), params(5000, MinErrorRate)},
		{params(5000, math.NaN()), params(5000, DefaultErrorRate)},
		{params(5000, math.Inf(1)), params(5000, MaxErrorRate)},
	} {
		if got := tc.in.clamped(); got != tc.want {
			t.Errorf("%d keys at %g became %d at %g", tc.in.Capacity, tc.in.ErrorRate, got.Capacity, got.ErrorRate)
		}
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

func TestTestsDoNotAllocate(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity}, 5000)
	n := uint64(0)
	keys := make([][32]byte, 2*lane+1)
	verdicts := make([]Verdict, 0, len(keys))
	if got := testing.AllocsPerRun(1000, func() {
		for i := range keys {
			n++
			binary.LittleEndian.PutUint64(keys[i][:], n)
		}
		s.Test(keys[0])
		s.TestHash(s.Hash(keys[1]))
		verdicts = s.TestBatch(verdicts[:0], keys)
	}); got != 0 {
		t.Errorf("%v allocations a call", got)
	}
}
