package ledger

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
)

const testDir = "data/ledger"

// testConfig is a ledger in fs whose guard is written only by Close, and which
// panics when its store fails.
func testConfig(fs vfs.FS) Config {
	return Config{
		Dir: testDir, FS: fs, GuardEvery: time.Hour,
		OnFatal: func(reason string) { panic(reason) },
	}
}

func initLedger(t testing.TB, cfg Config) {
	t.Helper()
	if err := Init(cfg); err != nil {
		t.Fatal(err)
	}
}

// openLedger opens a ledger and closes it when the test is done.
func openLedger(t testing.TB, cfg Config) *Ledger {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLedger(t, l) })
	return l
}

func closeLedger(t testing.TB, l *Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// newLedger makes and opens a ledger in a new memory.
func newLedger(t testing.TB) (*Ledger, Config) {
	t.Helper()
	cfg := testConfig(vfs.NewMem())
	initLedger(t, cfg)
	return openLedger(t, cfg), cfg
}

// held is what clients got and must get again.
type held map[int]receipt

type receipt struct {
	seal chain.Seal
	cert string
}

// register seals documents, one call each if apart, and holds their receipts.
func (h held) register(t testing.TB, l *Ledger, documents ...int) {
	t.Helper()
	entries := make([]chain.Entry, len(documents))
	for i, n := range documents {
		entries[i] = chaintest.Entry(n)
	}
	seals, err := l.Register(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range documents {
		cert, err := l.Certificate(t.Context(), seals[i])
		if err != nil {
			t.Fatal(err)
		}
		h[n] = receipt{seals[i], cert}
	}
}

// check has the ledger checked as a whole and every receipt got anew.
func (h held) check(t testing.TB, l *Ledger) {
	t.Helper()
	if err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.unchanged(t, l)
	for n, want := range h {
		if err := chaintest.Verify(want.cert, want.seal, l.VerifierKey()); err != nil {
			t.Fatalf("document %d: %v", n, err)
		}
	}
}

func (h held) unchanged(t testing.TB, l *Ledger) {
	t.Helper()
	for n, want := range h {
		seal, ok, err := l.Lookup(t.Context(), chaintest.Digest(n))
		if err != nil || !ok || seal != want.seal {
			t.Fatalf("document %d: %+v, ok=%v, %v; it was %+v", n, seal, ok, err, want.seal)
		}
		cert, err := l.Certificate(t.Context(), seal)
		if err != nil || cert != want.cert {
			t.Fatalf("document %d: certificate\n%s\n%v; it was\n%s", n, cert, err, want.cert)
		}
	}
}

// wantCode fails unless err is a fault of a kind and code that says all of words.
func wantCode(t testing.TB, err error, kind fault.Kind, code string, words ...string) {
	t.Helper()
	if err == nil || !fault.Is(err, kind) || fault.CodeOf(err) != code {
		t.Fatalf("%v (%v, code %q); want %v, code %q", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message does not name %q: %v", w, err)
		}
	}
}

// copyTree copies a directory between file systems.
func copyTree(t testing.TB, from, to vfs.FS, fromDir, toDir string) {
	t.Helper()
	if err := to.MkdirAll(to.PathDir(toDir), 0o755); err != nil {
		t.Fatal(err)
	}
	ok, err := vfs.Clone(from, to, fromDir, toDir, vfs.CloneSync)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
}

// copyOf returns a ledger's files in a memory of their own.
func copyOf(t testing.TB, cfg Config) Config {
	t.Helper()
	fs := vfs.NewMem()
	copyTree(t, cfg.FS, fs, cfg.Dir, cfg.Dir)
	cfg.FS = fs
	return cfg
}

func removeAll(t testing.TB, fs vfs.FS, paths ...string) {
	t.Helper()
	var err error
	for _, p := range paths {
		err = errors.Join(err, fs.RemoveAll(p))
	}
	if err != nil {
		t.Fatal(err)
	}
}
