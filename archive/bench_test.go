package archive

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

func benchNode(b *testing.B) (*Node, Config) {
	b.Helper()
	c := Config{Dir: filepath.Join(b.TempDir(), "archive"), ID: "archive-a"}
	mustInit(b, c)
	return mustOpen(b, c), c
}

// benchRecord has a body of 416 bytes, as a small record of metadata.
func benchRecord(i uint64) wire.PutRecord {
	r := metadata(alice, digest(fmt.Sprint("bench ", i)), fmt.Sprintf(`{"n":"%0408d"}`, i))
	return r
}

// spread runs f for 0 to b.N-1 on a number of writers and returns the time.
func spread(b *testing.B, writers int, f func(i uint64) error) time.Duration {
	var next atomic.Uint64
	var wg sync.WaitGroup
	began := time.Now()
	for range writers {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= uint64(b.N) {
					return
				}
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkPut stores records durably from 1, 16 and 256 writers and, on the same
// disk right after, the same keys and values in a bare Pebble where each writer
// commits for itself with pebble.Sync. "x-bare" is the ratio of the rates; the
// target with 256 writers is 0.9.
func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			n, _ := benchNode(b)
			b.ResetTimer()
			took := spread(b, writers, func(i uint64) error {
				_, err := n.Put(context.Background(), wire.Put{PutID: wire.NewPutID(), Record: benchRecord(i)})
				return err
			})
			b.StopTimer()
			mustClose(b, n)
			bare := barePebble(b, writers)
			b.ReportMetric(float64(b.N)/took.Seconds(), "puts/s")
			b.ReportMetric(bare.Seconds()/took.Seconds(), "x-bare")
		})
	}
}

// BenchmarkBarePebble is the limit that BenchmarkPut is held against.
func BenchmarkBarePebble(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			took := barePebble(b, writers)
			b.ReportMetric(float64(b.N)/took.Seconds(), "puts/s")
		})
	}
}

// barePebble commits the keys and values of b.N records, one commit each.
func barePebble(b *testing.B, writers int) time.Duration {
	b.Helper()
	db, err := pebblex.Open(pebblex.Options{Dir: filepath.Join(b.TempDir(), "bare"), Create: true})
	if err != nil {
		b.Fatal(err)
	}
	took := spread(b, writers, func(i uint64) error {
		rec := benchRecord(i)
		id, _ := parsePutID(wire.NewPutID())
		e := envelope{archive: "archive-a", generation: 1, seq: i + 1, storedAt: int64(i), putID: id, hasPutID: true}
		data, err := encodeFrame(e, &rec, rec.ID(), rec.BodySHA256())
		if err != nil {
			return err
		}
		batch := db.NewBatch()
		if err := batch.Set(logKey(e.seq), data, nil); err != nil {
			return err
		}
		r := row{roles: roleSubject, id: rec.ID(), kind: rec.Kind, tenant: rec.TenantID}
		for _, at := range placesOf(&rec, rec.ID(), nil) {
			if err := batch.Set(indexKey(at.digest, e.seq), r.encode(), nil); err != nil {
				return err
			}
		}
		if err := batch.Set(putIDKey(id), putValue(e.seq, rec.ID()), nil); err != nil {
			return err
		}
		return batch.Commit(pebble.Sync)
	})
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkMiss is a query for which the archive has nothing. The limit, with
// decoding, is 2 us and 0 allocations.
func BenchmarkMiss(b *testing.B) {
	n, _ := benchNode(b)
	defer mustClose(b, n)
	for i := range uint64(1000) {
		mustPut(b, n, benchRecord(i))
	}
	text, err := wire.Encode(query(alice, digest("nothing")))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("answer", func(b *testing.B) {
		q := query(alice, digest("nothing"))
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := n.Answer(context.Background(), q); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("decode+absent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d, ok := wire.QueryDigest(text); !ok || !n.Absent(d) {
				b.Fatal(ok)
			}
		}
	})
}

// BenchmarkHit is a query for one record.
func BenchmarkHit(b *testing.B) {
	n, _ := benchNode(b)
	defer mustClose(b, n)
	const records = 10_000
	putAll(b, n, records)
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		r := digest(fmt.Sprint("bench ", i%records))
		if _, ok, err := n.Answer(context.Background(), query(alice, r)); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func putAll(b *testing.B, n *Node, records uint64) {
	b.Helper()
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < records; i = next.Add(1) - 1 {
				if _, err := n.Put(context.Background(), wire.Put{Record: benchRecord(i)}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkOpen opens an archive of 100,000 records that was closed in order:
// until it answers, and until its filter is complete.
func BenchmarkOpen(b *testing.B) {
	n, c := benchNode(b)
	const records = 100_000
	putAll(b, n, records)
	mustClose(b, n)
	var loaded time.Duration
	for b.Loop() {
		n, err := Open(c)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		began := time.Now()
		<-n.Loaded()
		loaded += time.Since(began)
		mustClose(b, n)
		b.StartTimer()
	}
	b.ReportMetric(loaded.Seconds()*1000/float64(b.N), "ms-to-filter")
	b.ReportMetric(records, "records")
}
