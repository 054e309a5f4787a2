package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
)

var errDisk = errors.New("disk gone")

// TestFailedCommitLeavesOneLeafOrNone is the fault table of the commit: the
// failing block is on disk or not, and either way the retry after a restart ends
// with one leaf per digest, the old receipts unchanged, and no fork.
func TestFailedCommitLeavesOneLeafOrNone(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		for failing := range 4 {
			t.Run(fmt.Sprintf("block=%d/persisted=%v", failing, persisted), func(t *testing.T) {
				l, cfg := newLedger(t)
				h := held{}
				for n := range failing {
					h.register(t, l, 10*n, 10*n+1, 10*n+2)
				}
				durably := l.apply
				l.apply = func(b *pebble.Batch) error {
					if persisted {
						return errors.Join(durably(b), errDisk)
					}
					return errDisk
				}
				entries := chaintest.Entries(100, 3)
				_, err := l.Register(t.Context(), entries)
				wantCode(t, err, fault.Transient, "LEDGER_STOPPED", "disk gone")
				sealsNoMore(t, l, h)
				closeLedger(t, l)

				l = openLedger(t, cfg)
				h.check(t, l)
				retry := chaintest.Entries(100, 3)
				seals, err := chain.SealOnce(t.Context(), l, retry)
				if err != nil {
					t.Fatal(err)
				}
				for i, s := range seals {
					want := retry[i].JobID
					if persisted {
						want = entries[i].JobID
					}
					if s.LeafIndex != int64(3*failing+i) || s.JobID != want {
						t.Errorf("entry %d: %+v, want job %s", i, s, want)
					}
				}
				h.register(t, l, 100, 101, 102, 103)
				h.check(t, l)
				closeLedger(t, l)
				h.check(t, openLedger(t, cfg))
			})
		}
	}
}

// sealsNoMore checks a ledger after a failed commit of the documents 100 to 102.
func sealsNoMore(t *testing.T, l *Ledger, h held) {
	t.Helper()
	h.unchanged(t, l)
	for n := 100; n < 103; n++ {
		s, ok, err := l.Lookup(t.Context(), chaintest.Digest(n))
		if ok {
			t.Errorf("a seal that is perhaps not on disk is shown: %+v", s)
		}
		wantCode(t, err, fault.Transient, "LEDGER_STOPPED") // nor is it denied
	}
	for range 3 {
		_, err := l.Register(t.Context(), chaintest.Entries(200, 1))
		wantCode(t, err, fault.Transient, "LEDGER_STOPPED", "anew")
	}
	if got := testutil.ToFloat64(l.metrics.stopped); got != 1 {
		t.Errorf("the metric says stopped=%v", got)
	}
}

// TestEveryWaitingCallLearnsOfAFailedCommit: nobody is left without an answer,
// and nothing is sealed for those who waited, though the disk is well again: what
// it holds of the block before is not known.
func TestEveryWaitingCallLearnsOfAFailedCommit(t *testing.T) {
	l, cfg := newLedger(t)
	const calls = 50
	begun, release := make(chan struct{}), make(chan struct{})
	durably := l.apply
	l.apply = func(*pebble.Batch) error {
		l.apply = durably
		close(begun)
		<-release
		return errDisk
	}
	var wg sync.WaitGroup
	var failed atomic.Int64
	ask := func(n int) {
		if _, err := l.Register(t.Context(), chaintest.Entries(n, 1)); fault.CodeOf(err) == "LEDGER_STOPPED" {
			failed.Add(1)
		}
	}
	wg.Go(func() { ask(0) })
	<-begun
	for n := 1; n < calls; n++ {
		wg.Go(func() { ask(n) })
	}
	runtime.Gosched()
	close(release)
	wg.Wait()
	if failed.Load() != calls {
		t.Errorf("%d of %d calls learned of the failure", failed.Load(), calls)
	}
	closeLedger(t, l)
	l = openLedger(t, cfg)
	if size := l.head.Load().size; size != 0 {
		t.Errorf("%d leaves were sealed after the failure", size)
	}
	held{}.check(t, l)
}

// TestDeadDiskLeavesOneLeafOrNone lets the log of the store fail for good at its
// n'th operation; after the crash, with all or nothing of what was not synced,
// every digest has one leaf and every receipt that was handed out holds.
func TestDeadDiskLeavesOneLeafOrNone(t *testing.T) {
	for _, keep := range []int{0, 50, 100} {
		for n := int64(1); n <= 24; n++ {
			mem := vfs.NewCrashableMem()
			cfg := testConfig(mem)
			initLedger(t, cfg)
			var armed atomic.Bool
			var count atomic.Int64
			broken := cfg
			broken.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				isLog := len(op.Path) > 4 && op.Path[len(op.Path)-4:] == ".log"
				if armed.Load() && isLog && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && count.Add(1) >= n {
					return errorfs.ErrInjected
				}
				return nil
			}))
			// What the program does instead is to exit; the goroutine is gone.
			broken.OnFatal = func(string) { runtime.Goexit() }
			l, err := Open(broken) // never closed: its process is dead
			if err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			h := registerUntilDead(t, l)
			rng := rand.New(rand.NewPCG(uint64(n), uint64(keep)))
			cfg.FS = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
			again := openLedger(t, cfg)
			h.check(t, again)
			documents := make([]int, 30)
			for i := range documents {
				documents[i] = i
			}
			h.register(t, again, documents...)
			h.check(t, again)
			closeLedger(t, again)
		}
	}
}

// registerUntilDead seals documents one by one and returns the receipts of those
// that were answered.
func registerUntilDead(t *testing.T, l *Ledger) held {
	t.Helper()
	h := held{}
	for n := range 30 {
		seals, err := l.Register(t.Context(), chaintest.Entries(n, 1))
		if err != nil {
			wantCode(t, err, fault.Transient, "LEDGER_STOPPED")
			return h
		}
		cert, err := l.Certificate(t.Context(), seals[0])
		if err != nil {
			t.Fatal(err)
		}
		h[n] = receipt{seals[0], cert}
	}
	t.Fatal("the disk never failed")
	return h
}
