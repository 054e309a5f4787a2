package ledger

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

// notes collects what a guard wrote and when.
type notes struct {
	began  time.Time
	broken atomic.Bool
	failed atomic.Int64

	mu    sync.Mutex // guards what follows
	texts []string
	at    []time.Duration
}

func (n *notes) written() ([]string, []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.texts), slices.Clone(n.at)
}

func (n *notes) guard(every time.Duration) *guard {
	n.began = time.Now()
	return newGuard(every, func(signed []byte) error {
		if n.broken.Load() {
			return errors.New("no space")
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.texts = append(n.texts, string(signed))
		n.at = append(n.at, time.Since(n.began))
		return nil
	}, func(error) { n.failed.Add(1) })
}

func TestGuardIsWrittenAtOnceThenOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		g := n.guard(time.Second)
		g.offer([]byte("1"))
		synctest.Wait()
		for _, s := range []string{"2", "3", "4"} {
			g.offer([]byte(s))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		g.offer([]byte("5"))
		synctest.Wait()
		if err := g.close(); err != nil {
			t.Fatal(err)
		}
		texts, at := n.written()
		if want := []string{"1", "4", "5"}; !slices.Equal(texts, want) {
			t.Errorf("wrote %q, want %q", texts, want)
		}
		if want := []time.Duration{0, time.Second, 10300 * time.Millisecond}; !slices.Equal(at, want) {
			t.Errorf("wrote at %v, want %v", at, want)
		}
	})
}

func TestGuardIsWrittenOnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		g := n.guard(time.Hour)
		g.offer([]byte("1"))
		synctest.Wait()
		g.offer([]byte("2"))
		if err := g.close(); err != nil || time.Since(n.began) != 0 {
			t.Fatalf("%v after %v", err, time.Since(n.began))
		}
		if texts, _ := n.written(); !slices.Equal(texts, []string{"1", "2"}) {
			t.Errorf("wrote %q", texts)
		}
	})
}

func TestGuardTriesAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		n.broken.Store(true)
		g := n.guard(time.Second)
		g.offer([]byte("1"))
		time.Sleep(2500 * time.Millisecond)
		if texts, _ := n.written(); n.failed.Load() != 3 || len(texts) != 0 {
			t.Errorf("%d failures told, wrote %q", n.failed.Load(), texts)
		}
		n.broken.Store(false)
		time.Sleep(time.Second)
		if texts, _ := n.written(); !slices.Equal(texts, []string{"1"}) {
			t.Errorf("wrote %q", texts)
		}
		n.broken.Store(true)
		g.offer([]byte("2"))
		if err := g.close(); err == nil {
			t.Error("close hid that the newest checkpoint is not kept")
		}
	})
}

func guardSize(t *testing.T, l *Ledger) int64 {
	t.Helper()
	c, found, err := readGuard(l.cfg, l.key)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	return c.Size
}

func TestCloseKeepsTheNewestCheckpoint(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	for n := range 5 {
		h.register(t, l, n)
	}
	closeLedger(t, l)
	if got := guardSize(t, l); got != 5 {
		t.Errorf("the guard knows %d leaves of 5", got)
	}
}

// TestRolledBackStoreIsRefused restores an old copy of the store beside a newer
// guard.
func TestRolledBackStoreIsRefused(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2, 3)
	closeLedger(t, l)
	old := copyOf(t, cfg)

	l = openLedger(t, cfg)
	h.register(t, l, 4, 5)
	closeLedger(t, l)
	now := copyOf(t, cfg)

	removeAll(t, cfg.FS, l.cfg.store())
	copyTree(t, old.FS, cfg.FS, l.cfg.store(), l.cfg.store())
	_, err := Open(cfg)
	wantCode(t, err, fault.Corrupt, "LEDGER_ROLLED_BACK", "3 leaves", "over 5")
	cfg.AdoptStore = true
	_, err = Open(cfg)
	wantCode(t, err, fault.Corrupt, "LEDGER_ROLLED_BACK") // the word of an operator is only for a lost guard

	cfg.AdoptStore = false
	removeAll(t, cfg.FS, l.cfg.store())
	copyTree(t, now.FS, cfg.FS, l.cfg.store(), l.cfg.store())
	h.check(t, openLedger(t, cfg))
}

// TestForkedStoreIsRefused goes on from an old copy without its guard and then
// meets the checkpoint of the other history, at the same and at a larger size.
func TestForkedStoreIsRefused(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2, 3)
	closeLedger(t, l)
	fork := copyOf(t, cfg)
	removeAll(t, fork.FS, l.cfg.Guard)

	l = openLedger(t, cfg)
	h.register(t, l, 4, 5)
	closeLedger(t, l)

	_, err := Open(fork)
	wantCode(t, err, fault.Corrupt, "LEDGER_GUARD", "missing", "3 leaves", "AdoptStore")
	fork.AdoptStore = true
	other := openLedger(t, fork)
	for n := 10; n < 14; n++ {
		held{}.register(t, other, n)
	}
	closeLedger(t, other)
	fork.AdoptStore = false
	closeLedger(t, openLedger(t, fork)) // the guard was written anew

	copyTree(t, cfg.FS, fork.FS, l.cfg.Guard, l.cfg.Guard)
	_, err = Open(fork)
	wantCode(t, err, fault.Corrupt, "LEDGER_FORKED", "7 leaves", "over 5")
}

func TestGuardOfAnotherLogIsRefused(t *testing.T) {
	l, cfg := newLedger(t)
	held{}.register(t, l, 1)
	closeLedger(t, l)
	other, otherCfg := newLedger(t)
	closeLedger(t, other)
	copyTree(t, otherCfg.FS, cfg.FS, l.cfg.Guard, l.cfg.Guard)
	_, err := Open(cfg)
	wantCode(t, err, fault.Corrupt, "LEDGER_GUARD", l.cfg.Guard)
}

func TestGuardMayLieElsewhere(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.Guard = "other/disk/guard"
	initLedger(t, cfg)
	l := openLedger(t, cfg)
	h := held{}
	h.register(t, l, 1, 2)
	closeLedger(t, l)
	h.check(t, openLedger(t, cfg))
	second := cfg
	second.Dir = "data/second"
	wantCode(t, Init(second), fault.Conflict, "LEDGER_EXISTS", cfg.Guard)
}

// TestBrokenGuardFileStopsNoSeal fails every operation on the guard file: the
// ledger goes on, Close tells, and the next open finds an older guard that the
// store continues.
func TestBrokenGuardFileStopsNoSeal(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	cfg := testConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && mem.PathBase(op.Path) == "ledger.checkpoint.tmp" {
			return errorfs.ErrInjected
		}
		return nil
	})))
	cfg.GuardEvery = time.Nanosecond
	initLedger(t, cfg)
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	h := held{}
	for n := range 5 {
		h.register(t, l, n)
	}
	h.check(t, l)
	if err := l.Close(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("close: %v", err)
	}
	broken.Store(false)
	l = openLedger(t, cfg)
	h.check(t, l)
	h.register(t, l, 9)
	closeLedger(t, l)
	if got := guardSize(t, l); got != 6 {
		t.Errorf("the guard knows %d leaves of 6", got)
	}
}

// TestCheckLooksAtTheGuard: a guard that was changed while the ledger is open.
func TestCheckLooksAtTheGuard(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2)
	h.check(t, l)
	ahead, err := tlogx.Checkpoint{Origin: l.Origin(), Size: 3, Root: h.root(t, l)}.Sign(l.key.signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := pebblex.WriteFile(cfg.FS, l.cfg.Guard, ahead, 0o644); err != nil {
		t.Fatal(err)
	}
	wantCode(t, l.Check(t.Context()), fault.Corrupt, "LEDGER_ROLLED_BACK")
	beside, err := tlogx.Checkpoint{Origin: l.Origin(), Size: 1, Root: h.root(t, l)}.Sign(l.key.signer)
	if err != nil {
		t.Fatal(err)
	}
	if err := pebblex.WriteFile(cfg.FS, l.cfg.Guard, beside, 0o644); err != nil {
		t.Fatal(err)
	}
	wantCode(t, l.Check(t.Context()), fault.Corrupt, "LEDGER_FORKED")
}

func (h held) root(t *testing.T, l *Ledger) [32]byte {
	t.Helper()
	c, err := tlogx.OpenCheckpoint(l.Latest(), l.key.verifier)
	if err != nil {
		t.Fatal(err)
	}
	return c.Root
}
