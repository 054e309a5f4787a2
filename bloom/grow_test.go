package bloom

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/verae/archive/internal/need"
)

// wrong returns how many of so many absent keys are answered Maybe.
func wrong(s *Set, probes int) int {
	n := 0
	keys := make([][32]byte, lane)
	var verdicts []Verdict
	for from := 0; from < probes; from += lane {
		for i := range keys {
			keys[i] = key(1<<40 + uint64(from+i))
		}
		verdicts = s.TestBatch(verdicts[:0], keys)
		for _, v := range verdicts {
			if v == Maybe {
				n++
			}
		}
	}
	return n
}

// TestErrorRateHoldsThroughGrowth measures the error rate at every power of ten,
// of a set that doubles by itself and of one that is rebuilt: at most 1.2 times
// the wanted one. VERAE_LONG=true: up to ten million keys.
func TestErrorRateHoldsThroughGrowth(t *testing.T) {
	last := uint64(need.Rounds(1_000_000, 10_000_000))
	if testing.Short() {
		last = 10_000
	}
	for _, rebuilds := range []bool{false, true} {
		s := New(Params{Capacity: MinCapacity, Rebuilds: rebuilds})
		s.Complete()
		next := uint64(1000)
		for n := uint64(1); n <= last; n++ {
			s.Add(key(n))
			if n&0x1ff == 0 && rebuilds {
				rebuildIfNeeded(t, s, n)
			}
			if n != next {
				continue
			}
			next *= 10
			probes := need.Rounds(200_000, 2_000_000)
			got, stats := wrong(s, probes), s.Stats()
			// A fifth above the wanted rate, and five standard deviations for chance.
			want := float64(probes) * DefaultErrorRate
			if limit := 1.2*want + 5*math.Sqrt(want); float64(got) > limit {
				t.Errorf("rebuilds %v, %d keys: %d of %d wrong, limit %.0f", rebuilds, n, got, probes, limit)
			}
			if stats.EstimatedErrorRate > DefaultErrorRate || stats.Degraded {
				t.Errorf("rebuilds %v, %d keys: estimated %v, degraded %v", rebuilds, n, stats.EstimatedErrorRate, stats.Degraded)
			}
			t.Logf("rebuilds %v, %d keys: %.4f %% observed, %.4f %% estimated, %d generations, %.2f bytes a key",
				rebuilds, n, 100*float64(got)/float64(probes), 100*stats.EstimatedErrorRate, stats.Generations, float64(stats.Bytes)/float64(n))
		}
	}
}

// TestChosenKeysDoNotRaiseTheErrorRate pollutes the filter: keys that are
// counters, and keys chosen by somebody who knows bits and secret so that each
// sets as many new bits as can be found. Sealed by fill, it is as seldom wrong
// as ever.
func TestChosenKeysDoNotRaiseTheErrorRate(t *testing.T) {
	var counter [32]byte
	for name, next := range map[string]func(*Set) [32]byte{
		"counters": func(*Set) [32]byte {
			binary.BigEndian.PutUint64(counter[24:], binary.BigEndian.Uint64(counter[24:])+1)
			return counter
		},
		"greedy": func(s *Set) (best [32]byte) {
			g, most := s.state.Load().gens[0], -1
			for range 10 {
				binary.BigEndian.PutUint64(counter[24:], binary.BigEndian.Uint64(counter[24:])+1)
				fresh := 0
				for _, p := range g.positions(s.Hash(counter)) {
					if g.words[p/wordBits]>>(p%wordBits)&1 == 0 {
						fresh++
					}
				}
				if fresh > most {
					best, most = counter, fresh
				}
			}
			return best
		},
	} {
		const capacity, rate, probes = 10_000, 0.01, 200_000
		s := New(Params{Capacity: capacity, ErrorRate: rate, Secret: Secret{ID: 1, Key: reference}})
		s.Complete()
		for range capacity {
			s.Add(next(s))
		}
		if got := float64(wrong(s, probes)); got > probes*rate+5*math.Sqrt(probes*rate) || s.EstimatedErrorRate() > rate {
			t.Errorf("%s: %.0f of %d wrong, estimated %v", name, got, probes, s.EstimatedErrorRate())
		}
		if s.state.Load().base().fill() > 0.501 {
			t.Errorf("%s: the base was filled to %v", name, s.state.Load().base().fill())
		}
	}
}

// TestGenerationIsFullBeyondItsCapacity: a set that was made for n keys takes n
// keys in one generation, at no more than two bytes a key.
func TestGenerationIsFullBeyondItsCapacity(t *testing.T) {
	for _, rate := range []float64{MaxErrorRate, 0.01, DefaultErrorRate, MinErrorRate} {
		n := uint64(100_000)
		if testing.Short() {
			n = 10_000
		}
		s := filled(Params{Capacity: n, ErrorRate: rate}, n)
		if s.Generations() != 1 || s.Fill() < 0.4 {
			t.Errorf("rate %v: %d generations, fill %v", rate, s.Generations(), s.Fill())
		}
		for i := range n {
			s.Add(key(n + i))
		}
		if s.Generations() != 2 {
			t.Errorf("rate %v, twice the capacity: %d generations, want 2", rate, s.Generations())
		}
	}
	if m, _ := size(10_000_000, DefaultErrorRate/2); float64(m)/8 > 2.0*10_000_000 {
		t.Errorf("%v bytes a key", float64(m)/8/10_000_000)
	}
}

// Where the owner rebuilds there are two small generations at most. Beyond them
// the youngest takes every key, the error rate shows it, and nothing is denied.
func TestOverflowIsBoundedAndShows(t *testing.T) {
	const n = 8 * MinCapacity
	s := New(Params{Capacity: 4 * MinCapacity, Rebuilds: true})
	s.Complete()
	for i := range uint64(n) {
		s.Add(key(i))
		if stats := s.Stats(); i < 5*MinCapacity && stats.Degraded || stats.Generations > 3 {
			t.Fatalf("%d keys: %d generations, degraded %v", i+1, stats.Generations, stats.Degraded)
		}
	}
	stats := s.Stats()
	if stats.Generations != 3 || !stats.Degraded || stats.EstimatedErrorRate < 2*DefaultErrorRate {
		t.Errorf("%d generations, degraded %v, estimated %v", stats.Generations, stats.Degraded, stats.EstimatedErrorRate)
	}
	const probes = 100_000
	if got := float64(wrong(s, probes)) / probes; got > 1.2*stats.EstimatedErrorRate || got < stats.EstimatedErrorRate/1.2 {
		t.Errorf("observed %v, estimated %v", got, stats.EstimatedErrorRate)
	}
	denied(t, s, n)
}

// denied fails for each of the first n keys that the set denies.
func denied(t *testing.T, s *Set, n uint64) {
	t.Helper()
	for i := range n {
		if s.Test(key(i)) != Maybe {
			t.Fatalf("key %d of %d is denied", i, n)
		}
	}
}

func TestMemoryIsCappedAndNothingDenied(t *testing.T) {
	for _, limit := range []uint64{1, 64, 1000, 4096, 20_000} {
		for _, rebuilds := range []bool{false, true} {
			s := New(Params{Capacity: MinCapacity, MaxBytes: limit, Rebuilds: rebuilds})
			s.Complete()
			const n = 12_000
			for i := range uint64(n) {
				s.Add(key(i))
			}
			stats := s.Stats()
			if stats.Bytes > max(limit, lineBits/8) || !stats.Degraded || stats.EstimatedErrorRate < 2*DefaultErrorRate {
				t.Errorf("limit %d, rebuilds %v: %d bytes, degraded %v, estimated %v", limit, rebuilds, stats.Bytes, stats.Degraded, stats.EstimatedErrorRate)
			}
			denied(t, s, n)
		}
	}
}
