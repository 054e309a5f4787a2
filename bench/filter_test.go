package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/FastFilter/xorfilter"
	library "github.com/bits-and-blooms/bloom/v3"
	"github.com/greatroar/blobloom"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/need"
)

const (
	errorRate = 0.001
	piece     = 5_000 // keys that are timed together
	lane      = 16    // keys of a TestBatch
)

// A contender is one filter. Those that take 64 bits instead of a key get the
// first eight bytes of it, which costs them no hash, and leaves a client who
// chooses keys free to choose positions.
type contender struct {
	name  string
	add   func(keys [][32]byte) // nil: it is built at once and takes no more
	has   func(keys [][32]byte) (perhaps int)
	bytes int

	added, absent, present []float64 // ns a key, of each piece
	perhaps, missed        int       // absent keys not denied, and present ones that were
}

// contenders returns empty filters for n keys, the limit first.
func contenders(n int) []*contender {
	// Two of ours: the words that one test has read are in the cache for the other.
	single, batched := newOurs(n), newOurs(n)
	ref := library.NewWithEstimates(uint(n), errorRate)
	blob := blobloom.NewOptimized(blobloom.Config{Capacity: uint64(n), FPRate: errorRate})
	shared := blobloom.NewSyncOptimized(blobloom.Config{Capacity: uint64(n), FPRate: errorRate})
	bits, _ := blobloom.Optimize(blobloom.Config{Capacity: uint64(n), FPRate: errorRate})
	verdicts := make([]bloom.Verdict, 0, lane)
	return []*contender{
		{
			name: "bits-and-blooms", bytes: int(ref.Cap() / 8),
			add: each(func(k *[32]byte) { ref.Add(k[:]) }),
			has: count(func(k *[32]byte) bool { return ref.Test(k[:]) }),
		},
		{
			name: "ours, Test", bytes: single.Bytes(),
			add: each(func(k *[32]byte) { single.Add(*k) }),
			has: count(func(k *[32]byte) bool { return single.Test(*k) == bloom.Maybe }),
		},
		{
			name: "ours, TestBatch", bytes: batched.Bytes(),
			add: each(func(k *[32]byte) { batched.Add(*k) }),
			has: func(keys [][32]byte) (n int) {
				for some := range slices.Chunk(keys, lane) {
					for _, v := range batched.TestBatch(verdicts[:0], some) {
						if v == bloom.Maybe {
							n++
						}
					}
				}
				return n
			},
		},
		{
			name: "blobloom", bytes: int(blob.NumBits() / 8),
			add: each(func(k *[32]byte) { blob.Add(head(k)) }),
			has: count(func(k *[32]byte) bool { return blob.Has(head(k)) }),
		},
		{
			name: "blobloom, Sync", bytes: int(bits / 8),
			add: each(func(k *[32]byte) { shared.Add(head(k)) }),
			has: count(func(k *[32]byte) bool { return shared.Has(head(k)) }),
		},
	}
}

func newOurs(n int) *bloom.Set {
	s := bloom.New(bloom.Params{Capacity: uint64(n), ErrorRate: errorRate, Secret: bloom.Secret{ID: 1}})
	s.Complete()
	return s
}

// fuse builds a filter of all keys, and returns how long that took a key.
func fuse[T xorfilter.Unsigned](b *testing.B, name string, bits int, all []uint64) *contender {
	began := time.Now()
	f, err := xorfilter.NewBinaryFuse[T](all)
	if err != nil {
		b.Fatal(err)
	}
	return &contender{
		name: name, bytes: len(f.Fingerprints) * bits / 8,
		has:   count(func(k *[32]byte) bool { return f.Contains(head(k)) }),
		added: []float64{float64(time.Since(began).Nanoseconds()) / float64(len(all))},
	}
}

func each(f func(*[32]byte)) func([][32]byte) {
	return func(keys [][32]byte) {
		for i := range keys {
			f(&keys[i])
		}
	}
}

func count(f func(*[32]byte) bool) func([][32]byte) int {
	return func(keys [][32]byte) (n int) {
		for i := range keys {
			if f(&keys[i]) {
				n++
			}
		}
		return n
	}
}

func head(key *[32]byte) uint64 { return binary.LittleEndian.Uint64(key[:]) }

// key returns the i-th of keys that look like SHA-256 digests.
func key(i uint64) (k [32]byte) {
	for at := 0; at < len(k); at += 8 {
		i += 0x9e3779b97f4a7c15 // splitmix64
		z := i
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(k[at:], z^z>>31)
	}
	return k
}

// keys yields pieces of keys from the given number on; step is from one to the
// next.
func keys(from, count, step int) func(func([][32]byte) bool) {
	return func(yield func([][32]byte) bool) {
		some := make([][32]byte, piece)
		for at := 0; at < count; at += piece {
			for i := range some {
				some[i] = key(uint64(from + (at+i)*step))
			}
			if !yield(some) {
				return
			}
		}
	}
}

func timed(took *[]float64, keys [][32]byte, f func([][32]byte)) {
	began := time.Now()
	f(keys)
	*took = append(*took, float64(time.Since(began).Nanoseconds())/float64(len(keys)))
}

func median(took []float64) float64 {
	if len(took) == 0 {
		return 0
	}
	took = slices.Sorted(slices.Values(took))
	return took[len(took)/2]
}

// BenchmarkFilters fills filters for a million keys, with VERAE_LONG=true ten
// million, with as many, asks all of them for two million absent keys and as many
// of those that are there, in turns, and prints a table. The limit is the Test of
// bits-and-blooms: ours is to reach 0.9 of its speed one at a time, and 1.7 of it
// in batches.
func BenchmarkFilters(b *testing.B) {
	n, probes := need.Rounds(1_000_000, 10_000_000), 2_000_000
	probes = min(probes, n)
	for b.Loop() {
		all := contenders(n)
		heads := make([]uint64, 0, n)
		for some := range keys(0, n, 1) {
			for _, c := range all {
				if c.add != nil {
					timed(&c.added, some, c.add)
				}
			}
			for i := range some {
				heads = append(heads, head(&some[i]))
			}
		}
		all = append(all, fuse[uint8](b, "fuse, 8 bits", 8, heads), fuse[uint16](b, "fuse, 16 bits", 16, heads))
		for some := range keys(n, probes, 1) {
			for _, c := range all {
				timed(&c.absent, some, func(some [][32]byte) { c.perhaps += c.has(some) })
			}
		}
		for some := range keys(0, probes, n/probes) {
			for _, c := range all {
				timed(&c.present, some, func(some [][32]byte) { c.missed += len(some) - c.has(some) })
			}
		}
		report(b, all, n, probes)
	}
}

func report(b *testing.B, all []*contender, n, probes int) {
	limit := all[0]
	var table strings.Builder
	table.WriteString("\n| filter | add | absent | ratio | present | ratio | bytes a key | wrong |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		if c.missed > 0 {
			b.Errorf("%s denies %d of its keys", c.name, c.missed)
		}
		table.WriteString(fmt.Sprintf("| %s | %.0f ns | %.0f ns | %.2f | %.0f ns | %.2f | %.2f | %.4f %% |\n", c.name, median(c.added),
			median(c.absent), median(limit.absent)/median(c.absent), median(c.present), median(limit.present)/median(c.present),
			float64(c.bytes)/float64(n), 100*float64(c.perhaps)/float64(probes)))
	}
	b.Logf("%d keys%s", n, table.String())
	b.ReportMetric(median(limit.absent), "ns-limit")
	b.ReportMetric(median(limit.absent)/median(all[1].absent), "x-limit-0.9")
	b.ReportMetric(median(limit.absent)/median(all[2].absent), "x-limit-1.7-batched")
}

// BenchmarkStored times what a filter as a whole takes: a new base for all keys
// beside a set that is asked and added to, against filling another library's new
// filter, and a snapshot of it with checksums, from and to memory, against theirs
// without.
func BenchmarkStored(b *testing.B) {
	n := need.Rounds(1_000_000, 10_000_000)
	set, ref := newOurs(n), library.NewWithEstimates(uint(n), errorRate)
	var rebuild, fill, save, load, refSave, refLoad time.Duration
	for b.Loop() {
		next, err := set.StartRebuild(uint64(n))
		if err != nil {
			b.Fatal(err)
		}
		hashes := make([]bloom.Hash, piece)
		for some := range keys(0, n, 1) {
			rebuild += clock(func() {
				for i := range some {
					hashes[i] = set.Hash(some[i])
				}
				next.AddHash(hashes...)
			})
			fill += clock(func() {
				for i := range some {
					ref.Add(some[i][:])
				}
			})
		}
		if err := next.Swap(slices.Values(hashes)); err != nil {
			b.Fatal(err)
		}
		file, theirs := room(2*n+1<<20), room(2*n+1<<20)
		save += clock(func() { must(b)(set.WriteSnapshotTo(file, bloom.Mark{Seq: 1})) })
		size := int64(file.Len())
		load += clock(func() {
			if _, got, err := bloom.ReadSnapshot(file, size, bloom.Params{Secret: bloom.Secret{ID: 1}}); err != nil || got.CorruptChunks != 0 {
				b.Fatal(got, err)
			}
		})
		refSave += clock(func() { must(b)(ref.WriteTo(theirs)) })
		refLoad += clock(func() { must(b)(new(library.BloomFilter).ReadFrom(io.Reader(theirs))) })
	}
	for _, m := range []struct {
		what        string
		ours, limit time.Duration
	}{{"rebuild", rebuild, fill}, {"save", save, refSave}, {"load", load, refLoad}} {
		b.ReportMetric(m.ours.Seconds()*1000/float64(b.N), "ms-"+m.what)
		b.ReportMetric(m.limit.Seconds()*1000/float64(b.N), "ms-"+m.what+"-limit")
		b.ReportMetric(m.ours.Seconds()/m.limit.Seconds(), "x-"+m.what)
	}
}

func clock(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// room returns a buffer whose memory is there already.
func room(size int) *bytes.Buffer {
	b := bytes.NewBuffer(bytes.Repeat([]byte{1}, size))
	b.Reset()
	return b
}

func must(b *testing.B) func(int64, error) {
	return func(_ int64, err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
}
