package pebblex

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const readLimit = 1 << 20

func TestWriteFileIsAllOrNothing(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := Mkdir(mem, "d"); err != nil {
		t.Fatal(err)
	}
	before, after := strings.Repeat("a", 10_000), strings.Repeat("b", 20_000)
	if err := WriteFile(mem, "d/f", []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 8 {
		at := &crashAfter{FS: mem.CrashClone(vfs.CrashCloneCfg{}), left: step}
		err := WriteFile(at, "d/f", []byte(after), 0o600)
		crashed := at.FS.(*vfs.MemFS)
		for _, percent := range []int{0, 50, 100} {
			clone := crash(crashed, percent, rng)
			got, readErr := ReadFile(clone, "d/f", readLimit)
			if readErr != nil {
				t.Fatalf("step %d, %d %%: %v", step, percent, readErr)
			}
			if s := string(got); s != before && s != after || err == nil && s != after {
				t.Errorf("step %d, %d %%: %d bytes of %q, write returned %v", step, percent, len(s), s[:1], err)
			}
		}
	}
}

// crash clones fs as a crash leaves it, with percent of what was not synced.
func crash(fs *vfs.MemFS, percent int, rng *rand.Rand) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
}

// crashAfter fails every step of a write after the first left ones.
type crashAfter struct {
	vfs.FS
	left int
}

var errCrash = errors.New("crash")

func (c *crashAfter) step() error {
	if c.left--; c.left < 0 {
		return errCrash
	}
	return nil
}

func (c *crashAfter) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	f, err := c.FS.Create(name, category)
	return crashFile{f, c}, err
}

func (c *crashAfter) Rename(from, to string) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.FS.Rename(from, to)
}

func (c *crashAfter) OpenDir(name string) (vfs.File, error) {
	f, err := c.FS.OpenDir(name)
	return crashFile{f, c}, err
}

func (c *crashAfter) Remove(name string) error {
	if c.left < 0 {
		return errCrash
	}
	return c.FS.Remove(name)
}

type crashFile struct {
	vfs.File
	fs *crashAfter
}

func (f crashFile) Write(p []byte) (int, error) {
	if err := f.fs.step(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f crashFile) Sync() error {
	if err := f.fs.step(); err != nil {
		return err
	}
	return f.File.Sync()
}

func TestWriteFileOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for _, content := range []string{"one", "two, longer", ""} {
		if err := WriteFile(nil, path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(nil, path, int64(len(content)))
		if err != nil || string(got) != content {
			t.Errorf("read %q, %v, want %q", got, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
	if _, err := os.Stat(path + ".tmp"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a temporary file is left: %v", err)
	}
}

func TestWriteFileKeepsTheCallersBytes(t *testing.T) {
	data := []byte("key material")
	if err := WriteFile(scribble{vfs.NewMem()}, "f", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if string(data) != "key material" {
		t.Errorf("the caller's slice became %q", data)
	}
}

// scribble uses the slices it is given as scratch space, which vfs allows.
type scribble struct{ vfs.FS }

func (s scribble) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	return scribbleFile{f}, err
}

type scribbleFile struct{ vfs.File }

func (s scribbleFile) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	clear(p)
	return n, err
}

func TestReadFileHasALimit(t *testing.T) {
	fs := vfs.NewMem()
	if err := WriteFile(fs, "f", []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(fs, "f", 5); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := ReadFile(fs, "f", 4); err == nil {
		t.Error("a file over the limit was read")
	}
	if _, err := ReadFile(fs, "g", 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestMkdirIsDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := Mkdir(mem, "a/b/c"); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.CrashClone(vfs.CrashCloneCfg{}).Stat("a/b/c"); err != nil {
		t.Errorf("after a crash: %v", err)
	}
	if err := Mkdir(mem, "a/b/c"); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := WriteFile(mem, "a/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Mkdir(mem, "a/f"); err == nil {
		t.Error("a file passed for a directory")
	}
}

func TestSyncDirMakesNamesDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := Mkdir(mem, "d"); err != nil {
		t.Fatal(err)
	}
	f, err := mem.Create("d/f", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), SyncDir(mem, "d")); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.CrashClone(vfs.CrashCloneCfg{}).Stat("d/f"); err != nil {
		t.Errorf("after a crash: %v", err)
	}
	if err := SyncDir(mem, "gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}
