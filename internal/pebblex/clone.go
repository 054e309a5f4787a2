package pebblex

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

const lockName = "LOCK"

// Hold keeps every other process from opening the store in dir until the result
// is closed, and changes nothing in it. It is ErrInUse (fault.Conflict) if a
// process has the store open. A directory without a lock file was never open: there is nothing to hold.
func Hold(fs vfs.FS, dir string) (io.Closer, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := fs.Stat(fs.PathJoin(dir, lockName)); errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	} else if err != nil {
		return nil, fmt.Errorf("pebblex: hold %s: %w", dir, err)
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, fault.New(fault.Conflict, "IN_USE", "%w: %s (stop the process that has it open): %w", ErrInUse, dir, err)
	}
	return lock, nil
}

// CloneClosed makes the directory to, which must be absent, a copy of the closed
// store in from that may be opened, written to and removed while from stays as it
// is. Tables, which Pebble never writes again, are linked; all else is copied.
// The copy is not durable.
func CloneClosed(fs vfs.FS, from, to string) error {
	if fs == nil {
		fs = vfs.Default
	}
	names, err := fs.List(from)
	if err != nil {
		return fmt.Errorf("pebblex: clone %s: %w", from, err)
	}
	if err := fs.MkdirAll(to, dirPerm); err != nil {
		return fmt.Errorf("pebblex: clone %s: %w", from, err)
	}
	for _, name := range names {
		if name == lockName {
			continue
		}
		source, target := fs.PathJoin(from, name), fs.PathJoin(to, name)
		if strings.HasSuffix(name, ".sst") && fs.Link(source, target) == nil {
			continue
		}
		if err := CopyFile(fs, source, target); err != nil {
			return err
		}
	}
	return nil
}

// CopyFile makes to a synced copy of the file from. The name is durable when its
// directory is synced.
func CopyFile(fs vfs.FS, from, to string) (err error) {
	r, err := fs.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("pebblex: copy: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	w, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("pebblex: copy: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if _, err := io.Copy(struct{ io.Writer }{w}, struct{ io.Reader }{r}); err != nil {
		return fmt.Errorf("pebblex: copy %s: %w", from, err)
	}
	if err := w.Sync(); err != nil {
		return fmt.Errorf("pebblex: copy %s: %w", from, err)
	}
	return nil
}
