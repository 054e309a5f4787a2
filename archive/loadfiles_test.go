package archive

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// reopenLooked opens the archive of c and waits until its files were looked for.
func reopenLooked(t *testing.T, c Config) *Node {
	t.Helper()
	n := mustOpen(t, c)
	<-n.looked
	return n
}

// fileUnder is a file record under a subject.
func fileUnder(subject, file wire.Digest) wire.PutRecord {
	r := fileRecord(alice, subject)
	f := *r.File
	f.SHA256, r.File = file, &f
	return r
}

// Law 8: a file that a record names and that the file store lacks is found when
// the archive opens, by whatever other names its digest is known.
func TestLaw8MissingFilesAreFoundAtOpen(t *testing.T) {
	file, other := digest("a file"), digest("another file")
	named, alike, unnamed := fileUnder(digest("subject"), file), fileUnder(file, file), metadata(alice, other, `{}`)
	for name, tc := range map[string]struct {
		records []wire.PutRecord
		change  func(Config)
		holds   func() error // what the store says instead
		found   string       // in the reason; empty: nothing is wrong
	}{
		"no files":                     {records: []wire.PutRecord{metadata(alice, file, `{}`)}},
		"all there":                    {records: []wire.PutRecord{named, alike, fileUnder(digest("subject"), other)}},
		"missing":                      {records: []wire.PutRecord{named}, change: without(file), found: named.ID().String()},
		"missing, its own subject":     {records: []wire.PutRecord{alike}, change: without(file), found: alike.ID().String()},
		"one of two":                   {records: []wire.PutRecord{named, fileUnder(digest("subject"), other)}, change: without(other), found: other.String()},
		"only a subject":               {records: []wire.PutRecord{unnamed, named}, change: without(other)},
		"a subject before the file":    {records: []wire.PutRecord{metadata(alice, file, `{}`), named}, change: without(file), found: "seq 2"},
		"of a record that is lost":     {records: []wire.PutRecord{metadata(alice, file, `{}`), named}, change: func(c Config) { without(file)(c); lose(t, c, 2) }},
		"stored twice":                 {records: []wire.PutRecord{named, named}, change: without(file), found: "seq 1"},
		"the disk does not tell":       {records: []wire.PutRecord{named}, holds: func() error { return faultfs.ErrIO }, found: file.String()},
		"the index of files is broken": {records: []wire.PutRecord{named}, holds: func() error { return fault.New(fault.Corrupt, "BLOB_CORRUPT", "blob: row") }, found: file.String()},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(vfs.NewMem(), "archive-a")
			store := c.Files.(*files)
			store.add(file, digest("root"), file)
			store.add(other, digest("root"), other)
			mustInit(t, c)
			n := mustOpen(t, c)
			for _, r := range tc.records {
				mustPut(t, n, r)
			}
			mustClose(t, n)
			if tc.change != nil {
				tc.change(c)
			}
			if tc.holds != nil {
				c.Files = holding{store, func([32]byte) (bool, error) { return false, tc.holds() }}
			}
			n = reopenLooked(t, c)
			defer mustClose(t, n)
			if tc.found == "" {
				wantState(t, n, wire.StateUp, "")
				return
			}
			wantState(t, n, wire.StateReadonly, "DAMAGED")
			if text := n.Ready().Error(); !strings.Contains(text, tc.found) || !strings.Contains(text, "archived repair") {
				t.Errorf("it says %s; want %s", text, tc.found)
			}
			if !n.keys.set.Ready() {
				t.Error("the filter is not ready")
			}
		})
	}
}

// without takes a file away from the store of files.
func without(file [32]byte) func(Config) {
	return func(c Config) { delete(c.Files.(*files).blocks, file) }
}

// holding answers Holds in its own way.
type holding struct {
	*files
	holds func([32]byte) (bool, error)
}

func (h holding) Holds(_ context.Context, sha256 [32]byte) (bool, error) { return h.holds(sha256) }

// Law 8: an older copy of the files beside the newest records is no healthy
// archive.
func TestLaw8RolledBackFilesAreFoundAtOpen(t *testing.T) {
	s := newShelf(t, "archive-a")
	s.scan(t, 1, 1000)
	s.reopenAfter(t, func() {
		if ok, err := vfs.Clone(s.fs, s.fs, "files", "older"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	<-s.looked
	wantState(t, s.Node, wire.StateUp, "")
	newest := s.scan(t, 2, 1000)
	s.reopenAfter(t, func() {
		must1(t, s.fs.RemoveAll("files"))
		must1(t, s.fs.Rename("older", "files"))
	})
	<-s.looked
	wantState(t, s.Node, wire.StateReadonly, "DAMAGED")
	if text := s.Ready().Error(); !strings.Contains(text, newest.ID().String()) || !strings.Contains(text, hex.EncodeToString(newest.File.SHA256[:])) {
		t.Error(text)
	}
}

// Files are looked up by pages, and the last of them as the first, each once.
func TestFilesAreLookedUpByPages(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	store := c.Files.(*files)
	mustInit(t, c)
	n := mustOpen(t, c)
	const many = filePage + 2
	for i := range many {
		file := digest(fmt.Sprint("file ", i))
		store.add(file, file)
		mustPut(t, n, fileUnder(file, file))
	}
	mustClose(t, n)
	var asked atomic.Int64
	var last atomic.Value
	c.Files = holding{store, func(sha256 [32]byte) (bool, error) {
		asked.Add(1)
		last.Store(sha256)
		return true, nil
	}}
	n = reopenLooked(t, c)
	wantState(t, n, wire.StateUp, "")
	mustClose(t, n)
	if asked.Load() != many {
		t.Errorf("%d files were asked for, %d there are", asked.Load(), many)
	}
	delete(store.blocks, last.Load().([32]byte))
	c.Files = store
	n = reopenLooked(t, c)
	wantState(t, n, wire.StateReadonly, "DAMAGED")
	mustClose(t, n)
}

// A failure that is no damage is tried again, and gives no verdict.
func TestFilesAreLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(vfs.NewMem(), "archive-a")
		store, file := c.Files.(*files), digest("a file")
		store.add(file, file)
		mustInit(t, c)
		n := mustOpen(t, c)
		mustPut(t, n, fileUnder(file, file))
		mustClose(t, n)
		var busy atomic.Bool
		busy.Store(true)
		c.Files = holding{store, func([32]byte) (bool, error) {
			if busy.Load() {
				return false, fault.New(fault.Transient, "BUSY", "too many open files")
			}
			return false, nil
		}}
		n = mustOpen(t, c)
		defer mustClose(t, n)
		time.Sleep(3 * scrubRetry)
		wantState(t, n, wire.StateUp, "")
		busy.Store(false)
		<-n.looked
		wantState(t, n, wire.StateReadonly, "DAMAGED")
	})
}
