package pebblex

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
)

// crashed returns a store whose log holds n records, as a crash left it.
func crashed(t *testing.T, n int) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	db := mustOpen(t, Options{Dir: "store", FS: mem, Create: true})
	put(t, db, 0, n)
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)
	return clone
}

// contents are the files of a store but for its lock.
func contents(t *testing.T, mem *vfs.MemFS) map[string]string {
	t.Helper()
	names, err := mem.List("store")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		data, err := ReadFile(mem, "store/"+name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	return all
}

// A store on a disk without room opens for reading: all that was acknowledged is
// there, and no byte of it is touched.
func TestAFullDiskOpensReadOnly(t *testing.T) {
	mem := crashed(t, 300)
	before := contents(t, mem)
	fs := faultfs.New(mem)
	fs.SetFree(100<<10, 64<<20)
	fs.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpWrite || p.Op == faultfs.OpCreate }, faultfs.ErrFull))
	if _, err := Open(Options{Dir: "store", FS: fs}); fault.CodeOf(err) != CodeDiskFull || !fault.Is(err, fault.Transient) {
		t.Errorf("without a hook: %v, want %s", err, CodeDiskFull)
	}
	var why error
	db := mustOpen(t, Options{Dir: "store", FS: fs, OnFull: func(err error) { why = err }})
	if why == nil || !strings.Contains(why.Error(), "100 KiB free") {
		t.Errorf("the hook got %v", why)
	}
	for i := range 300 {
		_, closer, err := db.Get(fmt.Appendf(nil, "key-%06d", i))
		if err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := db.Set([]byte("k"), nil, pebble.Sync); !errors.Is(err, pebble.ErrReadOnly) {
		t.Errorf("a write: %v", err)
	}
	if _, err := Open(Options{Dir: "store", FS: fs, OnFull: func(error) {}}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second open: %v, want ErrInUse", err)
	}
	mustClose(t, db)
	if !maps.Equal(before, contents(t, mem)) {
		t.Error("the store was changed")
	}
	fs.Fail(nil)
	fs.SetFree(32<<20, 64<<20)
	db = mustOpen(t, Options{Dir: "store", FS: fs})
	put(t, db, 300, 1)
	mustClose(t, db)
}

// What a killed process wrote and did not sync is synced before it is shown.
func TestReadOnlyShowsOnlyWhatIsDurable(t *testing.T) {
	fs := faultfs.New(crashed(t, 10))
	fs.SetFree(0, 64<<20)
	fs.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpSync && strings.HasSuffix(p.Path, ".log") }, faultfs.ErrIO))
	_, err := Open(Options{Dir: "store", FS: fs, OnFull: func(error) {}})
	if !errors.Is(err, faultfs.ErrIO) {
		t.Errorf("opened though the log can not be synced: %v", err)
	}
	fs.Fail(nil)
	db := mustOpen(t, Options{Dir: "store", FS: fs, OnFull: func(error) {}})
	mustClose(t, db)
}

func TestNoStoreIsMadeOnAFullDisk(t *testing.T) {
	fs := faultfs.New(vfs.NewMem())
	fs.SetFree(100, 64<<20)
	_, err := Open(Options{Dir: "store", FS: fs, Create: true, OnFull: func(error) { t.Error("opened read-only") }})
	if fault.CodeOf(err) != CodeDiskFull {
		t.Errorf("%v, want %s", err, CodeDiskFull)
	}
}
