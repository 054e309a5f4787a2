package archive

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// TestRepliesOutliveTheStore is DB-05: a hundred readers hold what they were
// answered while records are put and flushed; then the archive is closed with
// queries under way. What they hold must still be what was put.
func TestRepliesOutliveTheStore(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	c.MemTableSize = 256 << 10
	mustInit(t, c)
	n := mustOpen(t, c)
	const readers = 100
	puts := 3000
	if testing.Short() {
		puts = 600
	}
	const subjects = 500
	subject := func(i int) wire.Digest { return digest(fmt.Sprint("subject ", i%subjects)) }
	body := func(i int) string { return fmt.Sprintf(`{"n":%d,"pad":"%0200d"}`, i, i) }

	for i := range subjects {
		mustPut(t, n, metadata(alice, subject(i), body(i)))
	}
	var held [readers][]wire.Reply
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			for i := r; ; i++ {
				reply, ok, err := n.Answer(context.Background(), query(alice, subject(i)))
				switch {
				case fault.CodeOf(err) == "CLOSED":
					return
				case err != nil:
					t.Error(err)
					return
				case !ok:
					t.Errorf("subject %d is denied", i%subjects)
					return
				case len(held[r]) < 20:
					held[r] = append(held[r], reply)
				}
				runtime.Gosched() // a hundred of these would leave writers no time
			}
		})
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := subjects + w; i < puts; i += 8 {
				if _, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, subject(i), body(i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if err := n.db.Flush(); err != nil {
		t.Error(err)
	}
	mustClose(t, n) // with a hundred queries under way
	wg.Wait()
	for r := range readers {
		for _, reply := range held[r] {
			for _, rec := range reply.Records {
				if err := rec.Check(); err != nil {
					t.Fatalf("a reply that was kept: %v", err)
				}
			}
		}
	}
}

// TestCloseDrainsTheQueue: every put that was taken is answered, and what was
// acknowledged is there.
func TestCloseDrainsTheQueue(t *testing.T) {
	for range 20 {
		c := testConfig(vfs.NewMem(), "archive-a")
		mustInit(t, c)
		n := mustOpen(t, c)
		var acked atomic.Int64
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range 1 << 20 {
					_, err := n.Put(context.Background(), numbered(w, i))
					if err != nil {
						if !fault.Is(err, fault.Transient) {
							t.Errorf("a refused put: %v", err)
						}
						return
					}
					acked.Add(1)
				}
			})
		}
		for acked.Load() < 50 {
			if _, err := n.Put(context.Background(), numbered(99, int(acked.Add(1)))); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, n)
		wg.Wait()
		n = mustOpen(t, c)
		if n.Seq() != uint64(acked.Load()) {
			t.Errorf("%d acknowledged, %d stored", acked.Load(), n.Seq())
		}
		mustClose(t, n)
	}
}

// TestCloseDuringLoad closes while the filter is being built.
func TestCloseDuringLoad(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	for i := range 200 {
		mustPut(t, n, numbered(0, i).Record)
	}
	mustClose(t, n)
	for range 50 {
		n, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, n)
		<-n.Loaded()
	}
}

func TestAnswerStopsWithItsContext(t *testing.T) {
	n := newNode(t)
	subject := digest("x")
	for i := range 20 {
		mustPut(t, n, metadata(alice, subject, fmt.Sprintf(`{"n":%d}`, i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := n.Answer(ctx, query(alice, subject)); ok || !fault.Is(err, fault.Transient) {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestMissAllocatesNothing is the limit for a query that finds nothing.
func TestMissAllocatesNothing(t *testing.T) {
	n := newNode(t)
	mustPut(t, n, metadata(alice, digest("x"), `{}`))
	q, ctx := query(alice, digest("nothing")), t.Context()
	text, err := wire.Encode(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(1000, func() {
		if _, ok, err := n.Answer(ctx, q); ok || err != nil {
			t.Error(ok, err)
		}
	}); got != 0 {
		t.Errorf("Answer: %v allocations", got)
	}
	if got := testing.AllocsPerRun(1000, func() {
		if d, ok := wire.QueryDigest(text); !ok || !n.Absent(d) {
			t.Error("not absent")
		}
	}); got != 0 {
		t.Errorf("decoding and Absent: %v allocations", got)
	}
}

// TestAbsentBatchAgreesWithAbsent for batches of every size around the limit, of
// digests of which some are there, and counts as that does.
func TestAbsentBatchAgreesWithAbsent(t *testing.T) {
	n := newNode(t)
	var digests [][32]byte
	for i := range 3 * verdicts {
		d := digest(fmt.Sprint("x", i))
		if i%3 == 0 {
			mustPut(t, n, metadata(alice, d, `{}`))
		}
		digests = append(digests, d)
	}
	for _, size := range []int{0, 1, 2, verdicts - 1, verdicts, verdicts + 1, 3 * verdicts} {
		before := testutil.ToFloat64(n.metrics.miss)
		got, want, misses := n.AbsentBatch(digests[:size], []bool{true}), []bool{true}, 0.0
		counted := testutil.ToFloat64(n.metrics.miss) - before
		for _, d := range digests[:size] {
			a := n.Absent(d)
			if want = append(want, a); a {
				misses++
			}
		}
		if !slices.Equal(got, want) || counted != misses {
			t.Errorf("%d digests: %v, %v misses counted; want %v, %v", size, got, counted, want, misses)
		}
	}
	room := make([]bool, 0, len(digests))
	if got := testing.AllocsPerRun(100, func() { room = n.AbsentBatch(digests, room[:0]) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
