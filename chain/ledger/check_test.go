package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
)

// small makes a closed ledger of three blocks: leaf 0, leaves 1 to 4, leaf 5.
func small(t testing.TB) (Config, *Ledger, held) {
	t.Helper()
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 0)
	h.register(t, l, 1, 2, 3, 4)
	h.register(t, l, 5)
	closeLedger(t, l)
	return cfg, l, h
}

// tampered returns a copy of a closed ledger that was changed.
func tampered(t *testing.T, cfg Config, c tampering) Config {
	t.Helper()
	cfg = copyOf(t, cfg)
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	batch := l.db.NewBatch()
	err = errors.Join(c.change(l, batch), batch.Commit(pebble.Sync), batch.Close(), l.Close())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestCheckFindsEveryContradiction changes a store in ways that leave every
// checksum right. The ledger must not open, or its check must tell.
func TestCheckFindsEveryContradiction(t *testing.T) {
	cfg, _, h := small(t)
	for _, c := range tamperings(h) {
		t.Run(c.name, func(t *testing.T) {
			l, err := Open(tampered(t, cfg, c))
			if err == nil {
				defer closeLedger(t, l)
				err = l.Check(t.Context())
			}
			if err == nil {
				t.Fatal("nobody noticed")
			}
			if kind := fault.KindOf(err); kind != fault.Corrupt && fault.CodeOf(err) != "LEDGER_KEY" {
				t.Errorf("%v is %v, want corrupt", err, kind)
			}
			if l != nil {
				nothingFalse(t, l, h)
			}
		})
	}
}

// TestOpenFindsADamagedEnd: without any check, and without the guard, a ledger
// does not go on from an end that is not whole.
func TestOpenFindsADamagedEnd(t *testing.T) {
	cfg, l, h := small(t)
	damages := map[string]bool{
		"last leaf lost": true, "all leaves lost": true, "a leaf too many": true, "last tree hash lost": true, "a tree hash too many": true,
		"last block lost": true, "last block with another root, signed": true, "meta row lost": true,
	}
	for _, c := range tamperings(h) {
		if !damages[c.name] {
			continue
		}
		delete(damages, c.name)
		bad := tampered(t, cfg, c)
		removeAll(t, bad.FS, l.cfg.Guard)
		bad.AdoptStore = true
		_, err := Open(bad)
		wantCode(t, err, fault.Corrupt, "LEDGER_DAMAGED")
	}
	if len(damages) > 0 {
		t.Errorf("not tried: %v", damages)
	}
}

// TestCheckpointOfAnotherBlockIsNotGivenOut: the cheap part of the check is made
// on every read of a block.
func TestCheckpointOfAnotherBlockIsNotGivenOut(t *testing.T) {
	cfg, _, h := small(t)
	for _, c := range tamperings(h) {
		if c.name != "checkpoint of another block" {
			continue
		}
		l := openLedger(t, tampered(t, cfg, c))
		_, err := l.Certificate(t.Context(), h[2].seal)
		wantCode(t, err, fault.Corrupt, "LEDGER_DAMAGED", "block 1")
		return
	}
	t.Error("not tried")
}

// TestCheckFindsTimeThatWentBack has the committer forget the time of the newest
// block: everything is signed and consistent, but the order of time is not.
func TestCheckFindsTimeThatWentBack(t *testing.T) {
	now := sampleTime
	cfg := testConfig(vfs.NewMem())
	cfg.Now = func() time.Time { return now }
	initLedger(t, cfg)
	l := openLedger(t, cfg)
	h := held{}
	h.register(t, l, 1)
	forgetful := *l.head.Load()
	forgetful.time = time.Unix(0, 0)
	l.head.Store(&forgetful)
	now = now.Add(-1)
	h.register(t, l, 2)
	wantCode(t, l.Check(t.Context()), fault.Corrupt, "LEDGER_DAMAGED", "earlier")
}

// nothingFalse checks that what a damaged ledger gives out is what it gave out
// before, or an error, but never something else that would be believed.
func nothingFalse(t *testing.T, l *Ledger, h held) {
	t.Helper()
	for n, want := range h {
		cert, err := l.Certificate(t.Context(), want.seal)
		if err == nil && cert != want.cert && chaintest.Verify(cert, want.seal, l.VerifierKey()) == nil {
			t.Errorf("document %d: another certificate\n%s", n, cert)
		}
		if err != nil && fault.Is(err, fault.Invalid) {
			t.Errorf("document %d: the client is blamed: %v", n, err)
		}
	}
}

func TestCheckPassesOnEveryHealthyLedger(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.check(t, l)
	next := 0
	for size := range 12 {
		documents := make([]int, size+1)
		for i := range documents {
			documents[i] = next + i
		}
		next += len(documents)
		h.register(t, l, documents...)
		if err := l.Check(t.Context()); err != nil {
			t.Fatalf("%d leaves: %v", next, err)
		}
	}
	closeLedger(t, l)
	h.check(t, openLedger(t, cfg))
}

// TestCheckRunsBesideRegister: a check of a growing ledger is about a state that
// was, not a mixture.
func TestCheckRunsBesideRegister(t *testing.T) {
	l, _ := newLedger(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 200 {
			if _, err := l.Register(t.Context(), chaintest.Entries(3*n, 3)); err != nil {
				t.Error(err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if err := l.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
