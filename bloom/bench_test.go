package bloom

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	library "github.com/bits-and-blooms/bloom/v3"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/need"
)

// The target of BenchmarkMiss is 0 allocations and a small part of the 2 us in
// which an archive handles a query it has nothing for.
func BenchmarkMiss(b *testing.B) {
	for _, n := range []uint64{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			s := filled(Params{Capacity: n}, n)
			b.ReportAllocs()
			b.ResetTimer()
			var k [32]byte
			i := uint64(0)
			for b.Loop() {
				i++
				binary.LittleEndian.PutUint64(k[:], i)
				s.Test(k)
			}
			b.ReportMetric(float64(s.Bytes())/float64(n), "bytes/key")
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	s := New(Params{Capacity: 1 << 20})
	b.ReportAllocs()
	var k [32]byte
	i := uint64(0)
	for b.Loop() {
		i++
		binary.LittleEndian.PutUint64(k[:], i)
		s.Add(k)
	}
}

// rival is one way to do the same thing, timed in turns with the others.
type rival struct {
	name  string
	limit float64 // of the ratio to the first one
	run   func(keys [][32]byte)
	took  []float64 // ns a key
}

// race runs every rival on every piece of keys, and reports the median of each
// and its speed as a ratio to that of the first.
func race(b *testing.B, rivals []*rival, pieces func(func([][32]byte) bool)) {
	for piece := range pieces {
		for _, r := range rivals {
			began := time.Now()
			r.run(piece)
			r.took = append(r.took, float64(time.Since(began).Nanoseconds())/float64(len(piece)))
		}
	}
	for _, r := range rivals {
		slices.Sort(r.took)
		first, own := rivals[0].took, r.took
		p5, p50 := len(own)/20, len(own)/2
		b.Logf("%-16s p5 %4.0f ns, p50 %4.0f ns; %.2f x and %.2f x of %s (limit %.1f)",
			r.name, own[p5], own[p50], first[p5]/own[p5], first[p50]/own[p50], rivals[0].name, r.limit)
		b.ReportMetric(own[p50], r.name+"-ns")
		if r.limit > 0 {
			b.ReportMetric(first[p50]/own[p50], r.name+"-x")
		}
	}
}

// pieces yields count pieces of size keys each, from the given one on.
func pieces(from uint64, count, size int) func(func([][32]byte) bool) {
	return func(yield func([][32]byte) bool) {
		keys := make([][32]byte, size)
		for range count {
			for i := range keys {
				keys[i] = key(from)
				from++
			}
			if !yield(keys) {
				return
			}
		}
	}
}

// BenchmarkAgainstTheLibrary takes the library's own Add and Test as the limit,
// unkeyed and without a thought for other goroutines, at its best: a filter made
// for exactly as many keys as it gets. VERAE_LONG=true: 10 million keys.
func BenchmarkAgainstTheLibrary(b *testing.B) {
	n := need.Rounds(1_000_000, 10_000_000)
	const piece = 5_000
	ref := library.NewWithEstimates(uint(n), DefaultErrorRate)
	single := New(Params{Capacity: uint64(n)})
	batched := New(Params{Capacity: uint64(n)})
	single.Complete()
	batched.Complete()
	hits := 0
	verdicts := make([]Verdict, 0, piece)
	testLibrary := func(keys [][32]byte) {
		for i := range keys {
			if ref.Test(keys[i][:]) {
				hits++
			}
		}
	}
	testSingle := func(keys [][32]byte) {
		for i := range keys {
			if single.Test(keys[i]) == Maybe {
				hits++
			}
		}
	}
	testBatched := func(keys [][32]byte) {
		for chunk := range slices.Chunk(keys, lane) {
			verdicts = batched.TestBatch(verdicts[:0], chunk)
			for _, v := range verdicts {
				if v == Maybe {
					hits++
				}
			}
		}
	}
	b.Run("add", func(b *testing.B) {
		race(b, []*rival{
			{name: "library", run: func(keys [][32]byte) {
				for i := range keys {
					ref.Add(keys[i][:])
				}
			}},
			{name: "add", limit: 0.9, run: func(keys [][32]byte) {
				for i := range keys {
					single.Add(keys[i])
				}
			}},
			{name: "rebuild", limit: 0.9, run: func(keys [][32]byte) {
				var hashes [lane]Hash
				for chunk := range slices.Chunk(keys, lane) {
					for i := range chunk {
						hashes[i] = batched.Hash(chunk[i])
					}
					batched.state.Load().gens[0].setAll(hashes[:len(chunk)])
				}
			}},
		}, pieces(0, n/piece, piece))
		if single.Generations() != 1 {
			b.Errorf("%d generations", single.Generations())
		}
		b.ReportMetric(float64(single.Bytes())/float64(n), "bytes/key")
		b.ReportMetric(8*float64(len(ref.BitSet().Words()))/float64(n), "library-bytes/key")
	})
	rounds := need.Rounds(100, 200)
	for _, what := range []struct {
		name string
		from uint64
	}{{"miss", 1 << 40}, {"hit", 0}} {
		b.Run(what.name, func(b *testing.B) {
			race(b, []*rival{
				{name: "library", run: testLibrary},
				{name: "single", limit: 0.9, run: testSingle},
				{name: "batched", limit: 1.7, run: testBatched},
			}, pieces(what.from, rounds, piece))
		})
	}
	b.Logf("%d hits", hits)
}

// BenchmarkMissOfAGrownSet takes a filter of the right size as the limit of one
// that grew to as many keys, by itself or rebuilt by its owner.
func BenchmarkMissOfAGrownSet(b *testing.B) {
	n := uint64(need.Rounds(1_000_000, 10_000_000))
	right := filled(Params{Capacity: n}, n)
	doubled, rebuilt := New(Params{Capacity: MinCapacity}), New(Params{Capacity: MinCapacity, Rebuilds: true})
	doubled.Complete()
	rebuilt.Complete()
	for i := range n {
		doubled.Add(key(i))
		rebuilt.Add(key(i))
		capacity, needed := rebuilt.NeedsRebuild()
		if !needed {
			continue
		}
		r, err := rebuilt.StartRebuild(capacity)
		if err != nil {
			b.Fatal(err)
		}
		for h := range hashed(rebuilt, 0, i+1) {
			r.AddHash(h)
		}
		if err := r.Swap(hashed(rebuilt, 0, min(i+1, 1000))); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("%d generations doubled, %d rebuilt", doubled.Generations(), rebuilt.Generations())
	test := func(s *Set) func([][32]byte) {
		return func(keys [][32]byte) {
			for i := range keys {
				s.Test(keys[i])
			}
		}
	}
	race(b, []*rival{
		{name: "right-sized", run: test(right)},
		{name: "rebuilt", limit: 0.67, run: test(rebuilt)},
		{name: "doubled", run: test(doubled)},
	}, pieces(1<<40, 200, 5000))
	b.ReportMetric(float64(rebuilt.Bytes())/float64(n), "bytes/key")
}

// BenchmarkSnapshot saves a full base to a real disk and loads it again. The limit
// of a start after a clean stop is 200 ms with 10 million keys: VERAE_LONG=true.
func BenchmarkSnapshot(b *testing.B) {
	n := uint64(need.Rounds(1_000_000, 10_000_000))
	p := fleet
	p.Capacity = n
	s, dir, fs := filled(p, n), b.TempDir(), disk{vfs.Default}
	var saved, loaded []float64
	for b.Loop() {
		began := time.Now()
		if err := s.Save(fs, dir, mark(n)); err != nil {
			b.Fatal(err)
		}
		saved = append(saved, time.Since(began).Seconds()*1000)
		began = time.Now()
		got, r, err := Load(fs, dir, p, storeOf(n))
		if err != nil || r.Seq != n {
			b.Fatalf("%+v, %v", r, err)
		}
		got.Complete()
		loaded = append(loaded, time.Since(began).Seconds()*1000)
	}
	slices.Sort(saved)
	slices.Sort(loaded)
	b.ReportMetric(saved[len(saved)/2], "save-ms")
	b.ReportMetric(loaded[len(loaded)/2], "load-ms")
	b.ReportMetric(float64(s.Bytes())/float64(n), "bytes/key")
	b.Logf("%d keys: saved in %.0f ms, loaded in %.0f ms (limit for 10 million: 200 ms)", n, saved[len(saved)/2], loaded[len(loaded)/2])
}
