package pebblex

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const dirPerm = 0o700 // stores are their owner's business

// WriteFile writes data to path so that after a crash the file has either its
// old content or all of the new: it writes a file beside it, syncs that, renames
// it and syncs the directory. When it returns nil the content is durable. At
// most one WriteFile may be under way for a path. A nil fs is the disk, the only
// file system on which perm has a meaning.
func WriteFile(fs vfs.FS, path string, data []byte, perm os.FileMode) error {
	if fs == nil {
		fs = vfs.Default
	}
	temp := path + ".tmp"
	if err := writeSynced(fs, temp, data, perm); err != nil {
		return errors.Join(fmt.Errorf("pebblex: write %s: %w", path, err), removeIfThere(fs, temp))
	}
	if err := fs.Rename(temp, path); err != nil {
		return errors.Join(fmt.Errorf("pebblex: write %s: %w", path, err), removeIfThere(fs, temp))
	}
	if err := syncDir(fs, fs.PathDir(path)); err != nil {
		return fmt.Errorf("pebblex: write %s: %w", path, err)
	}
	return nil
}

func writeSynced(fs vfs.FS, path string, data []byte, perm os.FileMode) (err error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.Fd() != vfs.InvalidFd {
		// The file is still empty, so nothing was readable under the wider mode.
		if err := os.Chmod(path, perm); err != nil {
			return err
		}
	}
	// A vfs.File may use the slice it is given as scratch space.
	if _, err := f.Write(bytes.Clone(data)); err != nil {
		return err
	}
	return f.Sync()
}

// ReadFile returns the content of path, which must not be longer than limit
// bytes. A nil fs is the disk. A missing file is an error that is os.ErrNotExist.
func ReadFile(fs vfs.FS, path string, limit int64) (data []byte, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	f, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pebblex: read %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("pebblex: read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("pebblex: read %s: longer than %d bytes", path, limit)
	}
	return data, nil
}

// Mkdir makes dir and its missing parents with mode 0700 and makes their names
// durable. A directory that is there is left as it is. A nil fs is the disk.
func Mkdir(fs vfs.FS, dir string) error {
	if fs == nil {
		fs = vfs.Default
	}
	parents := []string{}
	for p := fs.PathDir(dir); ; p = fs.PathDir(p) {
		parents = append(parents, p)
		if fs.PathDir(p) == p {
			break
		}
		_, err := fs.Stat(p)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("pebblex: make %s: %w", dir, err)
		}
	}
	if err := fs.MkdirAll(dir, dirPerm); err != nil {
		return fmt.Errorf("pebblex: make %s: %w", dir, err)
	}
	for _, p := range parents {
		if err := syncDir(fs, p); err != nil {
			return fmt.Errorf("pebblex: make %s: %w", dir, err)
		}
	}
	return nil
}

// SyncDir makes the names in dir durable. A nil fs is the disk.
func SyncDir(fs vfs.FS, dir string) error {
	if fs == nil {
		fs = vfs.Default
	}
	if err := syncDir(fs, dir); err != nil {
		return fmt.Errorf("pebblex: sync %s: %w", dir, err)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) (err error) {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

func removeIfThere(fs vfs.FS, path string) error {
	if err := fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
