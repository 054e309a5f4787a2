package bloom

import (
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a file system of Pebble's as an FS.
type disk struct{ vfs.FS }

func (d disk) Create(name string) (File, error) {
	return file(d.FS.Create(name, vfs.WriteCategoryUnspecified))
}

func (d disk) Open(name string) (File, error) { return file(d.FS.Open(name)) }

func (d disk) SyncDir(dir string) error {
	f, err := d.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type diskFile struct{ vfs.File }

func file(f vfs.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

const snapshots = "filter" // the directory

// memory is a disk in memory with the directory of snapshots.
func memory(t testing.TB) (*vfs.MemFS, disk) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	if err := fs.MkdirAll(snapshots, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (disk{fs}).SyncDir(""); err != nil {
		t.Fatal(err)
	}
	return fs, disk{fs}
}

func readFile(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(fs.PathJoin(snapshots, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(fs.PathJoin(snapshots, name), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(append([]byte{}, b...))
		err = errors.Join(err, f.Sync(), f.Close(), disk{fs}.SyncDir(snapshots))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func files(t testing.TB, fs vfs.FS) map[string]bool {
	t.Helper()
	names, err := fs.List(snapshots)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}
