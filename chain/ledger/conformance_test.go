package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
)

func TestConformance(t *testing.T) {
	chaintest.Run(t, func(t *testing.T, now func() time.Time) *chaintest.Chain {
		mem := vfs.NewCrashableMem()
		cfg := testConfig(mem)
		cfg.Now = now
		initLedger(t, cfg)
		l := openLedger(t, cfg)
		return &chaintest.Chain{
			Ledger:      l,
			VerifierKey: l.VerifierKey(),
			Check:       func(ctx context.Context) error { return l.Check(ctx) },
			Reopen: func(t *testing.T) chain.Ledger {
				closeLedger(t, l)
				l = openLedger(t, cfg)
				return l
			},
			Crash: func(t *testing.T) chain.Ledger {
				mem = mem.CrashClone(vfs.CrashCloneCfg{})
				cfg.FS = mem
				l = openLedger(t, cfg)
				return l
			},
		}
	})
}

// TestConformanceOnDisk runs the same laws on the real file system.
func TestConformanceOnDisk(t *testing.T) {
	chaintest.Run(t, func(t *testing.T, now func() time.Time) *chaintest.Chain {
		cfg := testConfig(vfs.Default)
		cfg.Dir, cfg.Now = t.TempDir(), now
		initLedger(t, cfg)
		l := openLedger(t, cfg)
		return &chaintest.Chain{
			Ledger:      l,
			VerifierKey: l.VerifierKey(),
			Check:       func(ctx context.Context) error { return l.Check(ctx) },
			Reopen: func(t *testing.T) chain.Ledger {
				if err := errors.Join(l.Close(), l.Close()); err != nil {
					t.Fatal(err)
				}
				l = openLedger(t, cfg)
				return l
			},
		}
	})
}
