package archive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// journal is what a client knows: what it was told is stored.
type journal struct {
	mu       sync.Mutex
	acked    []acked
	progress chan struct{} // gets one for each entry; may be nil
}

type acked struct {
	put wire.Put
	seq uint64
}

func (j *journal) add(put wire.Put, seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acked = append(j.acked, acked{put, seq})
	select {
	case j.progress <- struct{}{}:
	default:
	}
}

func (j *journal) copy() []acked {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]acked(nil), j.acked...)
}

// survived opens what a crash left and holds it against the journal: everything
// acknowledged is answered under its number, the filter denies none of it, a
// repeated put is a duplicate, and the whole archive checks.
func survived(t *testing.T, fs vfs.FS, journal []acked) {
	t.Helper()
	n, err := Open(testConfig(fs, "archive-a"))
	if err != nil {
		t.Fatalf("open after the crash: %v", err)
	}
	defer mustClose(t, n)
	<-n.Loaded()
	if !n.Hello().Filter.Ready {
		t.Fatal("the filter was not built")
	}
	if _, err := n.Check(t.Context()); err != nil {
		t.Fatalf("check after the crash: %v", err)
	}
	for _, a := range journal {
		r := a.put.Record
		reply, ok, err := n.Answer(t.Context(), query(r.TenantID, r.SHA256))
		if err != nil || !ok || reply.Records[0].ID != r.ID() || reply.Records[0].Seq != a.seq {
			t.Fatalf("acknowledged seq %d of %d is answered %v, %+v, %v", a.seq, len(journal), ok, reply, err)
		}
	}
	for _, a := range journal[max(0, len(journal)-3):] {
		ack, err := n.Put(t.Context(), a.put)
		if err != nil || !ack.Duplicate || ack.Seq != a.seq {
			t.Fatalf("put of acknowledged seq %d again: %+v, %v", a.seq, ack, err)
		}
	}
}

func numbered(w, i int) wire.Put {
	return wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, digest(fmt.Sprint("writer ", w, " record ", i)), `{"n":1}`)}
}

// TestLaw2AcknowledgedSurvivesACrash crashes an archive beside four writers, goes
// on with what the crash left, and crashes that: stores of ten lives each. Of
// what was not synced the crash keeps nothing, half or all.
func TestLaw2AcknowledgedSurvivesACrash(t *testing.T) {
	const lives, writers = 10, 4
	stores := 100
	if testing.Short() {
		stores = 6
	}
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	crashes, kept := 0, 0
	for range stores {
		disk := vfs.NewCrashableMem()
		mustInit(t, testConfig(disk, "archive-a"))
		j := journal{progress: make(chan struct{}, 1<<16)}
		for life := range lives {
			c := testConfig(disk, "archive-a")
			c.MemTableSize = 32 << 10 // so that flushes happen
			n := mustOpen(t, c)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := 0; ; i++ {
						put := numbered(w, life<<20|i)
						ack, err := n.Put(ctx, put)
						if err != nil {
							return // stopped
						}
						j.add(put, ack.Seq)
					}
				})
			}
			for range 1 + rng.IntN(40) {
				<-j.progress
			}
			known := j.copy() // before the crash: all of it must be there after
			percent := []int{0, 50, 100}[rng.IntN(3)]
			crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			stop()
			wg.Wait()
			mustClose(t, n)

			survived(t, crashed, known)
			crashes++
			kept += len(known)
			disk, j.acked = crashed, known // what came later belongs to no life
		}
	}
	t.Logf("%d crashes, %d acknowledged records looked up, 0 lost (seed %d)", crashes, kept, seed)
}

// TestFaultTable breaks the disk at every write point of a busy archive, in two
// ways: the operation did not happen, or it did and nobody was told. Whatever
// was acknowledged is there after the crash, and the client's retry of the rest
// makes no second record.
func TestFaultTable(t *testing.T) {
	const records, most = 12, 2000
	for _, persist := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted=%v", persist), func(t *testing.T) {
			points, readonly, step := 0, 0, 1
			if testing.Short() {
				step = 4
			}
			for at := 0; ; at += step {
				if at > most {
					t.Fatalf("more than %d write points", most)
				}
				hit, outlived := faultAt(t, at, records, persist)
				if !hit {
					break
				}
				points++
				if outlived {
					readonly++
				}
			}
			if points < 8 || readonly == 0 {
				t.Errorf("only %d write points, %d of them outlived", points, readonly)
			}
			t.Logf("%d write points; after %d of them the node lived on, read-only", points, readonly)
		})
	}
}

// faultAt runs the scenario with a fault at one write point from Open on. It
// reports whether there was that point, and whether the node outlived it.
func faultAt(t *testing.T, at, records int, persist bool) (hit, outlived bool) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	mustInit(t, testConfig(mem, "archive-a"))
	disk := newFaultFS(mem, at, persist)
	c := testConfig(disk, "archive-a")
	c.OnFatal = disk.Fatal
	c.MemTableSize = 64 << 10 // 64 KiB: records of 6 KiB make the log rotate and flush

	var puts []wire.Put
	for i := range records {
		put := numbered(0, i)
		put.Record.Kind, put.Record.Body = "ocr", make([]byte, 6<<10)
		puts = append(puts, put)
	}
	var j journal
	var lived atomic.Bool
	ctx, gone := context.WithCancel(t.Context())
	defer gone()
	disk.Run(func() {
		n, err := Open(c)
		if err != nil {
			return
		}
		for _, put := range puts {
			if ack, err := n.Put(ctx, put); err == nil {
				j.add(put, ack.Seq)
				continue
			}
			if n.Hello().State == wire.StateReadonly {
				readonlyAfterFault(t, n, puts, &j)
				lived.Store(true)
			}
			return
		}
		if err := n.Close(); err != nil && !errors.Is(err, errDisk) && fault.CodeOf(err) != "STORE_FAILED" {
			t.Errorf("write point %d: close: %v", at, err)
		}
	})
	known := j.copy()
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	survived(t, crashed, known)

	// The client repeats everything with the same ids.
	n := mustOpen(t, testConfig(crashed, "archive-a"))
	defer mustClose(t, n)
	for i, put := range puts {
		ack, err := n.Put(t.Context(), put)
		if err != nil || ack.Seq != uint64(i+1) || i < len(known) && !ack.Duplicate {
			t.Fatalf("write point %d: the retry of record %d: %+v, %v", at, i, ack, err)
		}
	}
	if n.Seq() != uint64(records) {
		t.Errorf("write point %d: %d records after the retry, want %d", at, n.Seq(), records)
	}
	return disk.Ops() > int64(at), lived.Load()
}

// readonlyAfterFault: a node whose store failed takes no more records, and
// answers for what was durable and for nothing else. The one record whose put was
// under way may have become durable while the store failed in another place; if
// it is answered, it has to survive like all others.
func readonlyAfterFault(t *testing.T, n *Node, puts []wire.Put, j *journal) {
	t.Helper()
	known := len(j.copy())
	for i, put := range puts {
		reply, ok, err := n.Answer(t.Context(), query(alice, put.Record.SHA256))
		if err != nil || ok != (i < known) && i != known {
			t.Errorf("after the fault record %d of %d acknowledged: %v, %v", i, known, ok, err)
		}
		if ok && i == known {
			j.add(put, reply.Records[0].Seq)
		}
	}
	if _, err := n.Put(t.Context(), puts[len(puts)-1]); !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "READONLY" {
		t.Errorf("put after the fault: %v", err)
	}
	if err := n.Close(); fault.CodeOf(err) != "STORE_FAILED" {
		t.Errorf("close after the fault: %v", err)
	}
}
