package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

func TestInitRefusesAnExistingLedger(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	initLedger(t, cfg)
	wantCode(t, Init(cfg), fault.Conflict, "LEDGER_EXISTS", cfg.Dir)
	l := openLedger(t, cfg)
	h := held{}
	h.register(t, l, 1)
	wantCode(t, Init(cfg), fault.Conflict, "LEDGER_EXISTS", cfg.Dir)
	h.check(t, l)
}

func TestOpenRefusesAMissingLedger(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	_, err := Open(cfg)
	wantCode(t, err, fault.NotFound, "LEDGER_MISSING", cfg.Dir)
	if names, err := cfg.FS.List(""); err == nil && len(names) > 0 {
		t.Errorf("a refused open left %v", names)
	}
}

func TestNewLedgerHasTheCheckpointOfNothing(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.Origin = "example.com/log-7"
	initLedger(t, cfg)
	l := openLedger(t, cfg)
	want := tlogx.Checkpoint{Origin: cfg.Origin, Root: new(tlogx.Edge).Root()}
	got, err := tlogx.OpenCheckpoint(l.Latest(), l.key.verifier)
	if err != nil || got != want || l.Origin() != cfg.Origin || !strings.HasPrefix(l.VerifierKey(), cfg.Origin+"+") {
		t.Errorf("%+v, %v, origin %q, key %q", got, err, l.Origin(), l.VerifierKey())
	}
	held{}.check(t, l)
}

func TestOriginIsChecked(t *testing.T) {
	for _, origin := range []string{"https://example.com", "a b", "Example.com", "a+b"} {
		cfg := testConfig(vfs.NewMem())
		cfg.Origin = origin
		err := Init(cfg)
		wantCode(t, err, fault.Invalid, "BAD_ORIGIN")
		if fault.FieldOf(err) != "origin" {
			t.Errorf("field %q", fault.FieldOf(err))
		}
	}
}

func TestOriginCanNotBeChanged(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	initLedger(t, cfg)
	for _, origin := range []string{"", DefaultOrigin} {
		cfg.Origin = origin
		closeLedger(t, openLedger(t, cfg))
	}
	cfg.Origin = "example.com/other"
	_, err := Open(cfg)
	wantCode(t, err, fault.Conflict, "LEDGER_ORIGIN", DefaultOrigin, "example.com/other")
}

func TestLostStoreIsNotReplacedByAnEmptyOne(t *testing.T) {
	l, cfg := newLedger(t)
	held{}.register(t, l, 1)
	closeLedger(t, l)
	removeAll(t, cfg.FS, l.cfg.store())
	_, err := Open(cfg)
	wantCode(t, err, fault.Corrupt, "LEDGER_LOST", l.cfg.keyFile())
	removeAll(t, cfg.FS, l.cfg.keyFile())
	wantCode(t, Init(cfg), fault.Conflict, "LEDGER_EXISTS", l.cfg.Guard)
}

// TestInitCutShortByACrashCanBeRepeated crashes before every operation of Init
// that changes the disk.
func TestInitCutShortByACrashCanBeRepeated(t *testing.T) {
	for _, keep := range []int{0, 50, 100} {
		for n := int64(1); ; n++ {
			crashed := initUntil(t, n, keep)
			if crashed == nil {
				if n < 30 {
					t.Fatalf("Init makes only %d operations", n)
				}
				break
			}
			worksAfterInit(t, crashed, fmt.Sprintf("crash before operation %d, %d %% kept", n, keep))
		}
	}
}

// initUntil runs Init and returns the disk as a crash before the n'th changing
// operation leaves it, nil if there are fewer.
func initUntil(t *testing.T, n int64, keep int) (crashed *vfs.MemFS) {
	t.Helper()
	mem, rng := vfs.NewCrashableMem(), rand.New(rand.NewPCG(uint64(n), uint64(keep)))
	var mu sync.Mutex
	initLedger(t, testConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			if n--; n == 0 {
				crashed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
			}
		}
		return nil
	}))))
	return crashed
}

// worksAfterInit checks that a disk on which Init was begun has a ledger, or
// takes one by another Init.
func worksAfterInit(t *testing.T, fs vfs.FS, when string) {
	t.Helper()
	cfg := testConfig(fs)
	l, err := Open(cfg)
	if err != nil {
		wantCode(t, err, fault.NotFound, "LEDGER_MISSING")
		if err := Init(cfg); err != nil {
			t.Fatalf("%s: second try: %v", when, err)
		}
		if l, err = Open(cfg); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	h := held{}
	h.register(t, l, 1, 2)
	h.check(t, l)
	closeLedger(t, l)
}

// TestInitThatFailedCanBeRepeated fails every operation of Init on its own files.
func TestInitThatFailedCanBeRepeated(t *testing.T) {
	for n := 1; ; n++ {
		mem, count := vfs.NewMem(), 0
		cfg := testConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.Contains(op.Path, "ledger.db") || op.Kind == errorfs.OpStat || op.Kind == errorfs.OpFileClose {
				return nil
			}
			if count++; count == n {
				return errorfs.ErrInjected
			}
			return nil
		})))
		err := Init(cfg)
		if count < n {
			if n < 10 {
				t.Fatalf("Init makes only %d operations on its own files", count)
			}
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("operation %d failed, Init: %v", n, err)
		}
		worksAfterInit(t, mem, fmt.Sprintf("operation %d failed", n))
	}
}
