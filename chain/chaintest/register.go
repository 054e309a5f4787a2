package chaintest

import (
	"strings"
	"testing"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func unknownDigest(t *testing.T, f Factory) {
	c := open(t, f)
	register(t, c.Ledger, Entry(1))
	for _, d := range []wire.Digest{Digest(2), {}} {
		s, ok, err := c.Ledger.Lookup(t.Context(), d)
		if err != nil || ok || s != (chain.Seal{}) {
			t.Errorf("look up %s: %+v, ok=%v, %v", d, s, ok, err)
		}
	}
}

func secondRegister(t *testing.T, f Factory) {
	c := open(t, f)
	first, second := Entry(1), Entry(1)
	second.FileID[0] ^= 1
	s := register(t, c.Ledger, first)[0]
	if s.JobID != first.JobID || s.SubmissionID != first.SubmissionID || s.FileID != first.FileID {
		t.Fatalf("registered %+v, sealed %+v", first, s)
	}
	same(t, s, lookUp(t, c.Ledger, first.Digest))
	same(t, s, register(t, c.Ledger, second)[0])
	same(t, s, lookUp(t, c.Ledger, first.Digest))

	bare := chain.Entry{Digest: Digest(2), JobID: wire.NewJobID()}
	s = register(t, c.Ledger, bare)[0]
	if s.JobID != bare.JobID || s.SubmissionID != "" || !s.FileID.IsZero() {
		t.Errorf("registered %+v, sealed %+v", bare, s)
	}
	same(t, s, lookUp(t, c.Ledger, bare.Digest))
	if s.LeafIndex != 1 {
		t.Errorf("two digests, but the second has leaf %d", s.LeafIndex)
	}
}

func orderOfEntries(t *testing.T, f Factory) {
	c := open(t, f)
	old := register(t, c.Ledger, Entries(0, 5)...)
	mixed := []chain.Entry{Entry(9), Entry(3), Entry(8), Entry(0), Entry(9), Entry(3)}
	got := register(t, c.Ledger, mixed...) // register checks that seal i is about entry i
	same(t, old[3], got[1])
	same(t, old[0], got[3])
	same(t, got[0], got[4])
	same(t, old[3], got[5])
	leaves := map[int64]wire.Digest{}
	for _, s := range append(old, got...) {
		if d, taken := leaves[s.LeafIndex]; taken && d != s.Digest {
			t.Errorf("leaf %d is of %s and of %s", s.LeafIndex, d, s.Digest)
		}
		leaves[s.LeafIndex] = s.Digest
	}
	if len(leaves) != 7 {
		t.Errorf("7 digests have %d leaves", len(leaves))
	}
}

func repeatedEntries(t *testing.T, f Factory) {
	c := open(t, f)
	first, second, other := Entry(1), Entry(1), Entry(2)
	got := register(t, c.Ledger, first, other, second)
	same(t, got[0], got[2])
	if got[0].JobID != first.JobID || got[0].SubmissionID != first.SubmissionID {
		t.Errorf("the later of two entries won: %+v", got[0])
	}
	if got[1].LeafIndex != got[0].LeafIndex+1 {
		t.Errorf("leaves %d and %d, want neighbours in the order of entries", got[0].LeafIndex, got[1].LeafIndex)
	}
}

func nothingToRegister(t *testing.T, f Factory) {
	c := open(t, f)
	seals, err := c.Ledger.Register(t.Context(), nil)
	if err != nil || len(seals) != 0 {
		t.Errorf("%d seals, %v", len(seals), err)
	}
}

func badEntries(t *testing.T, f Factory) {
	c := open(t, f)
	with := func(change func(*chain.Entry)) []chain.Entry {
		bad := Entry(2)
		change(&bad)
		return []chain.Entry{Entry(1), bad}
	}
	for name, entries := range map[string][]chain.Entry{
		"no digest":             with(func(e *chain.Entry) { e.Digest = wire.Digest{} }),
		"no job id":             with(func(e *chain.Entry) { e.JobID = "" }),
		"job id of other form":  with(func(e *chain.Entry) { e.JobID = wire.JobID(strings.ToUpper(string(e.JobID))) }),
		"bad submission id":     with(func(e *chain.Entry) { e.SubmissionID = "mine" }),
		"one entry too many":    Entries(0, chain.MaxEntries+1),
		"submission id of zero": with(func(e *chain.Entry) { e.SubmissionID = "00000000-0000-0000-0000-000000000000" }),
	} {
		_, err := c.Ledger.Register(t.Context(), entries)
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an Invalid", name, err)
		}
		if _, ok, err := c.Ledger.Lookup(t.Context(), Digest(1)); ok || err != nil {
			t.Errorf("%s: the good entry beside it was sealed (%v)", name, err)
		}
	}
}

func largestCall(t *testing.T, f Factory) {
	c := open(t, f)
	seals := register(t, c.Ledger, Entries(0, chain.MaxEntries)...)
	for i, s := range seals {
		if s.LeafIndex != int64(i) {
			t.Fatalf("entry %d has leaf %d", i, s.LeafIndex)
		}
	}
	for _, i := range []int{0, chain.MaxEntries / 2, chain.MaxEntries - 1} {
		if err := Verify(certificate(t, c.Ledger, seals[i]), seals[i], c.VerifierKey); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
}
