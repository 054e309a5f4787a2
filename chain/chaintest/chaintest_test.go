package chaintest_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/internal/fault"
)

// sample is the frozen certificate of package ledger: document 3 of a log of
// five leaves.
func sample(t testing.TB) (certificate string, s chain.Seal, verifierKey string) {
	t.Helper()
	cert, err := os.ReadFile("../ledger/testdata/certificate.v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	vkey, err := os.ReadFile("../ledger/testdata/certificate.v1.vkey")
	if err != nil {
		t.Fatal(err)
	}
	return string(cert), chain.Seal{
		Digest:    chaintest.Digest(3),
		LeafIndex: 3,
		TreeSize:  5,
		Time:      time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC),
		Origin:    "verae.local/ledger",
	}, strings.TrimSpace(string(vkey))
}

func TestVerifyAcceptsTheFrozenCertificate(t *testing.T) {
	cert, s, vkey := sample(t)
	if err := chaintest.Verify(cert, s, vkey); err != nil {
		t.Error(err)
	}
}

// TestVerifyRefusesEveryFlippedBit: there is no bit of a certificate that may
// change, not even in what is not signed.
func TestVerifyRefusesEveryFlippedBit(t *testing.T) {
	cert, s, vkey := sample(t)
	for i := range len(cert) * 8 {
		bad := []byte(cert)
		bad[i/8] ^= 1 << (i % 8)
		if chaintest.Verify(string(bad), s, vkey) == nil {
			t.Errorf("bit %d may be flipped:\n%s", i, bad)
		}
	}
	for _, bad := range []string{"", cert[:len(cert)/2], cert + "\n", strings.TrimSuffix(cert, "\n"), cert + cert} {
		if chaintest.Verify(bad, s, vkey) == nil {
			t.Errorf("accepted:\n%s", bad)
		}
	}
}

// TestVerifyRefusesEveryOtherSeal breaks one link of the chain of trust at a time.
func TestVerifyRefusesEveryOtherSeal(t *testing.T) {
	cert, good, vkey := sample(t)
	for name, change := range map[string]func(*chain.Seal){
		"digest": func(s *chain.Seal) { s.Digest = chaintest.Digest(4) },
		"time":   func(s *chain.Seal) { s.Time = s.Time.Add(1) },
		"leaf":   func(s *chain.Seal) { s.LeafIndex = 4 },
		"size":   func(s *chain.Seal) { s.TreeSize = 6 },
		"origin": func(s *chain.Seal) { s.Origin = "example.com/log" },
	} {
		s := good
		change(&s)
		if chaintest.Verify(cert, s, vkey) == nil {
			t.Errorf("another %s passes", name)
		}
	}
	parts := strings.Split(vkey, "+")
	for name, key := range map[string]string{
		"no key":       "",
		"another name": "example.com/log+" + parts[1] + "+" + parts[2],
		"another hash": parts[0] + "+00000000+" + parts[2],
		"cut":          vkey[:len(vkey)-4],
		"another key":  otherKey(t),
	} {
		if chaintest.Verify(cert, good, key) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func otherKey(t *testing.T) string {
	t.Helper()
	return newLedger(t).VerifierKey()
}

func newLedger(t *testing.T) *ledger.Ledger {
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
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestFaultyFailsAsTold(t *testing.T) {
	ctx := t.Context()
	f := &chaintest.Faulty{Ledger: newLedger(t)}
	script := []chaintest.Outcome{chaintest.FailsBefore, chaintest.FailsAfter, chaintest.Works}
	f.OnRegister = func(call int64) chaintest.Outcome { return script[call-1] }
	for i, how := range script {
		e := chaintest.Entry(i)
		seals, err := f.Register(ctx, []chain.Entry{e})
		if (err == nil) != (how == chaintest.Works) || err != nil && !(errors.Is(err, chaintest.ErrInjected) && fault.Is(err, fault.Transient)) {
			t.Errorf("call %d: %v", i+1, err)
		}
		s, ok, err := f.Lookup(ctx, e.Digest)
		if err != nil || ok != (how != chaintest.FailsBefore) {
			t.Errorf("call %d: sealed=%v, %v", i+1, ok, err)
		}
		if how == chaintest.Works {
			if cert, err := f.Certificate(ctx, s); err != nil || s != seals[0] || cert == "" {
				t.Errorf("call %d: %+v, %v", i+1, s, err)
			}
		}
	}
	f.OnLookup = func(int64) chaintest.Outcome { return chaintest.FailsBefore }
	if _, _, err := f.Lookup(ctx, chaintest.Digest(0)); !errors.Is(err, chaintest.ErrInjected) {
		t.Error(err)
	}
	if r, l, c := f.Calls(); r != 3 || l != 4 || c != 1 {
		t.Errorf("counted %d, %d, %d", r, l, c)
	}
}

// TestFaultyPassesOnRefusals: what the ledger itself refuses is not dressed up as
// an injected failure.
func TestFaultyPassesOnRefusals(t *testing.T) {
	f := &chaintest.Faulty{Ledger: newLedger(t), OnRegister: func(int64) chaintest.Outcome { return chaintest.FailsAfter }}
	_, err := f.Register(t.Context(), []chain.Entry{{}})
	if !fault.Is(err, fault.Invalid) || errors.Is(err, chaintest.ErrInjected) {
		t.Error(err)
	}
}

func TestEntriesAreFreshAndFit(t *testing.T) {
	seen := map[string]bool{}
	for i, e := range append(chaintest.Entries(5, 4), chaintest.Entry(5)) {
		if err := e.Check(); err != nil {
			t.Error(err)
		}
		if e.Digest != chaintest.Digest(5+i%4) {
			t.Errorf("entry %d is of another document", i)
		}
		if seen[string(e.JobID)] {
			t.Error("a job id came twice")
		}
		seen[string(e.JobID)] = true
	}
}
