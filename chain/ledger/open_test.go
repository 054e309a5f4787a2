package ledger

import (
	"bufio"
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
)

func TestSecondOpenOfOneDirectoryIsRefused(t *testing.T) {
	cfg := testConfig(vfs.Default)
	cfg.Dir = t.TempDir()
	initLedger(t, cfg)
	l := openLedger(t, cfg)
	h := held{}
	h.register(t, l, 1)
	_, err := Open(cfg)
	wantCode(t, err, fault.Conflict, "LEDGER_IN_USE", "in use")

	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpenInAnotherProcess$", "-test.v")
	other.Env = append(os.Environ(), "LEDGER_TEST_DIR="+cfg.Dir)
	out, err := other.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("code LEDGER_IN_USE")) {
		t.Errorf("another process: %v\n%s", err, out)
	}
	h.register(t, l, 2)
	h.check(t, l)
}

// TestOpenInAnotherProcess is the other process of the test above.
func TestOpenInAnotherProcess(t *testing.T) {
	dir := os.Getenv("LEDGER_TEST_DIR")
	if dir == "" {
		return // run by itself there is nothing to do
	}
	cfg := testConfig(vfs.Default)
	cfg.Dir = dir
	l, err := Open(cfg)
	if err == nil {
		closeLedger(t, l)
	}
	t.Logf("code %s: %v", fault.CodeOf(err), err)
}

func TestClockBehindTheLogIsTold(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	cfg := testConfig(vfs.NewMem())
	cfg.Now = func() time.Time { return now }
	initLedger(t, cfg)
	l := openLedger(t, cfg)
	h := held{}
	h.register(t, l, 1)
	closeLedger(t, l)

	now = now.Add(-2 * clockWarning)
	cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	l = openLedger(t, cfg)
	h.register(t, l, 2)
	h.check(t, l)
	if !h[2].seal.Time.Equal(h[1].seal.Time) {
		t.Errorf("time went from %v to %v", h[1].seal.Time, h[2].seal.Time)
	}
	warned := false
	for s := bufio.NewScanner(&out); s.Scan(); {
		warned = warned || strings.Contains(s.Text(), "level=WARN") && strings.Contains(s.Text(), "clock")
	}
	if !warned {
		t.Error("nobody was told that the clock is behind")
	}
	if _, ok, err := l.Lookup(t.Context(), chaintest.Digest(3)); ok || err != nil {
		t.Error(ok, err)
	}
}
