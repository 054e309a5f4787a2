package pebblex

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// tellFS logs why a write that the store cannot do without has failed. Pebble
// panics when the end of a log cannot be written or a directory not be synced,
// with a mutex unlocked that a deferred call unlocks again: the process dies of
// that, and nothing it prints names the disk's error.
type tellFS struct {
	vfs.FS
	tell func(op, name string, err error)
}

// Unwrap returns the file system beneath.
func (t tellFS) Unwrap() vfs.FS { return t.FS }

// vital reports whether the file name is one whose failed write ends the store.
func (t tellFS) vital(name string) bool {
	base := t.PathBase(name)
	return strings.HasSuffix(base, ".log") || strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, markerPrefix)
}

// Create is vfs.FS.Create.
func (t tellFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := t.FS.Create(name, category)
	return t.wrap("create", name, f, err)
}

// ReuseForWrite is vfs.FS.ReuseForWrite.
func (t tellFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := t.FS.ReuseForWrite(oldname, newname, category)
	return t.wrap("create", newname, f, err)
}

// OpenDir is vfs.FS.OpenDir.
func (t tellFS) OpenDir(name string) (vfs.File, error) {
	d, err := t.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &tellFile{File: d, fs: t, name: name}, nil
}

func (t tellFS) wrap(op, name string, f vfs.File, err error) (vfs.File, error) {
	if !t.vital(name) {
		return f, err
	}
	if err != nil {
		t.tell(op, name, err)
		return nil, err
	}
	return &tellFile{File: f, fs: t, name: name}, nil
}

type tellFile struct {
	vfs.File
	fs   tellFS
	name string
}

func (f *tellFile) told(op string, err error) error {
	if err != nil {
		f.fs.tell(op, f.name, err)
	}
	return err
}

// Write is vfs.File.Write.
func (f *tellFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.told("write", err)
}

// Sync is vfs.File.Sync.
func (f *tellFile) Sync() error { return f.told("sync", f.File.Sync()) }

// SyncData is vfs.File.SyncData.
func (f *tellFile) SyncData() error { return f.told("sync", f.File.SyncData()) }

// SyncTo is vfs.File.SyncTo.
func (f *tellFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.told("sync", err)
}
