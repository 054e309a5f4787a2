package chaintest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/verae/archive/chain"
)

func timeNeverGoesBack(t *testing.T, f Factory) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	var offset atomic.Int64
	c := f(t, func() time.Time { return at.Add(time.Duration(offset.Load())) })
	var last chain.Seal
	for n, step := range []time.Duration{0, time.Second, -time.Hour, -2 * time.Hour, time.Second, 1, time.Minute, -time.Minute} {
		offset.Store(int64(step))
		s := register(t, c.Ledger, Entry(n))[0]
		if s.Time.Before(last.Time) {
			t.Errorf("leaf %d is of %v, leaf %d before it of %v", s.LeafIndex, s.Time, last.LeafIndex, last.Time)
		}
		if err := Verify(certificate(t, c.Ledger, s), s, c.VerifierKey); err != nil {
			t.Error(err)
		}
		last = s
		if c.Reopen != nil {
			c.Ledger = c.Reopen(t)
		}
	}
}

// holding is a set of seals with their certificates.
type holding struct {
	seals []chain.Seal
	certs []string
}

// fill registers documents in calls of 1, 2, 3... entries.
func fill(t *testing.T, l chain.Ledger, first, calls int) holding {
	t.Helper()
	var h holding
	for size := range calls {
		seals := register(t, l, Entries(first, size+1)...)
		first += size + 1
		for _, s := range seals {
			h.seals = append(h.seals, s)
			h.certs = append(h.certs, certificate(t, l, s))
		}
	}
	return h
}

// unchanged checks that l gives out what it gave out before.
func (h holding) unchanged(t *testing.T, l chain.Ledger) {
	t.Helper()
	for i, s := range h.seals {
		same(t, s, lookUp(t, l, s.Digest))
		e := Entry(0)
		e.Digest = s.Digest
		same(t, s, register(t, l, e)[0])
		if got := certificate(t, l, s); got != h.certs[i] {
			t.Fatalf("the certificate of leaf %d changed from\n%s\nto\n%s", s.LeafIndex, h.certs[i], got)
		}
	}
}

func certificatesStay(t *testing.T, f Factory) {
	c := open(t, f)
	h := fill(t, c.Ledger, 0, 9)
	h.unchanged(t, c.Ledger)
	more := fill(t, c.Ledger, 1000, 9)
	h.unchanged(t, c.Ledger)
	more.unchanged(t, c.Ledger)
}

func survivesReopen(t *testing.T, f Factory) {
	c := open(t, f)
	if c.Reopen == nil {
		t.Log("the implementation can not be reopened")
		return
	}
	restarts(t, c, c.Reopen)
}

func survivesCrash(t *testing.T, f Factory) {
	c := open(t, f)
	if c.Crash == nil {
		t.Log("the implementation can not be crashed")
		return
	}
	restarts(t, c, c.Crash)
}

func restarts(t *testing.T, c *Chain, again func(*testing.T) chain.Ledger) {
	t.Helper()
	var all holding
	for round := range 4 {
		c.Ledger = again(t)
		all.unchanged(t, c.Ledger)
		h := fill(t, c.Ledger, 100*round, 5)
		if got, want := h.seals[0].LeafIndex, int64(len(all.seals)); got != want {
			t.Fatalf("round %d continues at leaf %d, want %d", round, got, want)
		}
		all.seals, all.certs = append(all.seals, h.seals...), append(all.certs, h.certs...)
	}
	c.Ledger = again(t)
	all.unchanged(t, c.Ledger)
	for i, s := range all.seals {
		if err := Verify(all.certs[i], s, c.VerifierKey); err != nil {
			t.Errorf("leaf %d: %v", s.LeafIndex, err)
		}
	}
}
