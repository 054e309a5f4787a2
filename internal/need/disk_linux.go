package need

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a small disk of its own, in memory, that a test mounted.
type Disk struct {
	t testing.TB
	// Dir is where it is mounted.
	Dir string
}

// SmallDisk mounts a disk of so many MiB for the duration of the test, or skips
// the test where that is not allowed.
func SmallDisk(t testing.TB, mib int) *Disk {
	t.Helper()
	d := &Disk{t: t, Dir: filepath.Join(t.TempDir(), "disk")}
	if err := syscall.Mkdir(d.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.mount(mib, 0); err != nil {
		t.Log(err)
		Missing(t, "mount")
	}
	t.Cleanup(func() {
		// Lazily: a process that the test left behind must not keep the directory.
		if err := syscall.Unmount(d.Dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.Dir, err)
		}
	})
	return d
}

// Resize gives the disk another size; what is on it stays.
func (d *Disk) Resize(mib int) {
	d.t.Helper()
	if err := d.mount(mib, syscall.MS_REMOUNT); err != nil {
		d.t.Fatal(err)
	}
}

// Occupy fills what is free, but for left bytes, and returns the file that does.
func (d *Disk) Occupy(left uint64) (path string) {
	d.t.Helper()
	path = filepath.Join(d.Dir, "occupied")
	f, err := os.Create(path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 1<<16)
	for {
		var use syscall.Statfs_t
		if err := syscall.Statfs(d.Dir, &use); err != nil {
			d.t.Fatal(err)
		}
		free := use.Bavail * uint64(use.Bsize)
		if free <= left {
			return path
		}
		if _, err := f.Write(chunk[:min(uint64(len(chunk)), free-left)]); err != nil {
			d.t.Fatalf("need: fill the disk: %v", err)
		}
	}
}

func (d *Disk) mount(mib int, flags uintptr) error {
	if err := syscall.Mount("tmpfs", d.Dir, "tmpfs", flags, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		return fmt.Errorf("need: mount a disk on %s: %w", d.Dir, err)
	}
	return nil
}
