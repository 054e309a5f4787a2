package ledger

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// files lists all files under dir.
func files(t testing.TB, fs vfs.FS, dir string) (out []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			out = append(out, files(t, fs, path)...)
		} else if info.Size() > 0 {
			out = append(out, path)
		}
	}
	return out
}

// TestFlippedBitIsNoticedOrIrrelevant flips single bits in every file of a small
// ledger. It does not open, or its check tells, or all is as it was.
func TestFlippedBitIsNoticedOrIrrelevant(t *testing.T) {
	perFile := 250
	if testing.Short() {
		perFile = 40
	}
	cfg, _, h := small(t)
	l := openLedger(t, cfg) // what was in the log is in a table now
	h.register(t, l, 6, 7)
	closeLedger(t, l)
	rng := rand.New(rand.NewPCG(7, 7))
	outcomes := map[string]int{}
	for _, path := range files(t, cfg.FS, cfg.Dir) {
		info, err := cfg.FS.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range perFile {
			offset := rng.Int64N(info.Size())
			if perFile >= int(info.Size()) {
				offset = int64(n) % info.Size()
			}
			bad := copyOf(t, cfg)
			flip(t, bad.FS, path, offset, rng.IntN(8))
			outcomes[afterFlip(t, bad, h, fmt.Sprintf("%s, byte %d", path, offset))]++
		}
	}
	t.Logf("%v", outcomes)
	for _, outcome := range []string{"refused", "found by check", "irrelevant"} {
		if outcomes[outcome] == 0 {
			t.Errorf("no flip was %s: the test looks at the wrong files", outcome)
		}
	}
}

func flip(t testing.TB, fs vfs.FS, path string, offset int64, bit int) {
	t.Helper()
	mem, ok := fs.(*vfs.MemFS)
	if !ok {
		t.Fatal("not in memory")
	}
	data, err := mem.UnsafeGetFileDataBuffer(path)
	if err != nil {
		t.Fatal(err)
	}
	data[offset] ^= 1 << bit
}

func afterFlip(t *testing.T, cfg Config, h held, what string) (outcome string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if !strings.Contains(fmt.Sprint(r), "pebble") && !strings.Contains(fmt.Sprint(r), "injected") {
				t.Logf("%s: the store ended the process: %v", what, r)
			}
			outcome = "refused"
		}
	}()
	l, err := Open(cfg)
	if err != nil {
		return "refused"
	}
	defer closeLedger(t, l)
	if err := l.Check(t.Context()); err != nil {
		nothingFalse(t, l, h)
		return "found by check"
	}
	h.unchanged(t, l)
	h2 := held{}
	h2.register(t, l, 50, 51)
	h2.check(t, l)
	return "irrelevant"
}
