package archive

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/internal/tlogx"
)

// beside reports whether an operation is on the mark or the skeleton, or on the
// directory that holds them.
func beside(p faultfs.Point) bool {
	return strings.HasPrefix(p.Path, "data/highwater") || strings.HasPrefix(p.Path, "data/leaves") || syncsNames(p)
}

func syncsNames(p faultfs.Point) bool { return p.Op == faultfs.OpSyncDir && p.Path == "data" }

// breaks is a disk on which one operation of the keeper fails, or all from one
// on. It counts them.
type breaks struct {
	mu      sync.Mutex
	at      int
	forever bool
	done    bool
	met     int
}

func (b *breaks) decide(p faultfs.Point) faultfs.Outcome {
	if p.Op == faultfs.OpRead || !beside(p) {
		return faultfs.Outcome{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.met == 0 && syncsNames(p) {
		return faultfs.Outcome{} // the store is being opened
	}
	b.met++
	if n := b.met - 1; n == b.at || b.forever && n > b.at {
		return faultfs.Outcome{Err: faultfs.ErrIO, Done: b.done && n == b.at}
	}
	return faultfs.Outcome{}
}

// TestMarkFaultTable breaks the disk at every write point of mark and skeleton:
// the operation did not happen, or it did and nobody was told; once, or from
// there on. Puts go on, what asks for a mark gets none that is not there, and
// after a crash everything acknowledged is there and the next open mends what is
// beside the store.
func TestMarkFaultTable(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		for _, forever := range []bool{false, true} {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprintf("skeleton gone=%v,forever=%v,persisted=%v", damaged, forever, done), func(t *testing.T) {
					points := 0
					for at := 0; ; at++ {
						b := &breaks{at: at, forever: forever, done: done}
						markFaultAt(t, b, damaged)
						if b.met <= at {
							break
						}
						points++
					}
					if points < 10 {
						t.Errorf("%d write points", points)
					}
					t.Logf("%d write points", points)
				})
			}
		}
	}
}

func markFaultAt(t *testing.T, b *breaks, damaged bool) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	c := testConfig(mem, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	mustPut(t, n, numbered(0, 0).Record)
	mustClose(t, n)
	if damaged {
		must1(t, mem.Remove(c.skeletonPath()))
	}
	disk := faultfs.New(mem)
	disk.Fail(b.decide)
	c.FS, c.markEvery = disk, time.Millisecond
	n, err := Open(c)
	if err != nil {
		t.Fatalf("write point %d: open: %v", b.at, err)
	}
	var j journal
	for i := range 4 {
		put := numbered(1, i)
		ack, err := n.Put(t.Context(), put)
		if err != nil {
			t.Fatalf("write point %d: a put without a checkpoint: %v", b.at, err)
		}
		j.add(put, ack.Seq)
	}
	put := numbered(2, 0)
	put.Checkpoint = true
	ctx, cancel := context.WithCancel(t.Context())
	if b.forever {
		cancel() // it would wait for as long as the disk is broken
	}
	ack, err := n.Put(ctx, put)
	cancel()
	switch {
	case err == nil:
		j.add(put, ack.Seq)
		if c := mustCheckpoint(t, n, string(read(t, mem, c.markPath()))); c.Size < int64(ack.Seq) {
			t.Errorf("write point %d: acknowledged seq %d with a mark of %d", b.at, ack.Seq, c.Size)
		}
	case !fault.Is(err, fault.Transient):
		t.Errorf("write point %d: a put that asks for a checkpoint: %v", b.at, err)
	}
	published := mustCheckpoint(t, n, n.Checkpoint())
	known := j.copy()
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := n.Close(); err != nil && !strings.Contains(err.Error(), faultfs.ErrIO.Error()) {
		t.Errorf("write point %d: close: %v", b.at, err)
	}
	if c := mustCheckpoint(t, n, string(read(t, crashed, c.markPath()))); c.Size < published.Size {
		t.Errorf("write point %d: published %d leaves, after a crash the mark has %d", b.at, published.Size, c.Size)
	}
	survived(t, crashed, known)
}

// TestMarkSurvivesACrash crashes an archive beside writers, some of whom ask for
// marks, and keeps a part of what was not synced: what the crash leaves opens,
// has all that was acknowledged, and no checkpoint that anybody was given is
// ahead of the mark or beside it.
func TestMarkSurvivesACrash(t *testing.T) {
	const writers = 4
	stores, seed := need.Rounds(15, 300), uint64(11)
	rng := rand.New(rand.NewPCG(seed, seed))
	marks := 0
	for range stores {
		disk := vfs.NewCrashableMem()
		mustInit(t, testConfig(disk, "archive-a"))
		for life := range 4 {
			j := journal{progress: make(chan struct{}, 1<<16)}
			n := mustOpen(t, testConfig(disk, "archive-a"))
			var mu sync.Mutex
			newest := ""
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := 0; ; i++ {
						put := numbered(w, life<<20|i)
						put.Checkpoint = w == 0
						ack, err := n.Put(ctx, put)
						if err != nil {
							return
						}
						if w == 0 {
							mu.Lock()
							newest = ack.Checkpoint
							marks++
							mu.Unlock()
						}
						j.add(put, ack.Seq)
					}
				})
			}
			for range 1 + rng.IntN(30) {
				<-j.progress
			}
			mu.Lock()
			given := newest
			mu.Unlock()
			known := j.copy()
			crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng})
			stop()
			wg.Wait()
			mustClose(t, n)
			survived(t, crashed, known)
			goesOn(t, crashed, given)
			disk = crashed
		}
	}
	t.Logf("%d crashes, %d marks given (seed %d)", 4*stores, marks, seed)
}

// goesOn opens what a crash left and proves that it continues a checkpoint.
func goesOn(t *testing.T, fs vfs.FS, given string) {
	t.Helper()
	n := mustOpen(t, testConfig(fs, "archive-a"))
	defer mustClose(t, n)
	if given == "" {
		return
	}
	old := mustCheckpoint(t, n, given)
	p, err := n.Proof(uint64(old.Size))
	if err != nil {
		t.Fatal(err)
	}
	if err := tlogx.CheckConsistency(old, mustCheckpoint(t, n, p.Checkpoint), p.Proof); err != nil {
		t.Error(err)
	}
}
