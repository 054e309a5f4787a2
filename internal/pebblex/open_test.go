package pebblex

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// TestCacheHoldsBlocksUnderLoad fills memtables and reads one key again and
// again: all but the first reads must come from the cache.
func TestCacheHoldsBlocksUnderLoad(t *testing.T) {
	const cache, table = 1 << 20, 1 << 20
	db := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem(), Create: true, CacheSize: cache, MemTableSize: table})
	defer mustClose(t, db)
	put(t, db, 0, 100)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 40 { // 40 times 50 kB: both memtables are at their full size
		put(t, db, 1000+100*i, 100)
		_, closer, err := db.Get([]byte("key-000050"))
		if err != nil {
			t.Fatal(err)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	if m := db.Metrics().BlockCache; m.Size == 0 || m.Hits < 10 {
		t.Errorf("cache of %d bytes, %d hits, %d misses", m.Size, m.Hits, m.Misses)
	}
}

// TestReplayedRecordsAreDurable kills a process between a write and its fsync,
// as the next process sees it: the bytes are in the page cache. What that one
// reads must survive a power loss.
func TestReplayedRecordsAreDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	mustClose(t, mustOpen(t, Options{Dir: "store", FS: mem, Create: true}))
	held := &holdSync{FS: mem, release: make(chan struct{}), waiting: make(chan struct{}, 1)}
	first := mustOpen(t, Options{Dir: "store", FS: held})
	held.on.Store(true)
	written := make(chan error)
	go func() { written <- first.Set([]byte("k"), []byte("v"), pebble.Sync) }()
	<-held.waiting

	second := mustOpen(t, Options{Dir: "store", FS: &holdSync{FS: mem}})
	if _, closer, err := second.Get([]byte("k")); err != nil {
		t.Fatalf("the second process does not see the write: %v", err)
	} else if err := closer.Close(); err != nil {
		t.Error(err)
	}
	third := mustOpen(t, Options{Dir: "store", FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if _, closer, err := third.Get([]byte("k")); err != nil {
		t.Errorf("what a process could read is gone after a power loss: %v", err)
	} else if err := closer.Close(); err != nil {
		t.Error(err)
	}
	mustClose(t, third)
	mustClose(t, second)
	close(held.release)
	if err := <-written; err != nil {
		t.Error(err)
	}
	// The first store's files were taken away by the second; it is left open.
}

// holdSync is a disk whose logs are written and not synced while on is set, and
// whose locks bind nobody: the processes of the test share it.
type holdSync struct {
	vfs.FS
	on      atomic.Bool
	release chan struct{}
	waiting chan struct{} // gets one when a sync is held
}

type nopLock struct{}

func (nopLock) Close() error { return nil }

func (*holdSync) Lock(string) (io.Closer, error) { return nopLock{}, nil }

func (h *holdSync) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.Create(name, category)
	return &heldFile{f, h}, err
}

func (h *holdSync) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.FS.ReuseForWrite(from, to, category)
	return &heldFile{f, h}, err
}

type heldFile struct {
	vfs.File
	fs *holdSync
}

func (f *heldFile) SyncData() error {
	if f.fs.on.Load() {
		select {
		case f.fs.waiting <- struct{}{}:
		default:
		}
		<-f.fs.release
		return nil
	}
	return f.File.SyncData()
}
