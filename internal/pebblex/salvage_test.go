package pebblex

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/need"
)

// lived returns a store as a crash left it, and its content: keys in several
// levels, in obsolete files as well, and the newest in the log only.
func lived(t testing.TB, seed uint64) (*vfs.MemFS, map[string]string) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	db := mustOpen(t, Options{Dir: "s", FS: fs, Create: true, MemTableSize: 64 << 10})
	rng := rand.New(rand.NewPCG(seed, seed))
	content := make(map[string]string)
	for i := range 800 {
		batch := db.NewBatch()
		for j := range 1 + rng.IntN(3) {
			key, value := fmt.Sprintf("%c%06d-%d", 'a'+rng.IntN(4), rng.IntN(1<<20), i<<2|j), make([]byte, rng.IntN(400))
			for k := range value {
				value[k] = byte(rng.Uint32() & 0x3f)
			}
			if i%97 == 0 {
				value = bytes.Repeat(value, 60)
			}
			content[key] = string(value)
			if err := batch.Set([]byte(key), value, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Apply(batch, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if i == 500 {
			if err := db.Compact(t.Context(), []byte("a"), []byte("z"), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)
	return crashed, content
}

// salvaged collects a range; keys with several values are counted apart.
func salvaged(t testing.TB, s *Salvage, lower, upper string) (got map[string]string, disputed int) {
	t.Helper()
	got = make(map[string]string)
	last := ""
	for e, err := range s.Range([]byte(lower), []byte(upper)) {
		if err != nil {
			t.Fatal(err)
		}
		key := string(e.Key)
		if key <= last || key < lower || key >= upper {
			t.Fatalf("key %q after %q in %q to %q", key, last, lower, upper)
		}
		last = key
		got[key] = string(e.Value)
		if len(e.Others) > 0 {
			disputed++
		}
		if e.Source == "" {
			t.Fatalf("key %q has no source", key)
		}
	}
	return got, disputed
}

func mustSalvage(t testing.TB, fs vfs.FS) *Salvage {
	t.Helper()
	s, err := OpenSalvage(t.Context(), fs, "s")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readOnly fails the test when something is changed.
type readOnly struct {
	vfs.FS
	t testing.TB
}

func (r readOnly) no(op, name string) { r.t.Helper(); r.t.Errorf("%s %s", op, name) }

func (r readOnly) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	r.no("create", name)
	return r.FS.Create(name, c)
}

func (r readOnly) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	r.no("open for writing", name)
	return r.FS.OpenReadWrite(name, c, o...)
}

func (r readOnly) Rename(from, to string) error     { r.no("rename", from); return r.FS.Rename(from, to) }
func (r readOnly) Remove(name string) error         { r.no("remove", name); return r.FS.Remove(name) }
func (r readOnly) Link(from, to string) error       { r.no("link", from); return r.FS.Link(from, to) }
func (r readOnly) Lock(n string) (io.Closer, error) { r.no("lock", n); return r.FS.Lock(n) }

// TestSalvageIsTheContent: of a whole store all is salvaged, in order, in any
// range, without a write.
func TestSalvageIsTheContent(t *testing.T) {
	for seed := range uint64(need.Rounds(3, 30)) {
		mem, content := lived(t, seed)
		s := mustSalvage(t, readOnly{mem, t})
		for _, d := range s.Damages() {
			if info, err := mem.Stat(d.File); err != nil || info.Size() > 0 { // an empty table is left by a crash
				t.Errorf("seed %d: a damage of a whole store: %v", seed, d)
			}
		}
		got, disputed := salvaged(t, s, "a", "z")
		if !maps.Equal(got, content) || disputed > 0 {
			t.Fatalf("seed %d: %d keys, %d disputed, want %d", seed, len(got), disputed, len(content))
		}
		keys := slices.Sorted(maps.Keys(content))
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 50 {
			i, j := rng.IntN(len(keys)), rng.IntN(len(keys))
			if i > j {
				i, j = j, i
			}
			lower, upper := keys[i], keys[j]
			if rng.IntN(2) == 0 {
				lower += "\x00"
			}
			want := 0
			for _, k := range keys {
				if k >= lower && k < upper {
					want++
				}
			}
			if got, _ := salvaged(t, s, lower, upper); len(got) != want {
				t.Fatalf("seed %d: %q to %q has %d keys, want %d", seed, lower, upper, len(got), want)
			}
		}
	}
}

func TestSalvageOfNothing(t *testing.T) {
	s := mustSalvage(t, vfs.NewMem())
	if got, _ := salvaged(t, s, "", "z"); len(got) > 0 || len(s.Damages()) != 1 {
		t.Errorf("%v, %v", got, s.Damages())
	}
}

// uncompacted makes a store that keeps every table, for a test that reads its
// files while it is open. What is obsolete is removed behind Open and Flush: wait
// for that first.
func uncompacted(t *testing.T, fs vfs.FS) *pebble.DB {
	t.Helper()
	mustClose(t, mustOpen(t, Options{Dir: "s", FS: fs, Create: true}))
	o, _ := pebbleOptions(Options{Dir: "s", FS: fs}.withDefaults())
	o.DisableAutomaticCompactions = true
	db, err := pebble.Open("s", o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestSalvageReportsTwoValues: none of them is dropped.
func TestSalvageReportsTwoValues(t *testing.T) {
	fs := vfs.NewMem()
	db := uncompacted(t, fs)
	defer mustClose(t, db)
	for _, v := range []string{"one", "two", "one"} {
		if err := errors.Join(db.Set([]byte("k"), []byte(v), pebble.Sync), db.Set([]byte("l"), []byte("same"), pebble.Sync)); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	db.TestOnlyWaitForCleaning()
	s := mustSalvage(t, fs)
	for e, err := range s.Range([]byte("k"), []byte("m")) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Key) == "k" && (len(e.Others) != 1 || bytes.Equal(e.Value, e.Others[0].Value)) {
			t.Errorf("k: %+v", e)
		}
		if string(e.Key) == "l" && len(e.Others) > 0 {
			t.Errorf("l: %+v", e)
		}
	}
}

// TestSalvageOfDeletes: what no append-only store writes is a damage.
func TestSalvageOfDeletes(t *testing.T) {
	for _, flush := range []bool{false, true} {
		fs := vfs.NewMem()
		db := uncompacted(t, fs)
		if err := db.Delete([]byte("k"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if flush {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		db.TestOnlyWaitForCleaning()
		damages := mustSalvage(t, fs).Damages()
		want := 1 // in the log
		if flush {
			want++ // and in the table
		}
		if len(damages) != want {
			t.Errorf("flushed %v: %v", flush, damages)
		}
		for _, d := range damages {
			if !strings.HasSuffix(d.String(), "DEL of key 6b") {
				t.Errorf("flushed %v: %v", flush, d)
			}
		}
		mustClose(t, db)
	}
}

func content(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	data, err := ReadFile(fs, path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, fs vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(bytes.Clone(data))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSalvageOfDamage damages each file of a store in one place at a time. What
// is salvaged is never more than the content and never a changed value; what a
// table misses is reported; and one damage never costs what is in other files.
func TestSalvageOfDamage(t *testing.T) {
	mem, all := lived(t, 1)
	names, err := mem.List("s")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	points, lost, rounds := 0, 0, need.Rounds(12, 2000)
	if testing.Short() {
		rounds = 4
	}
	for _, name := range names {
		path := mem.PathJoin("s", name)
		whole := content(t, mem, path)
		table := strings.HasSuffix(name, ".sst")
		if len(whole) == 0 {
			continue
		}
		for i := range rounds {
			data := bytes.Clone(whole)
			at := rng.IntN(len(data))
			if i%3 == 0 {
				at = max(0, len(data)-1-rng.IntN(min(400, len(data)))) // the index and the footer
			}
			switch i % 4 {
			case 0, 1:
				data[at] ^= 1 << rng.IntN(8)
			case 2:
				data = data[:at]
			case 3:
				clear(data[at:min(at+4096, len(data))])
			}
			write(t, mem, path, data)
			s := mustSalvage(t, mem)
			got, disputed := salvaged(t, s, "a", "z")
			points++
			for k, v := range got {
				if all[k] != v {
					t.Fatalf("%s damaged at %d (way %d): key %q has a value that was never written", name, at, i%4, k)
				}
			}
			missing := len(all) - len(got)
			if missing > 0 {
				lost++
			}
			reported := slices.ContainsFunc(s.Damages(), func(d Damage) bool { return d.File == path })
			if disputed > 0 || table && missing > 0 && !reported {
				t.Errorf("%s damaged at %d (way %d): %d keys missing, %d disputed, damages %v", name, at, i%4, missing, disputed, s.Damages())
			}
			for _, d := range s.Damages() {
				if d.File != path && !strings.Contains(d.What, "empty") {
					t.Errorf("%s damaged at %d: reported is %v", name, at, d)
				}
			}
		}
		write(t, mem, path, whole)
	}
	t.Logf("%d damages, %d of them cost keys", points, lost)
}

// TestSalvageWithoutTheIndexOfATable: all blocks are found by their checksums.
func TestSalvageWithoutTheIndexOfATable(t *testing.T) {
	mem, all := lived(t, 3)
	names, err := mem.List("s")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		path := mem.PathJoin("s", name)
		if data := content(t, mem, path); len(data) > 0 {
			write(t, mem, path, data[:len(data)-1]) // the footer is cut
		}
	}
	s := mustSalvage(t, mem)
	if got, _ := salvaged(t, s, "a", "z"); !maps.Equal(got, all) {
		t.Errorf("%d keys, want %d; %v", len(got), len(all), s.Damages())
	}
}

// hashTree returns the names and hashes of all files under a directory.
func hashTree(t testing.TB, fs vfs.FS, dir string) map[string][32]byte {
	t.Helper()
	out := make(map[string][32]byte)
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			maps.Copy(out, hashTree(t, fs, path))
			continue
		}
		out[path] = sha256.Sum256(content(t, fs, path))
	}
	return out
}

func TestSalvageChangesNothing(t *testing.T) {
	mem, _ := lived(t, 4)
	before := hashTree(t, mem, "s")
	salvaged(t, mustSalvage(t, mem), "a", "z")
	if !maps.Equal(before, hashTree(t, mem, "s")) {
		t.Error("the store is not what it was")
	}
}
