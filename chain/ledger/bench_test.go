package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

var million = flag.Bool("million", false, "run the lookup benchmark on a ledger of a million leaves, too")

func onDisk(b *testing.B) *Ledger {
	cfg := Config{Dir: b.TempDir(), FS: vfs.Default}
	initLedger(b, cfg)
	return openLedger(b, cfg)
}

// number makes a fresh digest; the process id is not in it, since every
// benchmark has a directory of its own.
func number(n uint64) wire.Digest {
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte("bench"), n))
}

func entry(n uint64) chain.Entry {
	return chain.Entry{Digest: number(n), JobID: wire.NewJobID(), SubmissionID: wire.NewSubmissionID()}
}

// quantiles reports p50 and p99 of latencies.
func quantiles(b *testing.B, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
}

// run has the given number of clients do work until n operations are done, and
// returns the time each took and the time all took.
func run(clients, n int, work func(i uint64) error) (each []time.Duration, total time.Duration, err error) {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next atomic.Uint64
	)
	began := time.Now()
	for range min(clients, n) {
		wg.Go(func() {
			var mine []time.Duration
			for {
				i := next.Add(1) - 1
				if i >= uint64(n) {
					break
				}
				at := time.Now()
				if werr := work(i); werr != nil {
					mu.Lock()
					err = werr
					mu.Unlock()
					break
				}
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			each = append(each, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	return each, time.Since(began), err
}

// BenchmarkRegisterWithReceipt: a new digest in, durable, certificate in hand.
// The limit is Pebble alone, committing rows of the same keys and sizes with
// Sync from as many clients.
func BenchmarkRegisterWithReceipt(b *testing.B) {
	for _, clients := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			l := onDisk(b)
			bare, err := pebblex.Open(pebblex.Options{Dir: b.TempDir(), Create: true})
			if err != nil {
				b.Fatal(err)
			}
			defer bare.Close()
			var seq atomic.Uint64
			limit := func(n int) float64 {
				_, total, err := run(clients, n, func(uint64) error { return commitBare(bare, seq.Add(1)) })
				if err != nil {
					b.Fatal(err)
				}
				return float64(n) / total.Seconds()
			}
			var offset uint64
			var all []time.Duration
			var rates, limits float64
			b.ResetTimer()
			const rounds = 4 // alternate with the limit: the disk is shared
			for round := range rounds {
				n := max(b.N/rounds, 1)
				if round == 0 {
					n = max(b.N-(rounds-1)*n, 1)
				}
				each, total, err := run(clients, n, func(i uint64) error {
					seals, err := l.Register(b.Context(), []chain.Entry{entry(offset + i)})
					if err != nil {
						return err
					}
					_, err = l.Certificate(b.Context(), seals[0])
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				offset += uint64(n)
				all = append(all, each...)
				rates += float64(n) / total.Seconds() / rounds
				limits += limit(n) / rounds
				b.StartTimer()
			}
			b.StopTimer()
			quantiles(b, all)
			b.ReportMetric(rates, "receipts/s")
			b.ReportMetric(limits, "limit/s")
			b.ReportMetric(rates/limits, "ratio")
		})
	}
}

func commitBare(db *pebble.DB, n uint64) error {
	batch := db.NewBatch()
	defer batch.Close()
	key := func(prefix byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{prefix}, n) }
	d := number(n)
	for _, row := range []struct {
		key  []byte
		size int
	}{{key('e', n), 99}, {key('t', 2*n), 32}, {key('t', 2*n+1), 32}, {append([]byte{'h'}, d[:]...), 101}, {key('b', n), 600}} {
		if err := batch.Set(row.key, make([]byte, row.size), nil); err != nil {
			return err
		}
	}
	return batch.Commit(pebble.Sync)
}

// BenchmarkLookupToCertificate: from a digest to its whole receipt, on ledgers
// of several sizes. The limit is one Pebble get of a seal row.
func BenchmarkLookupToCertificate(b *testing.B) {
	sizes := []int{10_000, 100_000}
	if *million {
		sizes = append(sizes, 1_000_000)
	}
	for _, size := range sizes {
		for _, call := range []int{1, 256} {
			if call == 1 && size > 10_000 && !*million {
				continue
			}
			b.Run(fmt.Sprintf("leaves=%d/call=%d", size, call), func(b *testing.B) {
				l := onDisk(b)
				grow(b, l, size, call)
				var all []time.Duration
				rng := rand.New(rand.NewPCG(1, 2))
				for b.Loop() {
					d := number(rng.Uint64N(uint64(size)))
					at := time.Now()
					s, ok, err := l.Lookup(b.Context(), d)
					if err != nil || !ok {
						b.Fatal(ok, err)
					}
					if _, err := l.Certificate(b.Context(), s); err != nil {
						b.Fatal(err)
					}
					all = append(all, time.Since(at))
				}
				quantiles(b, all)
			})
		}
	}
}

func BenchmarkLookupMiss(b *testing.B) {
	const size = 100_000
	l := onDisk(b)
	grow(b, l, size, 256)
	rng := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		if _, ok, err := l.Lookup(b.Context(), number(1<<40+rng.Uint64())); ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// grow registers size digests in calls of the given number of entries.
func grow(b *testing.B, l *Ledger, size, call int) {
	b.Helper()
	_, _, err := run(4*runtime.GOMAXPROCS(0), (size+call-1)/call, func(i uint64) error {
		var entries []chain.Entry
		for n := i * uint64(call); n < min((i+1)*uint64(call), uint64(size)); n++ {
			entries = append(entries, entry(n))
		}
		_, err := l.Register(b.Context(), entries)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}
