package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/chain/ledger"
)

const dir = "data/ledger"

// must returns v, or fails the test.
func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// open makes or opens the ledger of cfg and closes it when the test is done.
func open(t testing.TB, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	if ok, err := exists(cfg.FS, cfg.FS.PathJoin(cfg.Dir, "ledger.key")); err != nil {
		t.Fatal(err)
	} else if !ok {
		if err := ledger.Init(cfg); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func exists(fs vfs.FS, path string) (bool, error) {
	names, err := fs.List(fs.PathDir(path))
	if err != nil {
		return false, nil //nolint // a directory that is not there holds nothing
	}
	for _, n := range names {
		if n == fs.PathBase(path) {
			return true, nil
		}
	}
	return false, nil
}

func TestConformance(t *testing.T) {
	chaintest.Run(t, func(t *testing.T, now func() time.Time) *chaintest.Chain {
		cfg := ledger.Config{Dir: dir, FS: vfs.NewCrashableMem(), Now: now}
		l := open(t, cfg)
		c := &chaintest.Chain{Ledger: l, VerifierKey: l.VerifierKey()}
		c.Check = func(ctx context.Context) error { return l.Check(ctx) }
		c.Reopen = func(t *testing.T) chain.Ledger {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open(t, cfg)
			return l
		}
		c.Crash = func(t *testing.T) chain.Ledger {
			mem, ok := cfg.FS.(*vfs.MemFS)
			if !ok {
				t.Fatal("not a crashable file system")
			}
			cfg.FS = mem.CrashClone(vfs.CrashCloneCfg{})
			l = open(t, cfg)
			return l
		}
		return c
	})
}
