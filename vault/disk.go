package vault

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// A disk is one directory. It has no way to change or replace a file.
type disk interface {
	// Private checks that none of the loose permissions is given: nobody but the
	// owner may add or remove files.
	Private(loose fs.FileMode) error
	// Read returns a file that nobody but its owner may read or write.
	Read(name string) ([]byte, error)
	// Names returns the names of all files.
	Names() ([]string, error)
	// Create makes a file that must not be there and that only the owner may use.
	Create(name string) (file, error)
	// Link gives a file a second name, which must not be there.
	Link(old, name string) error
	// Remove removes one name of a file.
	Remove(name string) error
	// Sync makes all names durable.
	Sync() error
	// String returns the path, for messages.
	String() string
}

// file is a file being written. Sync makes its content durable.
type file interface {
	io.WriteCloser
	Sync() error
}

// tempMark is part of the names of unfinished files.
const tempMark = ".tmp-"

// writeNew makes a file that is there in full or not at all, and durable when
// writeNew returns nil. If there is one by that name already it returns an error
// that is fs.ErrExist, and leaves it as it is. A crash leaves at most a file
// with a temporary name, which sweep removes.
func writeNew(d disk, name string, data []byte) (err error) {
	temp := name + tempMark + rand.Text()
	defer func() {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("vault: write %s in %s: %w", name, d, err)
		}
	}()
	f, err := d.Create(temp)
	if err != nil {
		return err
	}
	// The name under which it was written goes in any case; the error that
	// matters is the one before.
	defer func() { _ = d.Remove(temp) }()
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := d.Link(temp, name); err != nil {
		return err
	}
	return d.Sync()
}

// sweep removes what writes left behind that never finished.
func sweep(d disk) error {
	names, err := d.Names()
	if err != nil {
		return fmt.Errorf("vault: list %s: %w", d, err)
	}
	for _, name := range names {
		if strings.Contains(name, tempMark) {
			if err := d.Remove(name); err != nil {
				return fmt.Errorf("vault: remove an unfinished file: %w", err)
			}
		}
	}
	return nil
}

// osDisk is a directory of the operating system.
type osDisk string

var _ disk = osDisk("")

func (d osDisk) String() string          { return string(d) }
func (d osDisk) path(name string) string { return filepath.Join(string(d), name) }

func (d osDisk) Private(loose fs.FileMode) error {
	info, err := os.Stat(string(d))
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	return checkMode(string(d), info.Mode(), loose, "go-w")
}

func (d osDisk) Read(name string) ([]byte, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("vault: %s is not a file", f.Name())
	}
	if err := checkMode(f.Name(), info.Mode(), 0o077, "go-rwx"); err != nil {
		return nil, err
	}
	// One byte more than allowed shows that there is more.
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// maxFile is the largest file of a vault, in bytes: a tenant with a great many
// key versions.
const maxFile = 1 << 20

// checkMode refuses permissions that are too loose. Systems without them have
// access lists, which are the operator's care.
func checkMode(path string, mode fs.FileMode, loose fs.FileMode, fix string) error {
	if runtime.GOOS == "windows" || mode.Perm()&loose == 0 {
		return nil
	}
	return fault.New(fault.Internal, "VAULT_PERMISSIONS",
		"vault: %s has mode %#o, which lets others at the keys; run chmod %s on it, and find out who was there", path, mode.Perm(), fix)
}

func (d osDisk) Names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (d osDisk) Create(name string) (file, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (d osDisk) Link(old, name string) error { return os.Link(d.path(old), d.path(name)) }

func (d osDisk) Remove(name string) error { return os.Remove(d.path(name)) }

func (d osDisk) Sync() error { return syncDir(string(d)) }

func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // has no such call; its file systems log names themselves
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// makeDir makes path and its parents for the owner alone, and their names
// durable. What is there stays as it is.
func makeDir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}
