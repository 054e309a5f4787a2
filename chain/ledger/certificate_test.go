package ledger

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"

	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

// testKey is a key for golden files, worth nothing: its seed is a public text.
func testKey(t *testing.T) string {
	t.Helper()
	seed := sha256.Sum256([]byte("a key for golden files, worth nothing"))
	public, ok := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("no key")
	}
	vkey, err := note.NewEd25519VerifierKey(DefaultOrigin, public)
	if err != nil {
		t.Fatal(err)
	}
	name := vkey[:strings.LastIndex(vkey, "+"+strings.SplitN(vkey, "+", 3)[2])]
	return "PRIVATE+KEY+" + name + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, seed[:]...))
}

// TestCertificateIsFrozen: the certificate of a fixed log, byte for byte. Old
// certificates lie in the hands of users.
func TestCertificateIsFrozen(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.Now = func() time.Time { return sampleTime }
	initLedger(t, cfg)
	key, err := parseKey(testKey(t))
	if err != nil {
		t.Fatal(err)
	}
	adoptKey(t, cfg, key)
	l := openLedger(t, cfg)
	h := held{}
	h.register(t, l, 0, 1, 2)
	h.register(t, l, 3, 4)
	h.check(t, l)
	want, err := os.ReadFile("testdata/certificate.v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), h[3].cert); diff != "" {
		t.Errorf("the certificate is frozen (-want +got):\n%s", diff)
	}
	vkey, err := os.ReadFile("testdata/certificate.v1.vkey")
	if err != nil {
		t.Fatal(err)
	}
	if err := chaintest.Verify(string(want), h[3].seal, strings.TrimSpace(string(vkey))); err != nil {
		t.Error(err)
	}
}

// TestColdBlocksGiveTheSameCertificates pushes blocks out of memory.
func TestColdBlocksGiveTheSameCertificates(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2, 3, 4, 5, 6, 7)
	for n := range 2 * recentBlocks {
		h.register(t, l, 100+n)
	}
	if b := l.recent[0].Load(); b == nil || b.index == 0 {
		t.Fatal("the first block is still in memory")
	}
	h.check(t, l)
}

func TestConsistencyOfAllSizes(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	roots := map[int64][32]byte{0: h.root(t, l)}
	for n := range 20 {
		h.register(t, l, n)
		roots[int64(n+1)] = h.root(t, l)
	}
	for to := range int64(21) {
		for from := range to + 1 {
			hashes, err := l.Consistency(t.Context(), from, to)
			if err != nil {
				t.Fatal(err)
			}
			var path [][]byte
			for _, x := range hashes {
				path = append(path, x[:])
			}
			a, b := roots[from], roots[to]
			if err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(from), uint64(to), path, a[:], b[:]); err != nil {
				t.Errorf("from %d to %d: %v", from, to, err)
			}
		}
	}
	for _, bad := range [][2]int64{{-1, 2}, {3, 2}, {0, 21}} {
		_, err := l.Consistency(t.Context(), bad[0], bad[1])
		wantCode(t, err, fault.Invalid, "BAD_SIZE")
	}
}

func TestLatestIsTheNewestCheckpoint(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	for n := range 5 {
		h.register(t, l, n)
		c, err := tlogx.OpenCheckpoint(l.Latest(), l.key.verifier)
		if err != nil || c.Size != int64(n+1) {
			t.Errorf("%+v, %v", c, err)
		}
		if !strings.HasSuffix(h[n].cert, string(l.Latest())) {
			t.Errorf("document %d has another checkpoint than the log", n)
		}
	}
	if _, err := note.Open(l.Latest(), nil); err == nil {
		t.Error("opened without a key")
	}
}

// TestDamagedHashMakesNoCertificate: a certificate is verified before it leaves.
func TestDamagedHashMakesNoCertificate(t *testing.T) {
	cfg, _, h := small(t)
	l := openLedger(t, cfg)
	if err := l.db.Set(numberKey(prefixHash, 4), make([]byte, 32), nil); err != nil {
		t.Fatal(err)
	}
	corrupt := 0
	for n, want := range h {
		cert, err := l.Certificate(t.Context(), want.seal)
		switch {
		case fault.Is(err, fault.Corrupt):
			corrupt++
		case err != nil || cert != want.cert:
			t.Errorf("document %d: %v\n%s", n, err, cert)
		}
	}
	if corrupt == 0 {
		t.Error("no certificate needed the damaged hash")
	}
}

func TestMetricsCount(t *testing.T) {
	l, _ := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2, 3)
	h.register(t, l, 3, 4)
	h.register(t, l, 1, 2)
	for want, c := range map[float64]prometheus.Collector{7: l.metrics.entries, 2: l.metrics.blocks, 0: l.metrics.stopped} {
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if seals, size := testutil.ToFloat64(l.metrics.seals), testutil.ToFloat64(l.metrics.size); seals != 4 || size != 4 {
		t.Errorf("%v seals, %v leaves; want 4", seals, size)
	}
	r := prometheus.NewPedanticRegistry()
	for _, c := range l.Metrics() {
		if err := r.Register(c); err != nil {
			t.Error(err)
		}
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// adoptKey gives an empty ledger another key.
func adoptKey(t *testing.T, cfg Config, key signingKey) {
	t.Helper()
	cfg = cfg.withDefaults()
	db, err := openStore(cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set(metaKey(), meta{created: sampleTime, vkey: key.vkey}.encode(), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pebblex.WriteFile(cfg.FS, cfg.keyFile(), []byte(key.text), 0o600); err != nil {
		t.Fatal(err)
	}
	removeAll(t, cfg.FS, cfg.Guard)
}
