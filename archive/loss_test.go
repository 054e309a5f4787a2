package archive

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// tampered returns the file system of an archive of five records, one with a
// file, whose store was changed behind its back.
func tampered(t *testing.T, change func(t *testing.T, db *pebble.DB, records []wire.PutRecord)) (Config, []wire.PutRecord) {
	t.Helper()
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	var records []wire.PutRecord
	for i := range 4 {
		records = append(records, metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d}`, i)))
	}
	file := fileRecord(alice, digest("4"))
	c.Files.(*files).add(file.File.SHA256, digest("root"))
	records = append(records, file)
	for _, r := range records {
		mustPut(t, n, r)
	}
	mustClose(t, n)
	db, err := pebblex.Open(pebblex.Options{Dir: c.storeDir(), FS: c.FS, OnFatal: c.OnFatal})
	if err != nil {
		t.Fatal(err)
	}
	change(t, db, records)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return c, records
}

func get(t *testing.T, db *pebble.DB, key []byte) []byte {
	t.Helper()
	v, closer, err := db.Get(key)
	if err != nil {
		t.Fatalf("key %x: %v", key, err)
	}
	v = bytes.Clone(v)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	return v
}

func must1(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLaw8LossIsLoud changes a stored archive in every way that a disk, a
// program or a hand could. Open, the query that meets it, or Check must say so;
// none may take it for silence, and a healthy-looking archive must be whole.
func TestLaw8LossIsLoud(t *testing.T) {
	set := func(t *testing.T, db *pebble.DB, key, value []byte) { must1(t, db.Set(key, value, pebble.Sync)) }
	del := func(t *testing.T, db *pebble.DB, key []byte) { must1(t, db.Delete(key, pebble.Sync)) }
	const atOpen, atLoad, atAnswer, atCheck = "open", "load", "answer", "check"
	for name, tc := range map[string]struct {
		change func(t *testing.T, db *pebble.DB, records []wire.PutRecord)
		found  string // where first; what is found at load is also found by check
		asked  int    // the record whose answer finds it
	}{
		"nothing": {func(*testing.T, *pebble.DB, []wire.PutRecord) {}, "", 0},
		"first log entry gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, logKey(1))
		}, atOpen, 0},
		"last log entry gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, logKey(5))
		}, atOpen, 0},
		"all of the log gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			must1(t, db.DeleteRange(logKey(0), logKey(100), pebble.Sync))
		}, atOpen, 0},
		"last record gone with all its rows": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			f := mustDecode(t, get(t, db, logKey(5)))
			del(t, db, logKey(5))
			del(t, db, commitKey(5))
			del(t, db, tenantKey(tagOf(alice), f.StoredAt, 5))
			del(t, db, putIDKey(putKey(f.PutID)))
			for _, d := range [][32]byte{records[4].SHA256, records[4].ID(), records[4].File.SHA256, digest("root")} {
				del(t, db, indexKey(d, 5))
			}
		}, atOpen, 0},
		"last commit gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, commitKey(5))
		}, atOpen, 0},
		"commit in the middle gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, commitKey(1))
		}, atCheck, 0},
		"commit damaged": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			v := get(t, db, commitKey(2))
			v[12] ^= 1
			set(t, db, commitKey(2), v)
		}, atCheck, 0},
		"last commit damaged": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			v := get(t, db, commitKey(5))
			v[12] ^= 1
			set(t, db, commitKey(5), v)
		}, atOpen, 0},
		"commit with another hash, checksum right": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			c, err := decodeCommit(3, get(t, db, commitKey(3)))
			must1(t, err)
			c.hashes[0][0] ^= 1
			set(t, db, commitKey(3), c.encode())
		}, atCheck, 0},
		"last commit with another hash, checksum right": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			c, err := decodeCommit(5, get(t, db, commitKey(5)))
			must1(t, err)
			c.hashes[0][0] ^= 1
			set(t, db, commitKey(5), c.encode())
		}, atOpen, 0},
		"commit too many": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, commitKey(6), commitRow{first: 6, last: 6, hashes: make([]tlog.Hash, 2)}.encode())
		}, atOpen, 0},
		"generation gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, generationKey(1))
		}, atOpen, 0},
		"generation damaged": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			v := get(t, db, generationKey(1))
			v[12] ^= 1
			set(t, db, generationKey(1), v)
		}, atOpen, 0},
		"generation too many": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, generationKey(2), mustRow(t, sampleGenerations()["second"]))
		}, atOpen, 0},
		"generation of another archive": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			g, err := decodeGeneration(1, get(t, db, generationKey(1)))
			must1(t, err)
			g.ArchiveID = "archive-b"
			set(t, db, generationKey(1), mustRow(t, g))
		}, atOpen, 0},
		"tenant row gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			f := mustDecode(t, get(t, db, logKey(3)))
			del(t, db, tenantKey(tagOf(alice), f.StoredAt, 3))
		}, atCheck, 0},
		"tenant row too many": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, tenantKey(tagOf(bob), 7, 3), nil)
		}, atCheck, 0},
		"said to be lost": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			id := records[2].ID()
			set(t, db, lostKey(3), id[:])
		}, atCheck, 0},
		"lost without being said to be": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			f := mustDecode(t, get(t, db, logKey(3)))
			set(t, db, logKey(3), mustStub(t, envelope{archive: "archive-a", generation: 1, seq: 3, storedAt: f.StoredAt}, records[2].ID()))
		}, atAnswer, 2},
		"lost beyond the log": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			id := records[2].ID()
			set(t, db, lostKey(9), id[:])
		}, atOpen, 0},
		"log entry in the middle gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, logKey(3))
		}, atAnswer, 2},
		"last frame damaged": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			v := get(t, db, logKey(5))
			v[20] ^= 1
			set(t, db, logKey(5), v)
		}, atOpen, 0},
		"frame damaged": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			v := get(t, db, logKey(3))
			v[len(v)-10] ^= 1
			set(t, db, logKey(3), v)
		}, atAnswer, 2},
		"body exchanged, checksum right": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			head, _, err := splitFrame(get(t, db, logKey(3)))
			must1(t, err)
			set(t, db, logKey(3), assemble(0, head, []byte(`{"n":9}`)))
		}, atAnswer, 2},
		"frames exchanged": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			two, three := get(t, db, logKey(2)), get(t, db, logKey(3))
			set(t, db, logKey(2), three)
			set(t, db, logKey(3), two)
		}, atAnswer, 2},
		"frame of another archive": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			f := mustDecode(t, get(t, db, logKey(3)))
			set(t, db, logKey(3), mustEncode(t, envelope{archive: "archive-b", generation: 1, seq: 3, storedAt: f.StoredAt}, records[2]))
		}, atAnswer, 2},
		"subject row gone": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			del(t, db, indexKey(records[2].SHA256, 3))
		}, atCheck, 0},
		"record id row gone": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			del(t, db, indexKey(records[2].ID(), 3))
		}, atLoad, 0},
		"block row gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, indexKey(digest("root"), 5))
		}, atCheck, 0},
		"row damaged": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			set(t, db, indexKey(records[2].SHA256, 3), []byte("x"))
		}, atLoad, 0},
		"row gives the record away": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			r := row{roleSubject, false, 7, records[2].ID(), wire.KindMetadata, bob}
			set(t, db, indexKey(records[2].SHA256, 3), r.encode())
		}, atCheck, 0},
		"row points to another record": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			r := row{roleSubject, false, 7, records[1].ID(), wire.KindMetadata, alice}
			set(t, db, indexKey(records[2].SHA256, 3), r.encode())
		}, atAnswer, 2},
		"row too many": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			r := row{roleSubject, false, 7, records[2].ID(), wire.KindMetadata, alice}
			set(t, db, indexKey(digest("elsewhere"), 3), r.encode())
		}, atCheck, 0},
		"row beyond the log": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			r := row{roleSubject, false, 7, records[2].ID(), wire.KindMetadata, alice}
			set(t, db, indexKey(records[2].SHA256, 9), r.encode())
		}, atLoad, 0},
		"put id gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			f := mustDecode(t, get(t, db, logKey(3)))
			del(t, db, putIDKey(putKey(f.PutID)))
		}, atCheck, 0},
		"put id of another record": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			f := mustDecode(t, get(t, db, logKey(3)))
			set(t, db, putIDKey(putKey(f.PutID)), putValue(3, records[1].ID()))
		}, atCheck, 0},
		"put id too many": {func(t *testing.T, db *pebble.DB, records []wire.PutRecord) {
			set(t, db, putIDKey(putKey{9}), putValue(3, records[2].ID()))
		}, atCheck, 0},
		"odd keys": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, []byte("hodd"), nil)
		}, atLoad, 0},
		"identity gone": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			del(t, db, metaKey(metaArchive))
		}, atOpen, 0},
		"newer layout": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, metaKey(metaLayout), []byte("3"))
		}, atOpen, 0},
		"older layout": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, metaKey(metaLayout), []byte("1"))
		}, atOpen, 0},
		"odd generation": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, metaKey(metaGeneration), []byte("x"))
		}, atOpen, 0},
		"odd time of creation": {func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
			set(t, db, metaKey(metaCreated), []byte("x"))
		}, atOpen, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, records := tampered(t, tc.change)
			n, err := Open(c)
			if (err != nil) != (tc.found == atOpen) {
				t.Fatalf("open: %v", err)
			}
			if err != nil {
				if !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Conflict) {
					t.Errorf("open: %v, want a classified refusal", err)
				}
				return
			}
			defer mustClose(t, n)
			<-n.Loaded()
			if damage := n.Stats().Damage; (damage != "") != (tc.found == atLoad) {
				t.Errorf("when the index was read, the damage is %q", damage)
			}
			if tc.found == atAnswer {
				r := records[tc.asked]
				reply, ok, err := n.Answer(t.Context(), query(alice, r.SHA256))
				if !fault.Is(err, fault.Corrupt) || ok {
					t.Errorf("the damaged record was answered with %+v, %v, %v", reply, ok, err)
				}
				if got := ask(t, n, alice, records[4].SHA256); len(got) != 1 {
					t.Errorf("a whole record is not answered any more: %v", got)
				}
			}
			_, err = n.Check(t.Context())
			if (err == nil) != (tc.found == "") || err != nil && !fault.Is(err, fault.Corrupt) {
				t.Errorf("check: %v", err)
			}
			state := wire.StateUp
			if tc.found != "" {
				state = wire.StateReadonly
				if n.Stats().Damage == "" {
					t.Error("no damage is reported")
				}
			}
			if got := n.Hello().State; got != state {
				t.Errorf("state %s, want %s", got, state)
			}
			if _, err := n.Put(t.Context(), wire.Put{Record: metadata(alice, digest("new"), `{}`)}); (err == nil) != (tc.found == "") {
				t.Errorf("put: %v", err)
			}
		})
	}
}

// TestLaw8DamagedBlockIsNoSilence flips one bit in every table of the store.
func TestLaw8DamagedBlockIsNoSilence(t *testing.T) {
	c, records := tampered(t, func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
		must1(t, db.Flush())
		must1(t, db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	})
	mem := c.FS.(*vfs.MemFS)
	names, err := mem.List(c.storeDir())
	must1(t, err)
	flipped := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			data, err := mem.UnsafeGetFileDataBuffer(mem.PathJoin(c.storeDir(), name))
			must1(t, err)
			data[len(data)/8] ^= 1
			flipped++
		}
	}
	if flipped == 0 {
		t.Fatal("no tables")
	}
	n, err := Open(c)
	if err != nil {
		if !pebble.IsCorruptionError(err) && !fault.Is(err, fault.Corrupt) {
			t.Errorf("open: %v", err)
		}
		return // refused is loud
	}
	defer mustClose(t, n)
	<-n.Loaded()
	loud := 0
	for _, r := range records {
		_, ok, err := n.Answer(t.Context(), query(alice, r.SHA256))
		if !ok && err == nil {
			t.Errorf("record of %s: silence", r.SHA256)
		}
		if fault.Is(err, fault.Corrupt) {
			loud++
		}
	}
	if loud == 0 || n.Hello().State != wire.StateReadonly {
		t.Errorf("%d loud answers in state %s", loud, n.Hello().State)
	}
}

// TestIndexIsDerived computes the index from the log alone and compares it, key
// by key, with the stored one.
func TestIndexIsDerived(t *testing.T) {
	var stored, derived map[string]string
	tampered(t, func(t *testing.T, db *pebble.DB, _ []wire.PutRecord) {
		stored, derived = map[string]string{}, map[string]string{}
		it, err := db.NewIter(nil)
		must1(t, err)
		for valid := it.First(); valid; valid = it.Next() {
			switch it.Key()[0] {
			case prefixIndex, prefixPut:
				stored[string(it.Key())] = string(it.Value())
			case prefixLog:
				f := mustDecode(t, it.Value())
				rec := f.record()
				p := rec.Portable()
				var blocks [][digestLen]byte
				if p.File != nil {
					blocks = [][digestLen]byte{digest("root")}
				}
				for _, at := range placesOf(&p, rec.ID, blocks) {
					r := row{at.roles, len(p.ShareWith) > 0, f.StoredAt, rec.ID, rec.Kind, rec.TenantID}
					derived[string(indexKey(at.digest, f.Seq))] = string(r.encode())
				}
				derived[string(putIDKey(putKey(f.PutID)))] = string(putValue(f.Seq, rec.ID))
			}
		}
		must1(t, it.Close())
	})
	if len(stored) < 16 || !maps.Equal(stored, derived) {
		t.Errorf("%d stored keys, %d derived; first: %x, %x", len(stored), len(derived),
			slices.Min(slices.Collect(maps.Keys(stored))), slices.Min(slices.Collect(maps.Keys(derived))))
	}
}

// TestRefusedBatchStopsTheArchive: if the guard ever finds a key that exists,
// nothing is written, the put is not acknowledged and the archive takes no more.
func TestRefusedBatchStopsTheArchive(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	mustPut(t, n, metadata(alice, digest("1"), `{}`))
	mustPut(t, n, metadata(alice, digest("2"), `{}`))
	n.tail.seq = 1 // as a bug would have it: seq 2 is given out again
	before := get(t, n.db, logKey(2))
	put := wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, digest("3"), `{}`)}
	if _, err := n.Put(t.Context(), put); !errors.Is(err, pebblex.ErrNotAppend) || fault.KindOf(err) != fault.Internal {
		t.Errorf("got %v, want the guard's refusal", err)
	}
	if !bytes.Equal(before, get(t, n.db, logKey(2))) {
		t.Error("a record was overwritten")
	}
	if n.Hello().State != wire.StateReadonly || n.Seq() != 2 {
		t.Errorf("state %s, seq %d", n.Hello().State, n.Seq())
	}
	if _, err := n.Put(t.Context(), put); fault.CodeOf(err) != "READONLY" {
		t.Errorf("the next put: %v", err)
	}
}
