package archive

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// nobodyHas is a repair of a shelf for whose files nobody can be asked.
func (s *shelf) nobodyHas() RepairConfig {
	return RepairConfig{Config: s.cfg, Refetch: func(context.Context, wire.File) error {
		return fault.New(fault.NotFound, blob.CodeNoCopy, "nobody has it")
	}}
}

// repaired repairs a closed shelf that opens again afterwards.
func (s *shelf) repaired(t *testing.T, damage func()) *RepairReport {
	t.Helper()
	var report *RepairReport
	s.reopenAfter(t, func() {
		damage()
		files, err := blob.OpenStore(blob.StoreConfig{Dir: "files", FS: s.fs, DiskReserve: 1})
		must1(t, err)
		s.cfg.Files = files
		report, err = Repair(t.Context(), s.nobodyHas())
		must1(t, err)
		must1(t, files.Close())
	})
	return report
}

// lostBytes are the ways in which a store of files loses the bytes of all of them.
var lostBytes = map[string]func(t *testing.T, s *shelf){
	"the bytes": func(t *testing.T, s *shelf) {
		for path := range readTree(t, s.fs, "files/files") {
			must1(t, s.fs.Remove(path))
		}
	},
	"the bytes and their rows": func(t *testing.T, s *shelf) {
		must1(t, s.fs.RemoveAll("files"))
		files, err := blob.OpenStore(blob.StoreConfig{Dir: "files", FS: s.fs, Create: true, DiskReserve: 1})
		must1(t, err)
		must1(t, files.Close())
	},
}

// Law 8: a file that nobody has any more is an end and no damage: the archive
// serves again, says how much it lost, shows the record, and knows the file as
// lost until its bytes come back from whoever has them.
func TestLaw8LostFileIsKnownAndComesBack(t *testing.T) {
	for name, lose := range lostBytes {
		t.Run(name, func(t *testing.T) {
			s, other := newShelf(t, "archive-a"), newShelf(t, "archive-b")
			kept := metadata(alice, digest("other"), `{}`)
			mustPut(t, s.Node, kept)
			r := s.scan(t, 1, 3000)
			s.reopenAfter(t, func() { lose(t, s) })
			<-s.looked
			wantState(t, s.Node, wire.StateReadonly, "DAMAGED")

			report := s.repaired(t, func() {})
			if !report.Whole || report.Clean() || len(report.Files) != 1 || !report.Files[0].Lost || report.Files[0].Known {
				t.Errorf("repaired: %+v", report)
			}
			lost := func(want uint64) {
				t.Helper()
				<-s.looked
				wantState(t, s.Node, wire.StateUp, "")
				if h := s.Hello(); h.Lost != want || h.Records != 2 || s.FileLost(r.File.SHA256) != (want > 0) {
					t.Errorf("hello %+v, want %d lost", h, want)
				}
				if got := ask(t, s.Node, alice, r.SHA256); len(got) != 1 {
					t.Errorf("a query for the record: %+v", got)
				}
				if has, err := s.HasRecords(t.Context(), []wire.RecordID{kept.ID(), r.ID()}); err != nil || !has[0] || has[1] != (want == 0) {
					t.Errorf("has %v, %v", has, err)
				}
				c, err := s.CheckWith(t.Context(), CheckOptions{Blobs: s.files})
				known := slices.ContainsFunc(c.Findings, func(f Finding) bool {
					return f.File == r.File.SHA256 && strings.Contains(f.What, "known to be lost")
				})
				if err != nil || known != (want > 0) {
					t.Errorf("checked with %d lost: %v, %+v", want, err, c.Findings)
				}
			}
			lost(1)
			again := fileUnder(digest("again"), r.File.SHA256)
			again.File = r.File
			if _, err := s.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: again}); err == nil {
				t.Error("a record is acknowledged whose file is lost")
			}
			s.reopen(t)
			lost(1)

			report = s.repaired(t, func() {})
			if !report.Whole || !report.Clean() || len(report.Files) != 1 || !report.Files[0].Known {
				t.Errorf("repaired again: %+v", report)
			}
			lost(1)

			other.scan(t, 1, 3000)
			f := newFleet(t, s, other)
			if err := f.reconciler(s, 1).Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			lost(0)
			data, _, err := s.files.Read(t.Context(), r.File.CID, 0, 3000)
			if _, want := scanOf(1, 3000); err != nil || !bytes.Equal(data, want) {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
			f.pullers[s.cfg.ID].Close()
			s.reopen(t)
			lost(0)
			if report = s.repaired(t, func() {}); !report.Whole || len(report.Files) > 0 {
				t.Errorf("repaired at last: %+v", report)
			}
		})
	}
}

// Law 8: a lost file that was sent again is a file like all others: before a
// record of it is acknowledged it is off the list, and to lose it again is damage.
func TestLaw8FileThatCameBackIsNotExcused(t *testing.T) {
	s := newShelf(t, "archive-a")
	r, other := s.scan(t, 1, 3000), s.scan(t, 2, 2000)
	s.repaired(t, func() { lostBytes["the bytes"](t, s) })
	<-s.looked
	listed := func() (ids []wire.Digest) {
		list, err := readLostFiles(s.cfg)
		must1(t, err)
		for _, f := range list {
			ids = append(ids, f.sha256)
		}
		return ids
	}
	if len(listed()) != 2 {
		t.Fatalf("listed: %v", listed())
	}
	_, data := scanOf(1, 3000)
	must1(t, s.files.Open("again", blob.Default))
	_, err := s.files.Write("again", 0, data)
	must1(t, err)
	_, err = s.files.Commit(t.Context(), "again", r.File.Size, r.File.SHA256, r.File.CID)
	must1(t, err)
	again := fileUnder(digest("again"), r.File.SHA256)
	again.File = r.File
	mustPut(t, s.Node, again)
	if left := listed(); len(left) != 1 || left[0] != other.File.SHA256 || s.FileLost(r.File.SHA256) || s.Hello().Lost != 1 {
		t.Errorf("listed after the file came back: %v, %+v", left, s.Hello())
	}
	s.reopenAfter(t, func() { lostBytes["the bytes"](t, s) })
	<-s.looked
	wantState(t, s.Node, wire.StateReadonly, "DAMAGED")
	before, err := readLostFiles(s.cfg)
	must1(t, err)
	report := s.repaired(t, func() {})
	known := map[wire.Digest]bool{}
	for _, f := range report.Files {
		known[f.SHA256] = f.Known
	}
	if report.Clean() || len(known) != 2 || known[r.File.SHA256] || !known[other.File.SHA256] {
		t.Errorf("repaired: %+v", report)
	}
	<-s.looked
	wantState(t, s.Node, wire.StateUp, "")
	after, err := readLostFiles(s.cfg)
	if must1(t, err); len(after) != 2 || !slices.Contains(after, before[0]) {
		t.Errorf("listed %v, before %v", after, before)
	}
}

// A lost file outlives the rebuilding of the records, and one that is lost later
// is damage until a repair has asked for it.
func TestLostFilesAddUp(t *testing.T) {
	s := newShelf(t, "archive-a")
	first := s.scan(t, 1, 3000)
	s.repaired(t, func() { lostBytes["the bytes"](t, s) })
	second := s.scan(t, 2, 2000)
	s.reopenAfter(t, func() { lostBytes["the bytes"](t, s) })
	<-s.looked
	wantState(t, s.Node, wire.StateReadonly, "DAMAGED")
	if text := s.Ready().Error(); !strings.Contains(text, second.ID().String()) {
		t.Error(text)
	}
	report := s.repaired(t, func() {
		for path := range readTree(t, s.fs, "data/records") {
			if strings.Contains(path, "MANIFEST") {
				must1(t, s.fs.Remove(path))
			}
		}
	})
	if report.Whole || report.Clean() || len(report.Files) != 2 {
		t.Fatalf("%+v", report)
	}
	<-s.looked
	wantState(t, s.Node, wire.StateUp, "")
	if h := s.Hello(); h.Lost != 2 || !s.FileLost(first.File.SHA256) || !s.FileLost(second.File.SHA256) {
		t.Errorf("%+v", h)
	}
}

// What is known to be lost is known to a copy too.
func TestLostFilesAreInABackup(t *testing.T) {
	s := newShelf(t, "archive-a")
	s.scan(t, 1, 3000)
	s.repaired(t, func() { lostBytes["the bytes"](t, s) })
	w, err := pebblex.NewBackup(s.fs, "backup", "archive", "archive-a", time.Now())
	must1(t, err)
	must1(t, s.Backup(t.Context(), w, "records"))
	c := s.cfg
	c.Dir = "backup/records"
	list, err := readLostFiles(c)
	if want, _ := readLostFiles(s.cfg); err != nil || len(list) != 1 || list[0] != want[0] {
		t.Errorf("%v, %v", list, err)
	}
}

// Law 8: that the file of a record is known to be lost excuses no row of the
// record but those under the blocks of the file.
func TestCheckFindsRowsOfALostFileGone(t *testing.T) {
	for name, tc := range map[string]struct {
		key   func(r wire.PutRecord, f *frame) []byte
		value func(old []byte) []byte // nil: the row is gone
		found uint64
	}{
		"subject gone":    {func(r wire.PutRecord, f *frame) []byte { return indexKey(r.SHA256, f.Seq) }, nil, 1},
		"file gone":       {func(r wire.PutRecord, f *frame) []byte { return indexKey(r.File.SHA256, f.Seq) }, nil, 1},
		"tenant gone":     {func(r wire.PutRecord, f *frame) []byte { return tenantKey(tagOf(r.TenantID), f.StoredAt, f.Seq) }, nil, 1},
		"put id gone":     {func(_ wire.PutRecord, f *frame) []byte { return putIDKey(putKey(f.PutID)) }, nil, 1},
		"subject changed": {func(r wire.PutRecord, f *frame) []byte { return indexKey(r.SHA256, f.Seq) }, func(old []byte) []byte { old[rowRoles] |= byte(roleRecord); return old }, 1},
		"row too many":    {func(_ wire.PutRecord, f *frame) []byte { return indexKey(digest("elsewhere"), f.Seq) }, func(old []byte) []byte { return old }, 1},
		"perhaps a block": {func(_ wire.PutRecord, f *frame) []byte { return indexKey(digest("elsewhere"), f.Seq) }, func(old []byte) []byte { old[rowRoles] = byte(roleBlock); return old }, 0},
		"nothing":         {func(r wire.PutRecord, f *frame) []byte { return indexKey(r.SHA256, f.Seq) }, func(old []byte) []byte { return old }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, "archive-a")
			r := s.scan(t, 1, 3000)
			s.repaired(t, func() { lostBytes["the bytes"](t, s) })
			s.reopenAfter(t, func() {
				change(t, s.cfg, func(db *pebble.DB) {
					f := mustDecode(t, get(t, db, logKey(1)))
					if tc.value == nil {
						must1(t, db.Delete(tc.key(r, f), pebble.Sync))
						return
					}
					must1(t, db.Set(tc.key(r, f), tc.value(get(t, db, indexKey(r.SHA256, f.Seq))), pebble.Sync))
				})
			})
			<-s.looked
			c, err := s.Check(t.Context())
			if c.Damages != tc.found || (err != nil) != (tc.found > 0) {
				t.Errorf("%v\n%s", err, listed(c))
			}
			if report := s.repaired(t, func() {}); report.Whole != (tc.found == 0) || !report.Clean() {
				t.Errorf("repaired: %+v", report)
			}
			if c, err = s.Check(t.Context()); err != nil || len(ask(t, s.Node, alice, r.SHA256)) != 1 {
				t.Errorf("after the repair: %v\n%s", err, listed(c))
			}
		})
	}
}

// The list is written whole or not at all: before it is, the file is damage, and
// the repair can be run again.
func TestListOfLostFilesIsWholeOrNotThere(t *testing.T) {
	for n := 1; ; n++ {
		fs := vfs.NewMem()
		disk := faultfs.New(fs)
		c := testConfig(disk, "archive-a")
		must1(t, c.FS.MkdirAll(c.Dir, 0o700))
		one, two := lostFile{digest("one"), wire.RecordID{1}, "2026-11-30T12:00:00Z"}, lostFile{digest("two"), wire.RecordID{2}, "2026-12-01T12:00:00Z"}
		must1(t, addLostFiles(c, []lostFile{one}))
		disk.Fail(faultfs.Nth(int64(n), faultfs.ErrFull, false))
		err := addLostFiles(c, []lostFile{one, two})
		disk.Fail(nil)
		list, readErr := readLostFiles(c)
		if readErr != nil || len(list) < 1 || list[0] != one || err == nil && (len(list) != 2 || list[1] != two) {
			t.Fatalf("failure %d: %v, %v, %v", n, list, err, readErr)
		}
		if err == nil {
			return // nothing was left to fail
		}
		must1(t, addLostFiles(c, []lostFile{one, two}))
		if list, err := readLostFiles(c); err != nil || len(list) != 2 {
			t.Errorf("failure %d, again: %v, %v", n, list, err)
		}
	}
}

// The form of the list is frozen, and no change of it is taken for the list.
func TestListOfLostFilesIsFrozen(t *testing.T) {
	list := []lostFile{
		{digest("one"), wire.RecordID{1}, "2026-11-30T12:00:00.000000001Z"},
		{digest("two"), wire.RecordID{2}, "2026-12-01T12:00:00.000000000Z"},
	}
	golden, err := os.ReadFile("testdata/lost-files.v1")
	must1(t, err)
	if got := encodeLostFiles(list); !bytes.Equal(got, golden) {
		t.Errorf("the list is\n%s", got)
	}
	if got, err := decodeLostFiles(golden); err != nil || len(got) != 2 || got[0] != list[0] || got[1] != list[1] {
		t.Errorf("%v, %v", got, err)
	}
	for i := range golden {
		bad := bytes.Clone(golden)
		bad[i] ^= 1
		if got, err := decodeLostFiles(bad); err == nil {
			t.Errorf("byte %d changed: %v", i, got)
		}
		if got, err := decodeLostFiles(golden[:i]); err == nil {
			t.Errorf("cut to %d bytes: %v", i, got)
		}
	}
	// An archive with a list that can not be read opens, and its file is damage.
	s := newShelf(t, "archive-a")
	s.scan(t, 1, 1000)
	s.repaired(t, func() { lostBytes["the bytes"](t, s) })
	s.reopenAfter(t, func() {
		f, err := s.fs.Create(s.cfg.lostFilesPath(), vfs.WriteCategoryUnspecified)
		must1(t, err)
		must1(t, f.Close())
	})
	<-s.looked
	wantState(t, s.Node, wire.StateReadonly, "DAMAGED")
	if report := s.repaired(t, func() {}); report.Clean() || len(report.Damages) == 0 {
		t.Errorf("%+v", report)
	}
	<-s.looked
	wantState(t, s.Node, wire.StateUp, "")
}
