package pebblex

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// crashAtMarkers clones the file system as a crash would leave it each time a
// marker was just created and its directory not yet synced.
type crashAtMarkers struct {
	vfs.FS
	mem    *vfs.MemFS
	rng    *rand.Rand
	clones []*vfs.MemFS
}

func (c *crashAtMarkers) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, category)
	if err == nil && len(c.PathBase(name)) > 16 && c.PathBase(name)[:16] == "marker.manifest." {
		c.clones = append(c.clones, c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: c.rng}))
	}
	return f, err
}

// TestStoreOpensAfterACrashAtAMarker rotates the manifest many times and crashes
// at each rotation. With the wrapper every store opens; the test is worth
// something only if without it some do not.
func TestStoreOpensAfterACrashAtAMarker(t *testing.T) {
	const rounds = 60
	trial := func(wrap func(vfs.FS) vfs.FS, seed uint64) (failed, crashes int) {
		mem := vfs.NewCrashableMem()
		db := mustOpen(t, Options{Dir: "store", FS: mem, Create: true})
		put(t, db, 0, 3)
		mustClose(t, db)

		at := &crashAtMarkers{FS: mem, mem: mem, rng: rand.New(rand.NewPCG(seed, seed))}
		o, _ := pebbleOptions(Options{Dir: "store", FS: at}.withDefaults())
		o.FS = wrap(at)
		for i := range rounds {
			// Every open of a store begins a new manifest.
			db, err := pebble.Open("store", o)
			if err != nil {
				t.Fatal(err)
			}
			put(t, db, 10+i, 1)
			mustClose(t, db)
		}
		for _, fs := range at.clones {
			db, err := Open(Options{Dir: "store", FS: fs})
			if err != nil {
				failed++
				continue
			}
			mustClose(t, db)
		}
		return failed, len(at.clones)
	}
	const seed = 1
	failed, crashes := trial(SyncMarkers, seed)
	if failed > 0 || crashes < rounds {
		t.Errorf("with the wrapper %d of %d stores did not open (seed %d)", failed, crashes, seed)
	}
	bare := func(fs vfs.FS) vfs.FS { return fs }
	failed, crashes = trial(bare, seed)
	if failed == 0 {
		t.Errorf("without the wrapper all of %d stores opened: the test shows nothing (seed %d)", crashes, seed)
	}
	t.Logf("without the wrapper %d of %d stores did not open", failed, crashes)
}

func TestMarkersSyncTheDirectoryFirst(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("reuse=%v", reuse), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			if err := Mkdir(mem, "d"); err != nil {
				t.Fatal(err)
			}
			fs := SyncMarkers(mem)
			create := func(name string) {
				t.Helper()
				f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			create("d/first")
			if reuse {
				create("d/old")
				f, err := fs.ReuseForWrite("d/old", "d/marker.manifest.1.x", vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			} else {
				create("d/marker.manifest.1.x")
			}
			create("d/last")
			crashed := mem.CrashClone(vfs.CrashCloneCfg{})
			if _, err := crashed.Stat("d/first"); err != nil {
				t.Errorf("the entry made before the marker is gone: %v", err)
			}
			if _, err := crashed.Stat("d/last"); err == nil {
				t.Error("an entry made after the marker is durable: the test shows nothing")
			}
			if fs.Unwrap() != vfs.FS(mem) {
				t.Error("Unwrap does not return the file system beneath")
			}
		})
	}
}
