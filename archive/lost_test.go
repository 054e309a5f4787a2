package archive

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// change opens the store of a closed archive behind its back.
func change(t testing.TB, c Config, f func(db *pebble.DB)) {
	t.Helper()
	db, err := pebblex.Open(pebblex.Options{Dir: c.storeDir(), FS: c.FS, OnFatal: func(reason string) { panic(reason) }})
	if err != nil {
		t.Fatal(err)
	}
	f(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// lose puts stubs in the place of records, as a repair does that finds no copy.
func lose(t *testing.T, c Config, seqs ...uint64) {
	t.Helper()
	change(t, c, func(db *pebble.DB) {
		for _, seq := range seqs {
			f := mustDecode(t, get(t, db, logKey(seq)))
			e := envelope{archive: wire.ArchiveID(f.ArchiveID), generation: f.Generation, seq: seq, storedAt: f.StoredAt}
			must1(t, db.Set(logKey(seq), mustStub(t, e, wire.RecordID(f.RecordID)), pebble.Sync))
			must1(t, db.Set(lostKey(seq), f.RecordID, pebble.Sync))
			must1(t, db.Delete(putIDKey(putKey(f.PutID)), pebble.Sync))
		}
	})
}

// TestLostRecordsAreToldToTheirOwner: a lost record is not answered, and whoever
// owns it is told that his answer is not complete; nobody else learns of it.
func TestLostRecordsAreToldToTheirOwner(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	subject := digest("x")
	shared := metadata(alice, subject, `{"n":1}`)
	shared.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeFiles}}
	private := metadata(alice, subject, `{"n":2}`)
	private.Kind = wire.KindPrivateMetadata
	hold := metadata(alice, subject, `{"n":3}`)
	hold.Kind = wire.KindHold
	whole := metadata(alice, subject, `{"n":4}`)
	for _, r := range []wire.PutRecord{shared, private, hold, whole} {
		mustPut(t, n, r)
	}
	mustClose(t, n)
	lose(t, c, 1, 2, 3)
	n = mustOpen(t, c)
	defer func() { mustClose(t, n) }()
	if h := n.Hello(); h.Lost != 3 || h.Records != 1 || h.Seq != 4 || h.State != wire.StateUp || !h.Filter.Ready {
		t.Errorf("hello %+v", h)
	}
	for _, tc := range []struct {
		tenant wire.TenantID
		kinds  []wire.Kind
		lost   uint64
		found  int
	}{
		{alice, nil, 2, 1}, // the hold would not have been shown
		{alice, []wire.Kind{wire.KindMetadata}, 1, 1},
		{alice, []wire.Kind{wire.KindPrivateMetadata}, 1, 0},
		{alice, []wire.Kind{wire.KindHold}, 0, 0},
		{alice, []wire.Kind{"ocr"}, 0, 0},
		{bob, nil, 0, 0},
		{carol, nil, 0, 0},
	} {
		reply, ok, err := n.Answer(t.Context(), query(tc.tenant, subject, tc.kinds...))
		if err != nil || ok != (tc.lost > 0 || tc.found > 0) || reply.Lost != tc.lost || len(reply.Records) != tc.found {
			t.Errorf("%s, kinds %v: %v, %v, %+v", tc.tenant, tc.kinds, ok, err, reply)
		}
	}
	if n.health.damage() != "" {
		t.Error(n.health.damage())
	}
	if report, err := n.Check(t.Context()); err != nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestLostRecordIsStoredAgain: it gets a new number, is answered, and is no
// longer counted, also after a restart and in one batch with its copy.
func TestLostRecordIsStoredAgain(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	subject := digest("x")
	put := wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, subject, `{"n":1}`)}
	if _, err := n.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	other := metadata(alice, subject, `{"n":2}`)
	mustPut(t, n, other)
	mustClose(t, n)
	lose(t, c, 1, 2)
	n = mustOpen(t, c)
	ack, err := n.Put(t.Context(), put)
	if err != nil || ack.Duplicate || ack.Seq != 3 {
		t.Fatalf("%+v, %v", ack, err)
	}
	if again, err := n.Put(t.Context(), put); err != nil || !again.Duplicate || again.Seq != 3 {
		t.Errorf("%+v, %v", again, err)
	}
	for range 2 {
		reply, ok, err := n.Answer(t.Context(), query(alice, subject))
		if err != nil || !ok || len(reply.Records) != 1 || reply.Records[0].Seq != 3 || reply.Lost != 1 {
			t.Errorf("%v, %v, %+v", ok, err, reply)
		}
		if h := n.Hello(); h.Lost != 1 || h.Records != 1 || h.Seq != 3 {
			t.Errorf("hello %+v", h)
		}
		if _, err := n.Check(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, n)
		n = mustOpen(t, c)
	}
	mustPut(t, n, other)
	if h := n.Hello(); h.Lost != 0 || h.Records != 2 {
		t.Errorf("hello %+v", h)
	}
	mustClose(t, n)
}

// TestLostRecordProvesItsLeaf: nothing of the tree changes with the loss.
func TestLostRecordProvesItsLeaf(t *testing.T) {
	fs, _ := marked(t, 6)
	c := testConfig(fs, "archive-a")
	n := mustOpen(t, c)
	before := make([]tlogx.Proof, 7)
	for seq := uint64(1); seq <= 6; seq++ {
		p, err := n.Inclusion(seq)
		must1(t, err)
		before[seq] = p
	}
	mustClose(t, n)
	lose(t, c, 3, 6)
	n = mustOpen(t, c)
	defer mustClose(t, n)
	for seq := uint64(1); seq <= 6; seq++ {
		p, err := n.Inclusion(seq)
		if err != nil || p.Text() != before[seq].Text() {
			t.Errorf("seq %d: %v, %s", seq, err, p.Text())
		}
	}
}

// begins turns a closed archive into one of a second generation, as a restore
// does that kept all records and was told of a seq beyond them.
func begins(t *testing.T, c Config, rememberedSeq uint64) {
	t.Helper()
	c = mustDefaults(t, c)
	n := mustOpen(t, c)
	last, prev := n.Seq(), n.tail.edge.Root()
	mustClose(t, n)
	public, key, err := ed25519.GenerateKey(rand.Reader)
	must1(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must1(t, err)
	write(t, c.FS, c.keyPath(), pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}))
	g := generation{
		Version: 1, ArchiveID: string(c.ID), Generation: 2, PublicKey: public, FirstSeq: max(rememberedSeq, last) + 2, CreatedAt: 7,
		PrevSize: last, PrevRoot: prev[:], RememberedSeq: rememberedSeq,
	}
	genesis, err := g.genesis()
	must1(t, err)
	edge, row := new(tlogx.Edge), commitRow{first: g.base(), last: g.base()}
	edge.Append(tlog.RecordHash(genesis), func(_ int64, h tlog.Hash) { row.hashes = append(row.hashes, h) })
	change(t, c, func(db *pebble.DB) {
		must1(t, db.Set(generationKey(2), mustRow(t, g), pebble.Sync))
		must1(t, db.Set(commitKey(row.last), row.encode(), pebble.Sync))
		must1(t, db.Set(metaKey(metaGeneration), strconv.AppendInt(nil, 2, 10), pebble.Sync))
		must1(t, db.Set(metaKey(metaPublicKey), public, pebble.Sync))
	})
	id, err := identity{key: key, lineage: lineage{{}, g}}.withSigner()
	must1(t, err)
	_, err = writeMarkFile(c, id, treeHead{seq: g.base(), size: 1, root: edge.Root()})
	must1(t, err)
}

// TestSecondGeneration: numbers go on beyond everything that was remembered, the
// new tree begins with the genesis, and what was kept is still answered.
func TestSecondGeneration(t *testing.T) {
	for _, kept := range []int{0, 5} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			fs, records := marked(t, kept)
			c := testConfig(fs, "archive-a")
			begins(t, c, 8)
			n := mustOpen(t, c)
			if h := n.Hello(); h.Generation != 2 || h.Seq != 9 || h.Records != uint64(kept) || !h.Filter.Ready {
				t.Fatalf("hello %+v", h)
			}
			cp := mustCheckpoint(t, n, n.Checkpoint())
			if cp.Origin != "archive-a/g2" || cp.Size != 1 {
				t.Errorf("checkpoint %+v", cp)
			}
			for i := range 4 {
				ack := mustMark(t, n, metadata(alice, digest(fmt.Sprint("new ", i)), `{}`))
				if ack.Seq != uint64(10+i) || ack.Generation != 2 || mustCheckpoint(t, n, ack.Checkpoint).Size != int64(2+i) {
					t.Errorf("acknowledged %+v", ack)
				}
				if i == 1 { // and across a restart
					mustClose(t, n)
					n = mustOpen(t, c)
				}
			}
			defer func() { mustClose(t, n) }()
			for seq := uint64(10); seq < 14; seq++ {
				p, err := n.Inclusion(seq)
				must1(t, err)
				if _, err := p.Verify(p.Extra, n.testVerifier(t)); err != nil || p.Index != int64(seq-9) {
					t.Errorf("seq %d: leaf %d, %v", seq, p.Index, err)
				}
			}
			for _, seq := range []uint64{1, 5, 9, 14} {
				if _, err := n.Inclusion(seq); fault.CodeOf(err) != "NO_LEAF" {
					t.Errorf("seq %d: %v", seq, err)
				}
			}
			p, err := n.Proof(1)
			must1(t, err)
			must1(t, tlogx.CheckConsistency(cp, mustCheckpoint(t, n, p.Checkpoint), p.Proof))
			for _, r := range records {
				if got := ask(t, n, alice, r.SHA256); len(got) != 1 {
					t.Errorf("a record of the first generation is answered %v", got)
				}
			}
			if _, err := n.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if r, err := openSkeleton(c); err != nil || r.entries != uint64(kept+4) {
				t.Errorf("skeleton: %+v, %v", r, err)
			} else {
				must1(t, r.file.Close())
			}
		})
	}
}

// TestLineageCounts holds the arithmetic of generations against a list.
func TestLineageCounts(t *testing.T) {
	log := lineage{
		{Generation: 1, FirstSeq: 1}, {Generation: 3, FirstSeq: 10, PrevSize: 6}, {Generation: 4, FirstSeq: 20, PrevSize: 6},
		{Generation: 7, FirstSeq: 30, PrevSize: 22},
	}
	has := map[uint64]bool{}
	for _, r := range [][2]uint64{{1, 6}, {20, 22}, {30, 40}} {
		for seq := r[0]; seq <= r[1]; seq++ {
			has[seq] = true
		}
	}
	count, sum, prev := uint64(0), uint64(0), uint64(0)
	for seq := uint64(1); seq <= 40; seq++ {
		if log.follows(prev, seq) != has[seq] {
			t.Errorf("%d after %d: %v", seq, prev, !has[seq])
		}
		if has[seq] {
			count, sum, prev = count+1, sum+seq, seq
		}
		if got := log.records(seq); got != count {
			t.Errorf("%d records up to %d, want %d", got, seq, count)
		}
	}
	if got := log.sum(40); got != sum {
		t.Errorf("the sum is %d, want %d", got, sum)
	}
	if log.follows(2, 2) || log.follows(3, 2) || log.follows(1, 3) || log.follows(6, 21) {
		t.Error("numbers that do not follow")
	}
	for n := range uint64(100) {
		if triangle(n) != n*(n+1)/2 {
			t.Errorf("triangle(%d) = %d", n, triangle(n))
		}
	}
	if err := (lineage{}).check("archive-a"); err == nil || errors.Is(err, errGeneration) {
		t.Errorf("no generation: %v", err)
	}
}
