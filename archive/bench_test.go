package archive

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

func benchNode(b *testing.B) (*Node, Config) {
	b.Helper()
	c := Config{Dir: filepath.Join(b.TempDir(), "archive"), ID: "archive-a"}
	mustInit(b, c)
	return mustOpen(b, c), c
}

// benchRecord has a body of 416 bytes, as a small record of metadata: names that
// come again and again, and values that do not, so that it takes about half of
// its size once it is compressed.
func benchRecord(i uint64) wire.PutRecord {
	body := append(make([]byte, 0, 416), '{')
	chaos := rand.NewPCG(i, 0)
	for k := range byte(5) {
		var value [24]byte
		for at := 0; at < len(value); at += 8 {
			binary.LittleEndian.PutUint64(value[at:], chaos.Uint64())
		}
		body = append(body, `"property-`...)
		body = append(body, '0'+k)
		body = append(body, `-of-the-description":"`...)
		body = hex.AppendEncode(body, value[:])
		body = append(body, `",`...)
	}
	body[len(body)-1] = '}'
	return metadata(alice, digest(fmt.Sprint("bench ", i)), string(body))
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

// BenchmarkPut stores records durably from 1, 16 and 256 writers, with the tree,
// the mark and the skeleton. In turns with it, so that both meet the same disk, a
// bare Pebble commits the same keys and values in the same batches: "x-bare" is
// the ratio of the two rates, the limit with 256 writers is 0.9. "x-each" is the
// ratio to a bare Pebble in which each writer commits his own record. Give it
// 100,000 records or more (-benchtime 100000x): a turn is to be longer than the
// second between two marks.
func BenchmarkPut(b *testing.B) {
	const turns = 4
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			n, _ := benchNode(b)
			same, each := benchBare(b), benchBare(b)
			batches := newBareBatches(same)
			var took, limit, alone time.Duration
			b.ResetTimer()
			for turn := range turns {
				from, to := b.N*turn/turns, b.N*(turn+1)/turns
				took += spread(b, writers, from, to, func(i uint64) error {
					_, err := n.Put(context.Background(), wire.Put{PutID: wire.NewPutID(), Record: benchRecord(i)})
					return err
				})
				b.StopTimer()
				limit += spread(b, writers, from, to, func(i uint64) error { return batches.put(i) })
				alone += spread(b, writers, from, to, func(i uint64) error { return barePut(each, i) })
				b.StartTimer()
			}
			b.StopTimer()
			mustClose(b, n)
			batches.committer.Close()
			if err := errors.Join(same.Close(), each.Close()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/took.Seconds(), "puts/s")
			b.ReportMetric(float64(b.N)/limit.Seconds(), "bare-puts/s")
			b.ReportMetric(limit.Seconds()/took.Seconds(), "x-bare")
			b.ReportMetric(0.9, "x-bare-limit")
			b.ReportMetric(alone.Seconds()/took.Seconds(), "x-each")
		})
	}
}

func benchBare(b *testing.B) *pebble.DB {
	b.Helper()
	db, err := pebblex.Open(pebblex.Options{Dir: filepath.Join(b.TempDir(), "bare"), Create: true})
	if err != nil {
		b.Fatal(err)
	}
	return db
}

// bareBatches commits records as the archive does, in batches that gather by
// themselves, and does nothing else.
type bareBatches struct {
	db        *pebble.DB
	committer *pebblex.Committer[*barePending]
	seq       uint64
}

type barePending struct {
	rec  wire.PutRecord
	id   wire.RecordID
	done chan error
}

func newBareBatches(db *pebble.DB) *bareBatches {
	s := &bareBatches{db: db}
	s.committer = pebblex.NewCommitter(pebblex.CommitterConfig[*barePending]{
		Queue: maxQueued, MaxItems: maxBatchRecords, Commit: s.commit,
	})
	return s
}

func (s *bareBatches) put(i uint64) error {
	rec := benchRecord(i)
	p := &barePending{rec: rec, id: rec.ID(), done: make(chan error, 1)}
	if err := s.committer.Submit(context.Background(), p); err != nil {
		return err
	}
	return <-p.done
}

func (s *bareBatches) commit(items []*barePending) {
	batch := s.db.NewBatch()
	var err error
	for _, p := range items {
		s.seq++
		err = errors.Join(err, bareRows(batch, p.rec, p.id, s.seq))
	}
	// The hashes that as many leaves add to a tree, two for each.
	commit := commitRow{first: s.seq - uint64(len(items)) + 1, last: s.seq, hashes: make([]tlog.Hash, 2*len(items))}
	err = errors.Join(err, batch.Set(commitKey(s.seq), commit.encode(), nil), batch.Commit(pebble.Sync))
	for _, p := range items {
		p.done <- err
	}
}

// bareRows writes the keys and values of a record to batch.
func bareRows(batch *pebble.Batch, rec wire.PutRecord, recID wire.RecordID, seq uint64) error {
	id, _ := parsePutID(wire.NewPutID())
	e := envelope{archive: "archive-a", generation: 1, seq: seq, storedAt: int64(seq), putID: id, hasPutID: true}
	data, err := encodeFrame(e, &rec, recID, rec.BodySHA256())
	if err != nil {
		return err
	}
	errs := []error{
		batch.Set(logKey(e.seq), data, nil), batch.Set(putIDKey(id), putValue(e.seq, recID), nil),
		batch.Set(tenantKey(tagOf(rec.TenantID), e.storedAt, e.seq), nil, nil),
	}
	for _, at := range placesOf(&rec, recID, nil) {
		r := row{roles: at.roles, id: recID, kind: rec.Kind, tenant: rec.TenantID}
		errs = append(errs, batch.Set(indexKey(at.digest, e.seq), r.encode(), nil))
	}
	return errors.Join(errs...)
}

// barePut commits the keys and values of a record by itself.
func barePut(db *pebble.DB, i uint64) error {
	rec := benchRecord(i)
	batch := db.NewBatch()
	return errors.Join(bareRows(batch, rec, rec.ID(), i+1), batch.Commit(pebble.Sync))
}

// BenchmarkMiss is a query for which the archive has nothing, or nothing for the
// caller. The limit, with decoding, is 2 us and 0 allocations.
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
	b.Run("foreign", func(b *testing.B) {
		q := query("dave", digest("bench 7"))
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := n.Answer(context.Background(), q); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		b.ReportMetric(2000, "ns/op-limit")
	})
	b.Run("decode+absent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d, ok := wire.QueryDigest(text); !ok || !n.Absent(d) {
				b.Fatal(ok)
			}
		}
		b.ReportMetric(2000, "ns/op-limit")
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

// BenchmarkOpen opens an archive of 100,000 records and a filter of a million
// keys, and with VERAE_LONG of a million and ten million, that was closed in
// order, or left by a crash, with its snapshot and its skeleton or without:
// "ms-to-filter" is from the begin of Open until the filter is complete. After a
// clean stop the limit is 200 ms with ten million keys.
func BenchmarkOpen(b *testing.B) {
	n, c := benchNode(b)
	mustClose(b, n)
	records, keys := need.Rounds(100_000, 1_000_000), need.Rounds(1_000_000, 10_000_000)
	c.Bloom.Capacity = uint64(keys) * 6 / 5
	n = mustOpen(b, c)
	putAll(b, n, records)
	left := Config{Dir: c.Dir + "-crashed", ID: c.ID, Bloom: c.Bloom}
	benchCrash(b, n, left.Dir)
	chaos := rand.NewPCG(1, 2)
	for n.keys.set.Keys() < uint64(keys) { // as if there were more records
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], chaos.Uint64())
		n.keys.set.Add(key)
		n.views.set.Add(key)
	}
	mustClose(b, n)
	complete := func(n *Node) bool { return n.keys.set.Ready() && n.views.set.Ready() }
	nothing := func(Config) error { return nil }
	for _, tc := range []struct {
		name   string
		from   Config
		before func(c Config) error
		limit  float64 // ms; 0 is none
	}{
		{"clean", c, nothing, 200},
		{"after a crash, no snapshot", left, func(c Config) error { return os.RemoveAll(c.Dir + "/filters") }, 0},
		{"after a crash, older snapshot", left, func(to Config) error {
			return errors.Join(os.RemoveAll(to.Dir+"/filters"), os.MkdirAll(to.Dir+"/filters/keys", 0o700), benchClaim(to, c, uint64(records)*9/10))
		}, 0},
		{"no skeleton", c, func(c Config) error { return os.Remove(c.Dir + "/leaves") }, 0},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var ready, loaded time.Duration
			for b.Loop() {
				b.StopTimer()
				c := Config{Dir: filepath.Join(b.TempDir(), "archive"), ID: c.ID, Bloom: c.Bloom}
				if err := os.CopyFS(c.Dir, os.DirFS(tc.from.Dir)); err != nil {
					b.Fatal(err)
				}
				if err := tc.before(c); err != nil {
					b.Fatal(err)
				}
				syscall.Sync() // else the first sync of Open would write the copy
				b.StartTimer()
				began := time.Now()
				n, err := Open(c)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				for wait := true; wait && !complete(n); {
					select {
					case <-n.Loaded(): // else it never will be
						wait = false
					case <-time.After(time.Millisecond / 4):
					}
				}
				ready += time.Since(began)
				<-n.Loaded()
				if !complete(n) {
					b.Fatal("the filters are not complete")
				}
				loaded += time.Since(began)
				mustClose(b, n)
				if err := os.RemoveAll(c.Dir); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(ready.Seconds()*1000/float64(b.N), "ms-to-filter")
			if tc.limit > 0 {
				b.ReportMetric(tc.limit, "ms-to-filter-limit")
			}
			b.ReportMetric(loaded.Seconds()*1000/float64(b.N), "ms-to-index-read")
			b.ReportMetric(float64(records), "records")
			b.ReportMetric(float64(keys), "keys")
		})
	}
}

// benchCrash makes a directory as a crash would leave it now: all was synced. The
// mark is copied before what it covers.
func benchCrash(b *testing.B, n *Node, to string) {
	b.Helper()
	if err := os.Mkdir(to, 0o700); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"key.pem", "filter.key", "generations", "highwater", "leaves"} {
		if err := pebblex.CopyFile(vfs.Default, filepath.Join(n.cfg.Dir, name), filepath.Join(to, name)); err != nil {
			b.Fatal(err)
		}
	}
	if err := n.db.Checkpoint(filepath.Join(to, "records")); err != nil {
		b.Fatal(err)
	}
}

// benchClaim makes the snapshot of an archive, of which that in whole is closed,
// one that has the records up to seq only.
func benchClaim(to, whole Config, seq uint64) error {
	n, err := Open(whole)
	if err != nil {
		return err
	}
	head, err := n.headAt(seq)
	if err == nil {
		err = n.keys.set.Save(filterFS{vfs.Default}, filepath.Join(to.Dir, "filters", "keys"), bloom.Mark{Identity: n.keys.identity(), Seq: seq, Head: head})
	}
	<-n.Loaded()
	return errors.Join(err, n.Close())
}

// BenchmarkRebuildFilter makes the base of each filter anew from the index of
// 100,000 records, with VERAE_LONG of a million, each under two keys; "shared" is
// that of views when one record in ten has shares, which are read. "s-for-10M" is the
// time that ten million keys would take, of which the limit is 5 s.
func BenchmarkRebuildFilter(b *testing.B) {
	for name, of := range map[string]func(*Node) *filter{
		"keys":   func(n *Node) *filter { return &n.keys },
		"views":  func(n *Node) *filter { return &n.views },
		"shared": func(n *Node) *filter { return &n.views },
	} {
		b.Run(name, func(b *testing.B) {
			n, _ := benchNode(b)
			defer mustClose(b, n)
			records := need.Rounds(100_000, 1_000_000)
			spread(b, 64, 0, records, func(i uint64) error {
				r := benchRecord(i)
				if name == "shared" && i%10 == 0 {
					r.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeFiles}}
				}
				_, err := n.Put(context.Background(), wire.Put{Record: r})
				return err
			})
			n.stop()
			n.background.Wait()
			f := of(n)
			keys := f.set.Keys()
			b.ResetTimer()
			for b.Loop() {
				if err := f.rebuildOnce(context.Background(), 2*keys, f.fill); err != nil {
					b.Fatal(err)
				}
			}
			perKey := b.Elapsed().Seconds() / float64(b.N) / float64(keys)
			b.ReportMetric(perKey*1e9, "ns/key")
			b.ReportMetric(perKey*1e7, "s-for-10M")
			if name != "shared" {
				b.ReportMetric(5, "s-for-10M-limit")
			}
		})
	}
}
