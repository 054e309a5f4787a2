package faultfs

import "github.com/cockroachdb/pebble/v2/vfs"

// reader is a file that was opened for reading.
type reader struct {
	vfs.File
	fs   *FS
	name string
}

// Read is vfs.File.Read.
func (r *reader) Read(b []byte) (n int, err error) {
	// What a read returns at the end of a file is no failure of the disk.
	var end error
	err = r.fs.point(OpRead, r.name, func() error { n, end = r.File.Read(b); return nil })
	if err != nil {
		return 0, err
	}
	return n, end
}

// ReadAt is vfs.File.ReadAt.
func (r *reader) ReadAt(b []byte, off int64) (n int, err error) {
	var end error
	err = r.fs.point(OpRead, r.name, func() error { n, end = r.File.ReadAt(b, off); return nil })
	if err != nil {
		return 0, err
	}
	return n, end
}

// writer is a file that was opened for writing.
type writer struct{ reader }

// Write is vfs.File.Write.
func (w *writer) Write(b []byte) (n int, err error) {
	err = w.fs.point(OpWrite, w.name, func() (err error) { n, err = w.File.Write(b); return err })
	return n, err
}

// WriteAt is vfs.File.WriteAt.
func (w *writer) WriteAt(b []byte, off int64) (n int, err error) {
	err = w.fs.point(OpWrite, w.name, func() (err error) { n, err = w.File.WriteAt(b, off); return err })
	return n, err
}

// Preallocate is vfs.File.Preallocate.
func (w *writer) Preallocate(off, length int64) error {
	return w.fs.point(OpPrealloc, w.name, func() error { return w.File.Preallocate(off, length) })
}

// Sync is vfs.File.Sync.
func (w *writer) Sync() error { return w.fs.point(OpSync, w.name, w.File.Sync) }

// SyncData is vfs.File.SyncData.
func (w *writer) SyncData() error { return w.fs.point(OpSync, w.name, w.File.SyncData) }

// SyncTo is vfs.File.SyncTo.
func (w *writer) SyncTo(length int64) (full bool, err error) {
	err = w.fs.point(OpSync, w.name, func() (err error) { full, err = w.File.SyncTo(length); return err })
	return full, err
}

// Close is vfs.File.Close. A file whose close fails is closed beneath all the
// same: nobody tries twice.
func (w *writer) Close() error {
	var closed error
	fail := w.fs.point(OpClose, w.name, func() error { return nil })
	closed = w.File.Close()
	if fail != nil {
		return fail
	}
	return closed
}

// directory is a directory that is open for being synced.
type directory struct {
	vfs.File
	fs   *FS
	name string
}

// Sync is vfs.File.Sync.
func (d *directory) Sync() error { return d.fs.point(OpSyncDir, d.name, d.File.Sync) }
