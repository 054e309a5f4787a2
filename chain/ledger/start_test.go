package ledger

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// keepCosigning carries out a cosigning until the test ends, or the function it returns is
// called.
func keepCosigning(t *testing.T, c *Cosigning) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// startCosigning begins as an aggregator does that has enrolled these witnesses.
func startCosigning(l *Ledger, w Witnesses, enrolled int, log *slog.Logger) *Cosigning {
	return NewCosigning(CosigningConfig{Ledger: l, Witnesses: w, Path: "cosigned", FS: vfs.NewMem(), Enrolled: enrolled, Log: log})
}

// The whole directory, guard included, is an older copy: only the witnesses know.
// Nothing is sealed before they were asked, and nothing ever after.
func TestLedgerFromAnOlderCopySealsNothingAtItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cfg := newLedger(t)
		h := held{}
		h.register(t, l, 1, 2)
		closeLedger(t, l)
		copied := copyOf(t, cfg)
		l = openLedger(t, cfg)
		held{}.register(t, l, 3)
		w := newWitnesses(t, "archive-a", "archive-b")
		if err := newCosigning(l, w, vfs.NewMem()).round(t.Context()); err != nil {
			t.Fatal(err)
		}

		older := openLedger(t, copied)
		w.away = []wire.ArchiveID{"archive-a", "archive-b"} // no hello was heard yet
		c := startCosigning(older, w, 2, nil)
		refused := make(chan error, 2)
		go func() {
			_, err := older.Register(t.Context(), []chain.Entry{chaintest.Entry(9)})
			refused <- err
		}()
		go func() {
			_, _, err := older.Lookup(t.Context(), chaintest.Digest(3))
			refused <- err
		}()
		defer keepCosigning(t, c)()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if len(refused) > 0 || older.head.Load().size != 2 {
			t.Fatalf("before a witness was asked there are %d answers, and %d leaves", len(refused), older.head.Load().size)
		}
		w.mu.Lock()
		w.away = nil
		w.mu.Unlock()
		for range 2 {
			wantCode(t, <-refused, fault.Transient, "LEDGER_STOPPED", "has seen a checkpoint over 3")
		}
		if older.head.Load().size != 2 {
			t.Error("it has sealed")
		}
		_, _, err := older.Lookup(t.Context(), chaintest.Digest(3))
		wantCode(t, err, fault.Transient, "LEDGER_STOPPED")
		h.unchanged(t, older)
	})
}

func TestStartWaitsForWitnessesButNotForEver(t *testing.T) {
	none := func(wire.WitnessReply) (wire.WitnessReply, error) {
		return wire.WitnessReply{}, fault.New(fault.Transient, "WITNESS_FILE", "no")
	}
	for name, c := range map[string]struct {
		enrolled int
		away     []wire.ArchiveID
		lie      func(wire.WitnessReply) (wire.WitnessReply, error)
		atMost   time.Duration
		warning  string
	}{
		"nobody is enrolled":     {0, nil, nil, 0, ""},
		"all have cosigned":      {2, nil, nil, 0, ""},
		"one was not heard":      {2, []wire.ArchiveID{"archive-a"}, nil, DefaultStartWait, "others were not heard"},
		"nobody was heard":       {2, []wire.ArchiveID{"archive-a", "archive-b"}, nil, DefaultStartWait, "level=WARN msg=\"no archive was heard"},
		"one is there and silly": {2, nil, none, DefaultStartWait, "level=WARN msg=\"archives that are there have not cosigned"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := newLedger(t)
				w := newWitnesses(t, "archive-a", "archive-b")
				w.away, w.all["archive-a"].lie = c.away, c.lie
				var log bytes.Buffer
				cosigning := startCosigning(l, w, c.enrolled, slog.New(slog.NewTextHandler(&log, nil)))
				defer keepCosigning(t, cosigning)()
				begun := time.Now()
				held{}.register(t, l, 1)
				if took := time.Since(begun); took != c.atMost {
					t.Errorf("the first seal took %v, not %v", took, c.atMost)
				}
				synctest.Wait()
				if !strings.Contains(log.String(), c.warning) || c.warning == "" && log.Len() > 0 {
					t.Errorf("the log: %s", log.String())
				}
			})
		})
	}
}

// An archive that was heard and does not answer takes its time, and no more.
func TestStartIsNotHeldUpByASilentWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLedger(t)
		w := silent{newWitnesses(t, "archive-a", "archive-b"), "archive-a"}
		defer keepCosigning(t, startCosigning(l, w, 2, nil))()
		begun := time.Now()
		held{}.register(t, l, 1)
		if took := time.Since(begun); took > DefaultStartWait+2*DefaultCosignTimeout {
			t.Errorf("the first seal took %v", took)
		}
	})
}

func TestStartAnswersWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cfg := newLedger(t)
		h := held{}
		h.register(t, l, 1)
		closeLedger(t, l)
		l = openLedger(t, cfg)
		startCosigning(l, newWitnesses(t), 1, nil) // never run: the start does not end
		h.unchanged(t, l)
		if seals, err := l.Register(t.Context(), []chain.Entry{chaintest.Entry(1)}); err != nil || seals[0] != h[1].seal {
			t.Errorf("%+v, %v", seals, err)
		}
		if err := l.Ready(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Register(ctx, []chain.Entry{chaintest.Entry(1), chaintest.Entry(2)})
		wantCode(t, err, fault.Transient, "LEDGER_UNWITNESSED", "just started")
		_, _, err = l.Lookup(ctx, chaintest.Digest(2))
		wantCode(t, err, fault.Transient, "LEDGER_UNWITNESSED", "just started")

		closed := make(chan error)
		go func() {
			_, err := l.Register(t.Context(), []chain.Entry{chaintest.Entry(2)})
			closed <- err
		}()
		synctest.Wait()
		closeLedger(t, l)
		wantCode(t, <-closed, fault.Transient, "LEDGER_CLOSED")
	})
}

// No time ends the probation after a restore.
func TestRestoredLedgerIsNotReleasedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLedger(t)
		l.unwitnessed.Store(true)
		defer keepCosigning(t, startCosigning(l, newWitnesses(t), 1, nil))()
		time.Sleep(time.Minute)
		_, err := l.Register(t.Context(), []chain.Entry{chaintest.Entry(1)})
		wantCode(t, err, fault.Transient, "LEDGER_UNWITNESSED", "restored")
	})
}

// It may have sealed what it does not find.
func TestLedgerThatMayHaveLostSealsDeniesNone(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	h.register(t, l, 1)
	if _, ok, err := l.Lookup(t.Context(), chaintest.Digest(2)); ok || err != nil {
		t.Errorf("a whole ledger: %v, %v", ok, err)
	}
	l.unwitnessed.Store(true)
	_, _, err := l.Lookup(t.Context(), chaintest.Digest(2))
	wantCode(t, err, fault.Transient, "LEDGER_UNWITNESSED", "restored")
	h.unchanged(t, l)
	l.apply = func(*pebble.Batch) error { return errors.New("disk gone") }
	l.unwitnessed.Store(false)
	if _, err := l.Register(t.Context(), []chain.Entry{chaintest.Entry(2)}); err == nil {
		t.Fatal("it has sealed")
	}
	_, _, err = l.Lookup(t.Context(), chaintest.Digest(2))
	wantCode(t, err, fault.Transient, "LEDGER_STOPPED", "disk gone")
	h.unchanged(t, l)
}

// The seals that no witness knows of are those of the last DefaultCosignEvery.
func TestSealIsWitnessedWithinCosignEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLedger(t)
		w := newWitnesses(t, "archive-a")
		defer keepCosigning(t, startCosigning(l, w, 1, nil))()
		for n := range 5 {
			held{}.register(t, l, n)
			time.Sleep(DefaultCosignEvery)
			synctest.Wait()
			w.mu.Lock()
			if seen := w.all["archive-a"].seen.Size; seen != int64(n+1) {
				t.Errorf("of %d leaves the witness has seen %d", n+1, seen)
			}
			w.mu.Unlock()
		}
		asked := w.all["archive-a"].asked
		time.Sleep(time.Minute)
		if w.all["archive-a"].asked != asked {
			t.Error("a log at rest was shown again")
		}
	})
}

// The last seals before a stop are witnessed, unless nobody is there.
func TestStopWaitsForTheLastCosignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLedger(t)
		w := newWitnesses(t, "archive-a")
		c := startCosigning(l, w, 1, nil)
		defer keepCosigning(t, c)()
		for n := range 3 {
			held{}.register(t, l, n)
			c.Settle(t.Context())
			w.mu.Lock()
			if seen := w.all["archive-a"].seen.Size; seen != int64(n+1) {
				t.Errorf("of %d leaves the witness has seen %d", n+1, seen)
			}
			w.mu.Unlock()
		}
		w.mu.Lock()
		w.away = []wire.ArchiveID{"archive-a"}
		w.mu.Unlock()
		held{}.register(t, l, 3)
		c.Settle(t.Context()) // nobody is there
	})
}

// A witness that can not cosign is not asked ten times a second for that.
func TestWitnessThatFailsIsLeftAloneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLedger(t)
		w := newWitnesses(t, "archive-a")
		w.all["archive-a"].lie = func(wire.WitnessReply) (wire.WitnessReply, error) {
			return wire.WitnessReply{}, errors.New("no answer")
		}
		stop := keepCosigning(t, startCosigning(l, w, 1, nil))
		time.Sleep(10*time.Second - time.Millisecond)
		stop()
		if asked := w.all["archive-a"].asked; asked != 10 {
			t.Errorf("asked %d times in ten seconds", asked)
		}
	})
}
