package ledger

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// backup copies a ledger to a directory of its file system.
func backup(t testing.TB, l *Ledger, fs vfs.FS, to string) pebblex.Manifest {
	t.Helper()
	b, err := pebblex.NewBackup(fs, to, "aggregator", l.Origin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Backup(t.Context(), b, "ledger"); err != nil {
		t.Fatal(err)
	}
	m, err := b.Finish(t.Context(), func(dir string) (*pebblex.BackupLog, error) {
		cfg := testConfig(fs)
		cfg.Dir = fs.PathJoin(dir, "ledger")
		return CheckCopy(t.Context(), cfg)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// restore copies a backup and adopts the ledger in it. Guard may be empty.
func restore(fs vfs.FS, from, to, guard string, remembered [][]byte, newest bool) (Config, error) {
	cfg := testConfig(fs)
	cfg.Dir = fs.PathJoin(to, "ledger")
	m, err := pebblex.ReadManifest(fs, from, "aggregator")
	if err != nil {
		return cfg, err
	}
	cfg.Guard = guard
	return cfg, pebblex.Restore(context.Background(), fs, from, m, to, func(dir string) error {
		half := cfg
		half.Dir = fs.PathJoin(dir, "ledger")
		end, err := Adopt(context.Background(), half, remembered, newest)
		if err == nil && *end != *m.Log {
			err = errors.New("the restored log is not the one in the manifest")
		}
		return err
	})
}

// What was answered before a backup is in it, with the same receipts, although
// sealing went on.
func TestBackupHoldsEverySealAnsweredBefore(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2, 3)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for n := 1000; ctx.Err() == nil; n++ {
			if _, err := l.Register(ctx, []chain.Entry{chaintest.Entry(n)}); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	for n := 4; n < 40; n++ {
		h.register(t, l, n)
	}
	m := backup(t, l, cfg.FS, "backup")
	stop()
	load.Wait()
	if m.Log.Size < 39 || m.Log.Origin != DefaultOrigin {
		t.Errorf("log: %+v", m.Log)
	}
	restored, err := restore(cfg.FS, "backup", "new", "", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	copied := openLedger(t, restored)
	h.check(t, copied)
	h.register(t, copied, 5000) // and it seals on
	h.check(t, copied)
}

// A restored copy that is behind or beside anything that was signed is never
// sealed on: a log can not fork.
func TestRestoredLedgerNeverForks(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2, 3)
	older := l.Latest()
	h.register(t, l, 4)
	backup(t, l, cfg.FS, "backup")
	same := l.Latest()
	h.register(t, l, 5)
	newer := l.Latest()

	other := openLedger(t, func() Config {
		c := copyOf(t, cfg)
		c.AdoptStore, c.Guard = true, "elsewhere"
		closeLedger(t, l)
		removeAll(t, c.FS, testDir)
		copyTree(t, cfg.FS, c.FS, "backup/ledger", testDir)
		return c
	}())
	held{}.register(t, other, 77)
	beside := other.Latest()
	foreign, _ := newLedger(t)

	for name, c := range map[string]struct {
		remembered [][]byte
		newest     bool
		kind       fault.Kind
		code       string
	}{
		"nobody knows":           {nil, false, fault.Invalid, "LEDGER_UNGUARDED"},
		"behind":                 {[][]byte{older, newer}, false, fault.Corrupt, "LEDGER_ROLLED_BACK"},
		"behind, with a promise": {[][]byte{newer}, true, fault.Corrupt, "LEDGER_ROLLED_BACK"},
		"beside, and behind":     {[][]byte{beside}, false, fault.Corrupt, "LEDGER_ROLLED_BACK"},
		"another log's":          {[][]byte{foreign.Latest()}, false, fault.Invalid, "LEDGER_CHECKPOINT"},
		"no checkpoint":          {[][]byte{[]byte("x")}, false, fault.Invalid, "LEDGER_CHECKPOINT"},
	} {
		_, err := restore(cfg.FS, "backup", "new", "", c.remembered, c.newest)
		t.Run(name, func(t *testing.T) { wantCode(t, err, c.kind, c.code) })
		if _, err := cfg.FS.Stat("new"); err == nil {
			t.Fatalf("%s: something was restored", name)
		}
	}
	// A guard that outlived the ledger is asked without being named.
	if err := pebblex.WriteFile(cfg.FS, "guard", newer, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := restore(cfg.FS, "backup", "new", "guard", nil, false)
	wantCode(t, err, fault.Corrupt, "LEDGER_ROLLED_BACK")

	for name, remembered := range map[string][][]byte{"same": {same}, "older": {older}, "both": {older, same}} {
		restored, err := restore(cfg.FS, "backup", "new-"+name, "", remembered, false)
		if err != nil {
			t.Fatal(name, err)
		}
		delete(h, 5)
		h.check(t, openLedger(t, restored))
	}
}

// A checkpoint of the same size over other leaves is another history.
func TestRestoredLedgerOfAnotherHistoryIsRefused(t *testing.T) {
	l, cfg := newLedger(t)
	held{}.register(t, l, 1)
	backup(t, l, cfg.FS, "backup")
	copied, err := restore(cfg.FS, "backup", "new", "", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	twin := openLedger(t, copied)
	held{}.register(t, twin, 2)
	held{}.register(t, l, 3)
	backup(t, l, cfg.FS, "second")
	_, err = restore(cfg.FS, "second", "third", "", [][]byte{twin.Latest()}, false)
	wantCode(t, err, fault.Corrupt, "LEDGER_FORKED")
}

func TestBackupOfAClosedLedgerIsRefused(t *testing.T) {
	l, cfg := newLedger(t)
	closeLedger(t, l)
	b, err := pebblex.NewBackup(cfg.FS, "backup", "aggregator", "x", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, l.Backup(t.Context(), b, "ledger"), fault.Transient, "LEDGER_CLOSED")
}

// A restored ledger seals nothing new before an archive has cosigned what it
// holds, and nothing ever if one has seen more.
func TestRestoredLedgerSealsNothingBeforeItIsWitnessed(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2)
	guard := l.Latest()
	witnesses := newWitnesses(t, "archive-a", "archive-b")
	before := NewCosigning(CosigningConfig{Ledger: l, Witnesses: witnesses, Path: "cosigned", FS: cfg.FS})
	if err := before.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	backup(t, l, cfg.FS, "backup")
	restored, err := restore(cfg.FS, "backup", "new", "", [][]byte{guard}, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // also after a restart
		copied, err := Open(restored)
		if err != nil {
			t.Fatal(err)
		}
		_, err = copied.Register(t.Context(), []chain.Entry{chaintest.Entry(1), chaintest.Entry(9)})
		wantCode(t, err, fault.Transient, "LEDGER_UNWITNESSED")
		wantCode(t, copied.Ready(), fault.Transient, "LEDGER_UNWITNESSED")
		if seals, err := copied.Register(t.Context(), []chain.Entry{chaintest.Entry(1)}); err != nil || seals[0] != h[1].seal {
			t.Errorf("what is sealed: %+v, %v", seals, err)
		}
		h.check(t, copied)
		closeLedger(t, copied)
	}

	copied := openLedger(t, restored)
	after := NewCosigning(CosigningConfig{Ledger: copied, Witnesses: witnesses, Path: "new/cosigned", FS: cfg.FS})
	witnesses.away = []wire.ArchiveID{"archive-a", "archive-b"}
	if err := after.round(t.Context()); err != nil || copied.Ready() == nil {
		t.Errorf("nobody is there: %v, %v", err, copied.Ready())
	}
	witnesses.away = nil
	if err := after.round(t.Context()); err != nil || copied.Ready() != nil {
		t.Errorf("both have cosigned: %v, %v", err, copied.Ready())
	}
	h.register(t, copied, 9)
	h.check(t, copied)
	closeLedger(t, copied)
	closeLedger(t, openLedger(t, restored)) // and that is for good
	if _, err := cfg.FS.Stat(restored.restoredFile()); err == nil {
		t.Error("it is on probation again")
	}

	// One of them has seen more by now than a second restore of the backup has.
	second, err := restore(cfg.FS, "backup", "second", "", [][]byte{guard}, false)
	if err != nil {
		t.Fatal(err)
	}
	witnessed := openLedger(t, restored)
	if err := NewCosigning(CosigningConfig{Ledger: witnessed, Witnesses: witnesses, Path: "new/cosigned", FS: cfg.FS}).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	older := openLedger(t, second)
	err = NewCosigning(CosigningConfig{Ledger: older, Witnesses: witnesses, Path: "second/cosigned", FS: cfg.FS}).round(t.Context())
	wantCode(t, err, fault.Corrupt, "LEDGER_ROLLED_BACK")
	_, err = older.Register(t.Context(), []chain.Entry{chaintest.Entry(10)})
	wantCode(t, err, fault.Transient, "LEDGER_UNWITNESSED")
}
