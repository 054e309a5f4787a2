package archive

import (
	"context"
	"errors"
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

// spread runs f for from to below to on a number of writers and returns the time.
func spread(b *testing.B, writers, from, to int, f func(i uint64) error) time.Duration {
	b.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	var wg sync.WaitGroup
	began := time.Now()
	for range writers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(to); i = next.Add(1) - 1 {
				if err := f(uint64(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkPut stores records durably from 1, 16 and 256 writers. In turns with
// it, so that both meet the same disk, the same keys and values go to a bare
// Pebble where each writer commits for itself with pebble.Sync. "x-bare" is the
// ratio of the two rates; the target with 256 writers is 0.9.
func BenchmarkPut(b *testing.B) {
	const turns = 8
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			n, _ := benchNode(b)
			bare, err := pebblex.Open(pebblex.Options{Dir: filepath.Join(b.TempDir(), "bare"), Create: true})
			if err != nil {
				b.Fatal(err)
			}
			var took, limit time.Duration
			b.ResetTimer()
			for turn := range turns {
				from, to := b.N*turn/turns, b.N*(turn+1)/turns
				took += spread(b, writers, from, to, func(i uint64) error {
					_, err := n.Put(context.Background(), wire.Put{PutID: wire.NewPutID(), Record: benchRecord(i)})
					return err
				})
				b.StopTimer()
				limit += spread(b, writers, from, to, func(i uint64) error { return barePut(bare, i) })
				b.StartTimer()
			}
			b.StopTimer()
			mustClose(b, n)
			if err := bare.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/took.Seconds(), "puts/s")
			b.ReportMetric(float64(b.N)/limit.Seconds(), "bare-puts/s")
			b.ReportMetric(limit.Seconds()/took.Seconds(), "x-bare")
		})
	}
}

// barePut commits the keys and values of a record by itself.
func barePut(db *pebble.DB, i uint64) error {
	rec := benchRecord(i)
	recID, body := rec.ID(), rec.BodySHA256()
	id, _ := parsePutID(wire.NewPutID())
	e := envelope{archive: "archive-a", generation: 1, seq: i + 1, storedAt: int64(i), putID: id, hasPutID: true}
	data, err := encodeFrame(e, &rec, recID, body)
	if err != nil {
		return err
	}
	batch := db.NewBatch()
	errs := []error{batch.Set(logKey(e.seq), data, nil), batch.Set(putIDKey(id), putValue(e.seq, recID), nil)}
	for _, at := range placesOf(&rec, recID, nil) {
		r := row{roles: at.roles, id: recID, kind: rec.Kind, tenant: rec.TenantID}
		errs = append(errs, batch.Set(indexKey(at.digest, e.seq), r.encode(), nil))
	}
	return errors.Join(append(errs, batch.Commit(pebble.Sync))...)
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
	i := 0
	for b.Loop() {
		i++
		r := digest(fmt.Sprint("bench ", i%records))
		if _, ok, err := n.Answer(context.Background(), query(alice, r)); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func putAll(b *testing.B, n *Node, records int) {
	b.Helper()
	spread(b, 64, 0, records, func(i uint64) error {
		_, err := n.Put(context.Background(), wire.Put{Record: benchRecord(i)})
		return err
	})
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
