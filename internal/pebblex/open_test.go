package pebblex

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func mustOpen(t testing.TB, o Options) *pebble.DB {
	t.Helper()
	if o.OnFatal == nil {
		o.OnFatal = func(reason string) { panic("fatal: " + reason) }
	}
	db, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return db
}

func mustClose(t testing.TB, db *pebble.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func put(t testing.TB, db *pebble.DB, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		if err := db.Set(fmt.Appendf(nil, "key-%06d", i), make([]byte, 500), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenMakesAStoreOnlyOnRequest(t *testing.T) {
	fs := vfs.NewMem()
	if _, err := Open(Options{Dir: "a/store", FS: fs}); !errors.Is(err, ErrMissing) {
		t.Fatalf("opening a missing store: %v, want ErrMissing", err)
	}
	if _, err := fs.Stat("a"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a refused open left something behind: %v", err)
	}
	mustClose(t, mustOpen(t, Options{Dir: "a/store", FS: fs, Create: true}))
	if _, err := Open(Options{Dir: "a/store", FS: fs, Create: true}); !errors.Is(err, ErrExists) {
		t.Fatalf("making a store twice: %v, want ErrExists", err)
	}
	db := mustOpen(t, Options{Dir: "a/store", FS: fs})
	if got := db.FormatMajorVersion(); got != pebble.FormatNewest {
		t.Errorf("format %d, want %d", got, pebble.FormatNewest)
	}
	mustClose(t, db)
}

func TestOpenRefusesAnEmptiedDirectory(t *testing.T) {
	dir := t.TempDir() // as an unmounted volume looks
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrMissing) {
		t.Fatalf("got %v, want ErrMissing", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) > 0 {
		t.Errorf("the refused open wrote %v, %v", names, err)
	}
}

func TestOpenRefusesForeignFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir, Create: true}); !errors.Is(err, ErrExists) {
		t.Fatalf("got %v, want ErrExists", err)
	}
}

func TestOpenNamesTheDirectoryInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "store")
	db := mustOpen(t, Options{Dir: dir, Create: true})
	_, err := Open(Options{Dir: dir})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second open: %v, want ErrInUse naming %s", err, dir)
	}
	mustClose(t, db)
	mustClose(t, mustOpen(t, Options{Dir: dir}))

	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the store's directory has mode %v, want 0700", info.Mode().Perm())
	}
}

// TestDamagedLogDoesNotOpen flips one bit in the middle of the log of a store's
// first run. Without the flush after create, Open succeeds with a part of the
// records gone.
func TestDamagedLogDoesNotOpen(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db := mustOpen(t, Options{Dir: "store", FS: fs, Create: true})
	const n = 300 // fits the first memtable, so the log is not rotated by itself
	put(t, db, 0, n)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)

	log := newestLog(t, crashed, "store")
	data, err := crashed.UnsafeGetFileDataBuffer(log)
	if err != nil {
		t.Fatal(err)
	}
	data[n*500/2] ^= 1
	db, err = Open(Options{Dir: "store", FS: crashed})
	if err == nil {
		mustClose(t, db)
		t.Fatal("a store with a damaged log opened")
	}
	if !pebble.IsCorruptionError(err) {
		t.Errorf("got %v, want a corruption error", err)
	}
}

func newestLog(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") && name > newest {
			newest = name
		}
	}
	if newest == "" {
		t.Fatalf("no log in %v", names)
	}
	return fs.PathJoin(dir, newest)
}

func TestSyncedWritesSurviveACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db := mustOpen(t, Options{Dir: "a/b/store", FS: fs, Create: true})
	put(t, db, 0, 10)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)
	db = mustOpen(t, Options{Dir: "a/b/store", FS: crashed})
	defer mustClose(t, db)
	for i := range 10 {
		_, closer, err := db.Get(fmt.Appendf(nil, "key-%06d", i))
		if err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}
