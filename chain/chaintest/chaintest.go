// Package chaintest holds what every chain must pass and what tests of a chain's
// users need.
//
// [Run] is the conformance suite of chain.Ledger: one seal per digest under
// repetition, races, restarts and cancelled calls, and certificates that an
// independent verifier accepts. [Verify] is that verifier; it shares no code
// with the ledgers. [Faulty] stands in front of a ledger and fails on command.
package chaintest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/wire"
)

// Chain is one chain under test. Funcs that are nil name what the
// implementation can not do; the laws that need them are then not run.
type Chain struct {
	Ledger      chain.Ledger
	VerifierKey string // the log's public key as name+hash+base64 (c2sp.org/signed-note)

	// Reopen closes the ledger and returns it opened anew over what it keeps.
	Reopen func(t *testing.T) chain.Ledger
	// Crash is Reopen without the close: what was not durable may be gone.
	Crash func(t *testing.T) chain.Ledger
	// Check recomputes all the ledger holds. It runs at the end of every test.
	Check func(ctx context.Context) error
}

// Factory returns a new, empty chain that takes its time from now. What it opens
// it closes by t.Cleanup.
type Factory func(t *testing.T, now func() time.Time) *Chain

// Run checks every law of chain.Ledger on chains made by f.
func Run(t *testing.T, f Factory) {
	for _, law := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"UnknownDigestHasNoSeal", unknownDigest},
		{"SecondRegisterReturnsFirstSeal", secondRegister},
		{"SealsComeInTheOrderOfEntries", orderOfEntries},
		{"FirstOfRepeatedEntriesCounts", repeatedEntries},
		{"NothingToRegisterIsNoError", nothingToRegister},
		{"BadEntriesSealNothing", badEntries},
		{"LargestCallIsTaken", largestCall},
		{"HundredGoroutinesMakeOneLeaf", hundredGoroutines},
		{"OverlappingCallsMakeOneLeafEach", overlappingCalls},
		{"CancelledCallIsSafeToRepeat", cancelledCall},
		{"TimeNeverGoesBack", timeNeverGoesBack},
		{"CertificatesVerify", certificatesVerify},
		{"CertificatesStayByteIdentical", certificatesStay},
		{"ForeignSealHasNoCertificate", foreignSeal},
		{"CheckpointsCoverTheLeavesGivenOut", checkpointsCover},
		{"SealsSurviveReopen", survivesReopen},
		{"SealsSurviveCrash", survivesCrash},
	} {
		t.Run(law.name, func(t *testing.T) {
			var made []*Chain
			law.run(t, func(t *testing.T, now func() time.Time) *Chain {
				made = append(made, f(t, now))
				return made[len(made)-1]
			})
			for _, c := range made {
				c.check(t)
			}
		})
	}
}

func (c *Chain) check(t *testing.T) {
	t.Helper()
	if c.Check == nil {
		return
	}
	if err := c.Check(t.Context()); err != nil {
		t.Errorf("the ledger's own check: %v", err)
	}
}

// open makes a chain with the real clock.
func open(t *testing.T, f Factory) *Chain {
	t.Helper()
	return f(t, time.Now)
}

// Digest returns the n'th digest of a fixed sequence.
func Digest(n int) wire.Digest { return sha256.Sum256(fmt.Appendf(nil, "document %d", n)) }

// Entry returns an entry for Digest(n) with fresh ids.
func Entry(n int) chain.Entry {
	return chain.Entry{
		Digest:       Digest(n),
		JobID:        wire.NewJobID(),
		SubmissionID: wire.NewSubmissionID(),
		FileID:       sha256.Sum256(fmt.Appendf(nil, "record %d", n)),
	}
}

// Entries returns Entry for every n from first on.
func Entries(first, count int) []chain.Entry {
	out := make([]chain.Entry, count)
	for i := range out {
		out[i] = Entry(first + i)
	}
	return out
}

func register(t *testing.T, l chain.Ledger, entries ...chain.Entry) []chain.Seal {
	t.Helper()
	seals, err := l.Register(t.Context(), entries)
	if err != nil {
		t.Fatalf("register %d entries: %v", len(entries), err)
	}
	if len(seals) != len(entries) {
		t.Fatalf("%d seals for %d entries", len(seals), len(entries))
	}
	for i, s := range seals {
		fits(t, entries[i], s)
	}
	return seals
}

// fits checks what must be true of any seal of e.
func fits(t *testing.T, e chain.Entry, s chain.Seal) {
	t.Helper()
	if s.Digest != e.Digest {
		t.Fatalf("asked for %s, sealed %s", e.Digest, s.Digest)
	}
	if s.LeafIndex < 0 || s.BlockIndex < 0 || s.TreeSize <= s.LeafIndex || s.Origin == "" || s.JobID == "" {
		t.Fatalf("seal is not whole: %+v", s)
	}
	if s.Time.Location() != time.UTC || s.Time.Unix() <= 0 {
		t.Fatalf("time %v is not in UTC after 1970", s.Time)
	}
}

func lookUp(t *testing.T, l chain.Ledger, digest wire.Digest) chain.Seal {
	t.Helper()
	s, ok, err := l.Lookup(t.Context(), digest)
	if err != nil || !ok {
		t.Fatalf("look up %s: ok=%v, %v", digest, ok, err)
	}
	return s
}

func certificate(t *testing.T, l chain.Ledger, s chain.Seal) string {
	t.Helper()
	cert, err := l.Certificate(t.Context(), s)
	if err != nil {
		t.Fatalf("certificate of leaf %d: %v", s.LeafIndex, err)
	}
	return cert
}

// same fails unless two seals are equal in every field.
func same(t *testing.T, want, got chain.Seal) {
	t.Helper()
	if want != got {
		t.Fatalf("two seals of one digest:\nfirst  %+v\nsecond %+v", want, got)
	}
}
