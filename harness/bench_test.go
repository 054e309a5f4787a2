package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// syncsOfAHash is how many commits of a disk a pure hash waits for, one after
// the other: the submission's, the ledger's, the end's.
const syncsOfAHash = 3

// BenchmarkWait is POST /zapier/v1/timestamp/wait of a new hash without
// attachments, over HTTP, against real processes. Beside p50 and p99 it prints
// the limit: the time that this disk needs for the commits such a request waits
// for, measured in the same run.
func BenchmarkWait(b *testing.B) {
	w := benchWorld(b)
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			sync := medianSync(b)
			took := make([]time.Duration, b.N)
			each(b, clients, func(c *client.Client, i int) {
				begin := time.Now()
				outcome, err := c.Stamp(b.Context(), client.Submission{SHA256: unique()})
				if err != nil || outcome.Job == nil {
					b.Errorf("%+v, %v", outcome, err)
				}
				took[i] = time.Since(begin)
			}, w)
			report(b, took, syncsOfAHash*sync)
		})
	}
}

// BenchmarkLookup is GET /zapier/v1/receipts of a hash with one attachment on
// two of three archives, beside a GET that asks nobody.
func BenchmarkLookup(b *testing.B) {
	w := benchWorld(b)
	c := w.Client("acme")
	outcome, err := c.Stamp(b.Context(), client.Submission{Data: []byte("document"), PublicMetadata: []byte(`{"n":1}`)})
	if err != nil || outcome.Job == nil {
		b.Fatal(outcome, err)
	}
	floor := make([]time.Duration, 200)
	for i := range floor {
		begin := time.Now()
		if _, err := c.Archives(b.Context()); err != nil {
			b.Fatal(err)
		}
		floor[i] = time.Since(begin)
	}
	took := make([]time.Duration, b.N)
	each(b, 1, func(c *client.Client, i int) {
		begin := time.Now()
		if _, err := c.Receipts(b.Context(), outcome.Job.SHA256); err != nil {
			b.Error(err)
		}
		took[i] = time.Since(begin)
	}, w)
	report(b, took, quantile(floor, 0.5))
}

// BenchmarkStart is the time from nothing but a directory with data until
// three archives take records, in processes of their own.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	cycle := func() {
		w, err := world.Start(b.Context(), world.Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		stopWorld(b, w)
		b.StartTimer()
	}
	cycle() // makes the directory
	b.ResetTimer()
	for range b.N {
		cycle()
	}
}

// BenchmarkUploadMemory sends one file of 1 GiB and reports the highest
// resident size of the aggregator above its idle size, in MB. The limit is 64.
func BenchmarkUploadMemory(b *testing.B) {
	w := benchWorld(b)
	pid := readyPID(b, w.Ready())
	const size = 1 << 30
	for range b.N {
		idle := resident(b, pid)
		var peak atomic.Int64
		done := make(chan struct{})
		var watcher sync.WaitGroup
		watcher.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
					peak.Store(max(peak.Load(), resident(b, pid)))
				}
			}
		})
		zeros := client.File{Name: "zeros", Open: func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(pattern{}, size)), nil }}
		if _, err := w.Client("acme").Stamp(b.Context(), client.Submission{Files: []client.File{zeros}}); err != nil {
			b.Fatal(err)
		}
		close(done)
		watcher.Wait()
		b.SetBytes(size)
		b.ReportMetric(float64(peak.Load()-idle)/1e6, "MB-above-idle")
		b.ReportMetric(64, "MB-limit")
	}
}

// pattern is an endless file that is not all zeros.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * 7)
	}
	return len(p), nil
}

func benchWorld(b *testing.B) *world.World {
	b.Helper()
	w, err := world.Start(b.Context(), world.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stopWorld(b, w) })
	return w
}

func stopWorld(b testing.TB, w *world.World) {
	b.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := w.Stop(ctx); err != nil {
		b.Error(err)
	}
}

// each runs fn b.N times from several clients of both tenants.
func each(b *testing.B, clients int, fn func(*client.Client, int), w *world.World) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range clients {
		c := w.Client([]wire.TenantID{"acme", "globex"}[i%2])
		wg.Go(func() {
			for n := int(next.Add(1)) - 1; n < b.N; n = int(next.Add(1)) - 1 {
				fn(c, n)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// report prints quantiles, the limit and the ratio of p50 to it.
func report(b *testing.B, took []time.Duration, limit time.Duration) {
	b.Helper()
	p50 := quantile(took, 0.5)
	b.ReportMetric(float64(p50.Microseconds()), "p50-us")
	b.ReportMetric(float64(quantile(took, 0.99).Microseconds()), "p99-us")
	b.ReportMetric(float64(limit.Microseconds()), "limit-us")
	b.ReportMetric(float64(p50)/float64(limit), "p50/limit")
}

func quantile(d []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// medianSync is what a small append and its fsync take on this disk.
func medianSync(b *testing.B) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	took := make([]time.Duration, 200)
	for i := range took {
		begin := time.Now()
		if _, err := f.Write(make([]byte, 512)); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(begin)
	}
	return quantile(took, 0.5)
}

var uniqueness atomic.Int64

// unique is a digest that nobody has sealed.
func unique() wire.Digest {
	return sum(fmt.Append(nil, time.Now().UnixNano(), uniqueness.Add(1)))
}

func readyPID(b testing.TB, r world.Ready) int {
	b.Helper()
	pid, err := aggregatorPID(r)
	if err != nil {
		b.Fatal(err)
	}
	return pid
}

// resident is the resident size of a process in bytes.
func resident(b *testing.B, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Error(err)
	}
	return kb << 10
}
