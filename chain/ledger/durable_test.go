package ledger

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// TestNothingIsShownBeforeItIsDurable holds a commit between its being readable
// and its sync.
func TestNothingIsShownBeforeItIsDurable(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	h.register(t, l, 1)
	latest := string(l.Latest())
	readable, release := make(chan struct{}), make(chan struct{})
	durably := l.apply
	l.apply = func(b *pebble.Batch) error {
		if err := l.db.Apply(b, pebble.NoSync); err != nil {
			return err
		}
		close(readable)
		<-release
		return l.db.LogData(nil, pebble.Sync)
	}
	entry := chaintest.Entry(2)
	answered := make(chan chain.Seal, 1)
	go func() {
		defer close(answered)
		if seals, err := l.Register(t.Context(), []chain.Entry{entry}); err == nil {
			answered <- seals[0]
		}
	}()
	<-readable
	if _, closer, err := l.db.Get(sealKey(entry.Digest)); err != nil {
		t.Fatalf("the row should be readable by now: %v", err)
	} else if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	if s, ok, err := l.Lookup(t.Context(), entry.Digest); ok || err != nil {
		t.Errorf("shown before its sync: %+v, %v", s, err)
	}
	early := chain.Seal{Digest: entry.Digest, LeafIndex: 1, BlockIndex: 1, TreeSize: 2, Time: time.Now(), Origin: l.Origin()}
	if _, err := l.Certificate(t.Context(), early); !fault.Is(err, fault.NotFound) {
		t.Errorf("certificate before the sync: %v", err)
	}
	if string(l.Latest()) != latest {
		t.Error("the checkpoint is published before the sync")
	}
	close(release)
	seal := <-answered
	if got, ok, err := l.Lookup(t.Context(), entry.Digest); !ok || err != nil || got != seal {
		t.Errorf("after the sync: %+v, %v, %v", got, ok, err)
	}
	l.apply = durably
	h.register(t, l, 2)
	h.check(t, l)
}

// TestGuardAgainstASecondRow: should the committer ever be wrong about what is
// there, the batch does not pass, and sealing stops.
func TestGuardAgainstASecondRow(t *testing.T) {
	for name, change := range map[string]func(l *Ledger, b *pebble.Batch) error{
		"leaf":   func(_ *Ledger, b *pebble.Batch) error { return b.Set(numberKey(prefixLeaf, 0), nil, nil) },
		"hash":   func(_ *Ledger, b *pebble.Batch) error { return b.Set(numberKey(prefixHash, 3), nil, nil) },
		"block":  func(_ *Ledger, b *pebble.Batch) error { return b.Set(numberKey(prefixBlock, 0), nil, nil) },
		"seal":   func(_ *Ledger, b *pebble.Batch) error { return b.Set(sealKey(chaintest.Digest(1)), nil, nil) },
		"meta":   func(_ *Ledger, b *pebble.Batch) error { return b.Set(metaKey(), nil, nil) },
		"delete": func(_ *Ledger, b *pebble.Batch) error { return b.Delete(numberKey(prefixLeaf, 9), nil) },
		"twice": func(_ *Ledger, b *pebble.Batch) error {
			return errors.Join(b.Set(numberKey(prefixLeaf, 9), nil, nil), b.Set(numberKey(prefixLeaf, 9), nil, nil))
		},
	} {
		l, _ := newLedger(t)
		held{}.register(t, l, 1, 2, 3)
		known := map[wire.Digest]chain.Seal{chaintest.Digest(1): {}}
		batch := l.db.NewBatch()
		if err := change(l, batch); err != nil {
			t.Fatal(err)
		}
		b := &block{blockRow: blockRow{index: 1, first: 3}}
		if err := l.write(b, batch, known); err == nil {
			t.Errorf("%s: the batch was committed", name)
		}
		if err := errors.Join(batch.Close(), l.Check(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClosedLedgerAnswersWithAnError(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1)
	closeLedger(t, l)
	_, err := l.Register(t.Context(), chaintest.Entries(1, 1))
	wantCode(t, err, fault.Transient, "LEDGER_CLOSED")
	_, _, err = l.Lookup(t.Context(), chaintest.Digest(1))
	wantCode(t, err, fault.Transient, "LEDGER_CLOSED")
	_, err = l.Certificate(t.Context(), h[1].seal)
	wantCode(t, err, fault.Transient, "LEDGER_CLOSED")
	_, err = l.Consistency(t.Context(), 0, 1)
	wantCode(t, err, fault.Transient, "LEDGER_CLOSED")
	wantCode(t, l.Check(t.Context()), fault.Transient, "LEDGER_CLOSED")
	closeLedger(t, l) // again
	h.check(t, openLedger(t, cfg))
}

// TestCloseUnderLoad: every call that was under way gets an answer, and what was
// answered is there after the next open.
func TestCloseUnderLoad(t *testing.T) {
	l, cfg := newLedger(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	h := held{}
	started := make(chan struct{}, 64)
	for w := range 8 {
		wg.Go(func() {
			for n := 1000 * w; ; n++ {
				seals, err := l.Register(t.Context(), chaintest.Entries(n, 1))
				if err != nil {
					if fault.CodeOf(err) != "LEDGER_CLOSED" {
						t.Errorf("document %d: %v", n, err)
					}
					return
				}
				cert, err := l.Certificate(t.Context(), seals[0])
				if err == nil {
					mu.Lock()
					h[n] = receipt{seals[0], cert}
					mu.Unlock()
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 20 {
		<-started
	}
	closeLedger(t, l)
	wg.Wait()
	h.check(t, openLedger(t, cfg))
}
