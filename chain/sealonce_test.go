package chain_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// newLedger returns an embedded ledger in memory behind a Faulty.
func newLedger(t *testing.T) *chaintest.Faulty {
	t.Helper()
	cfg := ledger.Config{Dir: "ledger", FS: vfs.NewMem()}
	if err := ledger.Init(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Check(context.Background()), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return &chaintest.Faulty{Ledger: l}
}

func sealOnce(t *testing.T, l chain.Ledger, entries ...chain.Entry) []chain.Seal {
	t.Helper()
	seals, err := chain.SealOnce(t.Context(), l, entries)
	if err != nil {
		t.Fatal(err)
	}
	return seals
}

func TestSealOnceReturnsTheFirstSealForEver(t *testing.T) {
	l := newLedger(t)
	first := chaintest.Entry(1)
	seal := sealOnce(t, l, first)[0]
	for range 3 {
		if got := sealOnce(t, l, chaintest.Entry(1))[0]; got != seal {
			t.Errorf("%+v, first %+v", got, seal)
		}
	}
	if seal.JobID != first.JobID || seal.SubmissionID != first.SubmissionID || seal.FileID != first.FileID {
		t.Errorf("%+v is not of %+v", seal, first)
	}
	if registers, lookups, _ := l.Calls(); registers != 1 || lookups != 4 {
		t.Errorf("%d registers, %d lookups; want one register and a lookup before each", registers, lookups)
	}
}

func TestSealOnceKeepsTheOrderOfEntries(t *testing.T) {
	l := newLedger(t)
	old := sealOnce(t, l, chaintest.Entries(0, 3)...)
	entries := []chain.Entry{chaintest.Entry(5), chaintest.Entry(2), chaintest.Entry(4), chaintest.Entry(5), chaintest.Entry(0)}
	got := sealOnce(t, l, entries...)
	for i, e := range entries {
		if got[i].Digest != e.Digest {
			t.Errorf("seal %d is of %s, entry of %s", i, got[i].Digest, e.Digest)
		}
	}
	if got[1] != old[2] || got[4] != old[0] || got[0] != got[3] || got[0].JobID != entries[0].JobID {
		t.Error("an existing seal or the first of two entries was passed over")
	}
	if n := len(sealOnce(t, l)); n != 0 {
		t.Errorf("no entries gave %d seals", n)
	}
}

func TestSealOnceTakesMoreThanOneCallHolds(t *testing.T) {
	l := newLedger(t)
	seals := sealOnce(t, l, chaintest.Entries(0, 2*chain.MaxEntries+1)...)
	for i, s := range seals {
		if s.LeafIndex != int64(i) {
			t.Fatalf("entry %d has leaf %d", i, s.LeafIndex)
		}
	}
	if registers, _, _ := l.Calls(); registers != 3 {
		t.Errorf("%d calls of Register, want 3", registers)
	}
}

// TestLostAnswerMakesNoSecondSeal is the fault table of the gate: whatever fails
// at whatever call, the retry ends with one leaf per digest.
func TestLostAnswerMakesNoSecondSeal(t *testing.T) {
	for _, how := range []chaintest.Outcome{chaintest.FailsBefore, chaintest.FailsAfter} {
		for failing := int64(1); failing <= 3; failing++ {
			l := newLedger(t)
			l.OnRegister = func(call int64) chaintest.Outcome {
				if call == failing {
					return how
				}
				return chaintest.Works
			}
			entries := chaintest.Entries(0, 2*chain.MaxEntries+5) // three calls of Register
			if _, err := chain.SealOnce(t.Context(), l, entries); !errors.Is(err, chaintest.ErrInjected) || !fault.Is(err, fault.Transient) {
				t.Fatalf("call %d fails: %v", failing, err)
			}
			retry := chaintest.Entries(0, len(entries))
			seals := sealOnce(t, l, retry...)
			for i, s := range seals {
				if s.LeafIndex != int64(i) {
					t.Fatalf("call %d fails: entry %d has leaf %d", failing, i, s.LeafIndex)
				}
				done := int64(i/chain.MaxEntries) + 1 // the call of the first try that brought it
				first := done < failing || done == failing && how == chaintest.FailsAfter
				if first != (s.JobID == entries[i].JobID) {
					t.Fatalf("call %d fails: entry %d belongs to another job", failing, i)
				}
			}
		}
	}
}

func TestFailedLookupRegistersNothing(t *testing.T) {
	l := newLedger(t)
	l.OnLookup = func(call int64) chaintest.Outcome {
		if call == 2 {
			return chaintest.FailsBefore
		}
		return chaintest.Works
	}
	_, err := chain.SealOnce(t.Context(), l, chaintest.Entries(0, 3))
	if !errors.Is(err, chaintest.ErrInjected) {
		t.Fatal(err)
	}
	if registers, _, _ := l.Calls(); registers != 0 {
		t.Error("registered without knowing what is sealed")
	}
}

func TestBadEntryAsksNothingOfTheLedger(t *testing.T) {
	for field, change := range map[string]func(*chain.Entry){
		"sha256":       func(e *chain.Entry) { e.Digest = wire.Digest{} },
		"jobId":        func(e *chain.Entry) { e.JobID = "job 1" },
		"submissionId": func(e *chain.Entry) { e.SubmissionID = "submission 1" },
	} {
		l := newLedger(t)
		entries := chaintest.Entries(0, 2)
		change(&entries[1])
		_, err := chain.SealOnce(t.Context(), l, entries)
		if !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != field {
			t.Errorf("%s: %v (field %q)", field, err, fault.FieldOf(err))
		}
		if registers, lookups, _ := l.Calls(); registers+lookups != 0 {
			t.Errorf("%s: the ledger was asked", field)
		}
	}
}

// liar answers with seals that were changed.
type liar struct {
	chain.Ledger
	register func([]chain.Seal) []chain.Seal
	lookup   func(*chain.Seal)
}

func (l liar) Register(ctx context.Context, entries []chain.Entry) ([]chain.Seal, error) {
	seals, err := l.Ledger.Register(ctx, entries)
	if l.register != nil {
		seals = l.register(seals)
	}
	return seals, err
}

func (l liar) Lookup(ctx context.Context, d wire.Digest) (chain.Seal, bool, error) {
	s, ok, err := l.Ledger.Lookup(ctx, d)
	if l.lookup != nil && ok {
		l.lookup(&s)
	}
	return s, ok, err
}

var lies = map[string]func(*chain.Seal){
	"another digest":   func(s *chain.Seal) { s.Digest = chaintest.Digest(99) },
	"negative leaf":    func(s *chain.Seal) { s.LeafIndex = -1 },
	"negative block":   func(s *chain.Seal) { s.BlockIndex = -1 },
	"outside the tree": func(s *chain.Seal) { s.TreeSize = s.LeafIndex },
	"no time":          func(s *chain.Seal) { s.Time = time.Time{} },
	"no origin":        func(s *chain.Seal) { s.Origin = "" },
	"no job":           func(s *chain.Seal) { s.JobID = "" },
}

func TestAnswerThatDoesNotFitIsNotBelieved(t *testing.T) {
	check := func(t *testing.T, l chain.Ledger) {
		t.Helper()
		seals, err := chain.SealOnce(t.Context(), l, chaintest.Entries(0, 3))
		if err == nil {
			t.Fatalf("believed %+v", seals)
		}
		if fault.CodeOf(err) != "CHAIN_ANSWER" || !fault.Is(err, fault.Internal) {
			t.Errorf("%v is %v", err, fault.KindOf(err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lies)) {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			check(t, liar{Ledger: l, register: func(s []chain.Seal) []chain.Seal { lies[name](&s[1]); return s }})
			check(t, liar{Ledger: l, lookup: lies[name]}) // sealed by now
		})
	}
	for name, change := range map[string]func([]chain.Seal) []chain.Seal{
		"too few":   func(s []chain.Seal) []chain.Seal { return s[:2] },
		"too many":  func(s []chain.Seal) []chain.Seal { return append(s, s[0]) },
		"swapped":   func(s []chain.Seal) []chain.Seal { s[0], s[1] = s[1], s[0]; return s },
		"same leaf": func(s []chain.Seal) []chain.Seal { s[1].LeafIndex = s[0].LeafIndex; return s },
	} {
		t.Run(name, func(t *testing.T) {
			check(t, liar{Ledger: newLedger(t), register: change})
		})
	}
}
