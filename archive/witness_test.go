package archive

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// shownLog is a ledger as a witness sees it.
type shownLog struct {
	origin string
	vkey   string
	signer note.Signer
	edge   *tlogx.Edge
	hashes []tlog.Hash
}

func newShownLog(t *testing.T, origin string) *shownLog {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	return &shownLog{origin: origin, vkey: vkey, signer: signer, edge: &tlogx.Edge{}}
}

func (l *shownLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	return tlogx.ReadEach(func(i int64) (tlog.Hash, error) { return l.hashes[i], nil }).ReadHashes(indexes)
}

// grow adds n leaves that depend on salt.
func (l *shownLog) grow(n int, salt byte) {
	for range n {
		leaf := tlog.RecordHash(append(binary.BigEndian.AppendUint64(nil, uint64(l.edge.Size())), salt))
		l.edge.Append(leaf, func(_ int64, h tlog.Hash) { l.hashes = append(l.hashes, h) })
	}
}

// show is a request that shows the log as it was at size to a witness that has
// seen it at size old.
func (l *shownLog) show(t *testing.T, old, size int64) wire.WitnessRequest {
	t.Helper()
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := tlogx.Checkpoint{Origin: l.origin, Size: size, Root: root}.Sign(l.signer)
	if err != nil {
		t.Fatal(err)
	}
	r := wire.WitnessRequest{Key: l.vkey, Old: old, Checkpoint: string(signed)}
	if old > size {
		return r
	}
	proof, err := tlogx.Consistency(old, size, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range proof {
		r.Proof = append(r.Proof, wire.Digest(h))
	}
	return r
}

func openTestWitness(t *testing.T, fs vfs.FS, trusted ...string) *Witness {
	t.Helper()
	w, err := OpenWitness(WitnessConfig{
		Dir: "witness", FS: fs, ID: "archive-a", Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)),
		Trusted: trusted, Now: func() time.Time { return time.Unix(1767323045, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// cosigns fails the test unless the reply is a valid cosignature of what was
// shown.
func cosigns(t *testing.T, w *Witness, r wire.WitnessRequest) {
	t.Helper()
	reply, err := w.Add(r)
	if err != nil || reply.Cosignature == "" {
		t.Fatalf("not cosigned: %+v, %v", reply, err)
	}
	at, err := tlogx.OpenCosignature([]byte(r.Checkpoint+reply.Cosignature), w.signer.Verifier())
	if err != nil || at.Unix() != 1767323045 {
		t.Fatalf("the cosignature: %v, %v", at, err)
	}
}

func TestWitnessCosignsWhatOnlyGrows(t *testing.T) {
	fs := vfs.NewMem()
	w := openTestWitness(t, fs)
	l := newShownLog(t, "verae.local/ledger")
	cosigns(t, w, l.show(t, 0, 0))
	l.grow(200, 'a')
	old := int64(0)
	for _, size := range []int64{1, 2, 2, 3, 8, 9, 100, 200, 200} {
		cosigns(t, w, l.show(t, old, size))
		old = size
		w = openTestWitness(t, fs) // it remembers across restarts
	}
	reply, err := w.Add(l.show(t, 100, 200))
	if err != nil || reply.Cosignature != "" || reply.Size != 200 || reply.Checkpoint != l.show(t, 0, 200).Checkpoint {
		t.Errorf("another size than the last seen: %+v, %v", reply, err)
	}
	reply, err = w.Add(l.show(t, 200, 150))
	if err != nil || reply.Cosignature != "" || reply.Size != 200 {
		t.Errorf("a log that was rolled back: %+v, %v", reply, err)
	}
}

func TestWitnessRefusesWhatIsNotShown(t *testing.T) {
	fs := vfs.NewMem()
	l, other := newShownLog(t, "verae.local/ledger"), newShownLog(t, "verae.local/ledger")
	l.grow(10, 'a')
	other.grow(10, 'a')
	w := openTestWitness(t, fs)
	cosigns(t, w, l.show(t, 0, 5))
	good := l.show(t, 5, 10)
	with := func(change func(*wire.WitnessRequest)) wire.WitnessRequest {
		r := good
		r.Proof = append([]wire.Digest{}, good.Proof...)
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		r    wire.WitnessRequest
		kind fault.Kind
		code string
	}{
		"another key of the name": {other.show(t, 5, 10), fault.Denied, "UNKNOWN_LOG"},
		"signed by another key":   {with(func(r *wire.WitnessRequest) { r.Checkpoint = other.show(t, 5, 10).Checkpoint }), fault.Invalid, "BAD_CHECKPOINT"},
		"no key":                  {with(func(r *wire.WitnessRequest) { r.Key = "" }), fault.Invalid, "BAD_CHECKPOINT"},
		"unsigned":                {with(func(r *wire.WitnessRequest) { r.Checkpoint, _, _ = strings.Cut(r.Checkpoint, "— ") }), fault.Invalid, "BAD_CHECKPOINT"},
		"too long":                {with(func(r *wire.WitnessRequest) { r.Checkpoint += strings.Repeat("x", maxCheckpoint) }), fault.Invalid, "BAD_CHECKPOINT"},
		"no proof":                {with(func(r *wire.WitnessRequest) { r.Proof = nil }), fault.Invalid, "BAD_PROOF"},
		"a wrong proof":           {with(func(r *wire.WitnessRequest) { r.Proof[0][0] ^= 1 }), fault.Invalid, "BAD_PROOF"},
		"a proof too long":        {with(func(r *wire.WitnessRequest) { r.Proof = make([]wire.Digest, wire.MaxWitnessProof+1) }), fault.Invalid, "BAD_PROOF"},
		"a proof of nothing":      {with(func(r *wire.WitnessRequest) { r.Checkpoint = l.show(t, 0, 5).Checkpoint }), fault.Invalid, "BAD_PROOF"},
	} {
		reply, err := w.Add(c.r)
		if !fault.Is(err, c.kind) || fault.CodeOf(err) != c.code || reply.Cosignature != "" {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
	cosigns(t, w, good) // nothing of it has harmed the log

	listed := openTestWitness(t, vfs.NewMem(), l.vkey)
	cosigns(t, listed, l.show(t, 0, 5))
	if _, err := listed.Add(newShownLog(t, "example.com/other").show(t, 0, 0)); fault.CodeOf(err) != "UNKNOWN_LOG" {
		t.Errorf("a log that is not listed: %v", err)
	}
	full := openTestWitness(t, vfs.NewMem())
	for i := range MaxWitnessedLogs + 1 {
		_, err := full.Add(newShownLog(t, "example.com/"+strings.Repeat("x", i+1)).show(t, 0, 0))
		if (err == nil) != (i < MaxWitnessedLogs) {
			t.Errorf("log %d: %v", i+1, err)
		}
	}
}

// A log that has signed two histories is never cosigned again, and both
// checkpoints are kept.
func TestWitnessStopsAtAFork(t *testing.T) {
	fs := vfs.NewMem()
	w := openTestWitness(t, fs)
	l := newShownLog(t, "verae.local/ledger")
	l.grow(7, 'a')
	cosigns(t, w, l.show(t, 0, 7))
	evil := &shownLog{origin: l.origin, vkey: l.vkey, signer: l.signer, edge: &tlogx.Edge{}}
	evil.grow(9, 'b')
	for range 2 {
		if _, err := w.Add(evil.show(t, 7, 7)); !fault.Is(err, fault.Corrupt) || fault.CodeOf(err) != "LEDGER_FORKED" {
			t.Fatalf("a fork: %v", err)
		}
		l.grow(1, 'a')
		if _, err := w.Add(l.show(t, 7, l.edge.Size())); fault.CodeOf(err) != "LEDGER_FORKED" {
			t.Errorf("the log after its fork: %v", err)
		}
		w = openTestWitness(t, fs)
	}
	names, err := fs.List("witness")
	if err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// The evidence of a fork is written however often the disk refuses it, in either
// way, and from then on a new process knows.
func TestWitnessKeepsTheEvidenceOfAFork(t *testing.T) {
	for _, persist := range []bool{false, true} {
		for at := range int64(8) {
			fs := vfs.NewMem()
			w := openTestWitness(t, fs)
			l := newShownLog(t, "verae.local/ledger")
			l.grow(7, 'a')
			cosigns(t, w, l.show(t, 0, 7))
			evil := &shownLog{origin: l.origin, vkey: l.vkey, signer: l.signer, edge: &tlogx.Edge{}}
			evil.grow(7, 'b')
			disk := faultfs.New(fs)
			disk.Fail(faultfs.Nth(at, faultfs.ErrIO, persist))
			w.cfg.FS = disk
			for range 2 {
				if reply, err := w.Add(evil.show(t, 7, 7)); fault.CodeOf(err) != "LEDGER_FORKED" || reply.Cosignature != "" {
					t.Errorf("write %d: %+v, %v", at, reply, err)
				}
			}
			if _, err := openTestWitness(t, fs).Add(l.show(t, 7, 7)); fault.CodeOf(err) != "LEDGER_FORKED" {
				t.Errorf("write %d, persisted %v: a new process does not know of the fork: %v", at, persist, err)
			}
		}
	}
}

// A history that leaves the one that was seen has no proof, so it is never
// cosigned although its checkpoints are signed.
func TestWitnessNeverFollowsAnotherHistory(t *testing.T) {
	w := openTestWitness(t, vfs.NewMem())
	l := newShownLog(t, "verae.local/ledger")
	l.grow(7, 'a')
	cosigns(t, w, l.show(t, 0, 7))
	evil := &shownLog{origin: l.origin, vkey: l.vkey, signer: l.signer, edge: &tlogx.Edge{}}
	evil.grow(20, 'b')
	if reply, err := w.Add(evil.show(t, 7, 20)); fault.CodeOf(err) != "BAD_PROOF" {
		t.Errorf("another history: %+v, %v", reply, err)
	}
}

// Whatever write fails, and whether or not it reached the disk, no cosignature
// is given that the next start does not know of.
func TestWitnessForgetsNoCosignature(t *testing.T) {
	for _, persist := range []bool{false, true} {
		points := 0
		for failed := true; failed; points++ {
			failed = witnessWithFault(t, points, persist)
		}
		if points < 5 {
			t.Errorf("only %d write points", points)
		}
	}
}

// witnessWithFault fails a write of a second checkpoint, crashes, and reports
// whether there was such a write.
func witnessWithFault(t *testing.T, at int, persist bool) (failed bool) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	w := openTestWitness(t, fs)
	l := newShownLog(t, "verae.local/ledger")
	l.grow(20, 'a')
	cosigns(t, w, l.show(t, 0, 5))
	disk := newFaultFS(fs, at, persist)
	w.cfg.FS = disk
	request := l.show(t, 5, 20)
	var reply wire.WitnessReply
	disk.Run(func() {
		got, err := w.Add(request)
		if (err == nil) != (got.Cosignature != "") {
			t.Errorf("write %d: %+v, %v", at, got, err)
		}
		reply = got
	})
	after := openTestWitness(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	size := after.logs[l.origin].size
	if size != 5 && size != 20 || reply.Cosignature != "" && size != 20 {
		t.Errorf("write %d, persisted %v: after a crash the size is %d, the reply was %+v", at, persist, size, reply)
	}
	cosigns(t, after, l.show(t, size, 20))
	return disk.Ops() > int64(at)
}

func TestWitnessRefusesADamagedMemory(t *testing.T) {
	fs := vfs.NewMem()
	w := openTestWitness(t, fs)
	l := newShownLog(t, "verae.local/ledger")
	l.grow(5, 'a')
	cosigns(t, w, l.show(t, 0, 5))
	path := w.path(l.origin) + ".seen"
	good, err := pebblex.ReadFile(fs, path, maxWitnessFile)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		if err := pebblex.WriteFile(fs, path, data, keyPerm); err != nil {
			t.Fatal(err)
		}
	}
	for i := range good {
		bad := []byte(string(good))
		bad[i] ^= 1
		write(bad)
		if _, err := OpenWitness(w.cfg); !fault.Is(err, fault.Corrupt) {
			t.Errorf("flip at byte %d: %v", i, err)
		}
	}
	write(good)
	other := w.cfg
	other.Trusted = []string{newShownLog(t, l.origin).vkey}
	if _, err := OpenWitness(other); fault.CodeOf(err) != "WITNESS_KEY" {
		t.Errorf("another key is listed: %v", err)
	}
}
