// Package faultfs is a disk that fails on request, for tests of stores. It wraps
// every operation of a vfs.FS that changes a file or a name, those that Pebble's
// own errorfs leaves out too: ReuseForWrite, SyncTo and Close among them.
//
// What fails is decided by a function, see [FS.Fail]; [After], [Nth] and [Where]
// make the usual ones. An operation that fails may have been carried out
// nevertheless: a disk that did its work and could not say so. [Process] stands
// for the process that such a disk kills.
package faultfs

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Errors of disks, as the operating system gives them.
var (
	ErrIO   error = syscall.EIO    // a bad disk
	ErrFull error = syscall.ENOSPC // a full one
)

// Op is a kind of operation.
type Op string

// The operations. All but OpRead change something, and only those are counted.
const (
	OpCreate   Op = "create"
	OpReuse    Op = "reuse"    // ReuseForWrite; Path is the new name
	OpOpen     Op = "open"     // OpenReadWrite
	OpWrite    Op = "write"    // also WriteAt
	OpSync     Op = "sync"     // Sync, SyncData and SyncTo of a file
	OpSyncDir  Op = "sync-dir" // Sync of a directory
	OpPrealloc Op = "preallocate"
	OpClose    Op = "close" // of a file that was opened for writing
	OpLink     Op = "link"  // Path is the new name
	OpRename   Op = "rename"
	OpRemove   Op = "remove" // also RemoveAll
	OpMkdir    Op = "mkdir"
	OpRead     Op = "read" // Read and ReadAt
)

// Point is one operation that is about to be carried out.
type Point struct {
	N    int64 // counts from 0 over all operations that change something; of a read, those before it
	Op   Op
	Path string
}

// Outcome is what becomes of an operation. The zero value is that it is carried
// out.
type Outcome struct {
	Err  error  // what it ends with; nil: it does not fail
	Done bool   // it is carried out although it fails
	Then func() // called when all that is done, before the caller hears; may be nil and need not return
}

// Decide says what becomes of an operation. It is called from many goroutines at
// a time.
type Decide func(p Point) Outcome

// FS is a file system that fails as it is told. The zero value is not usable.
type FS struct {
	vfs.FS
	ops    atomic.Int64
	decide atomic.Pointer[Decide]

	mu    sync.Mutex
	free  *vfs.DiskUsage // guarded by mu; nil: as beneath
	trace func(Point)    // guarded by mu
}

// New returns fs as a disk that does not fail yet.
func New(fs vfs.FS) *FS { return &FS{FS: fs} }

// Fail makes d decide from now on; nil mends the disk.
func (f *FS) Fail(d Decide) {
	if d == nil {
		f.decide.Store(nil)
		return
	}
	f.decide.Store(&d)
}

// Ops returns how many operations that change something there have been.
func (f *FS) Ops() int64 { return f.ops.Load() }

// Trace calls fn with every operation that changes something, before it is
// carried out.
func (f *FS) Trace(fn func(Point)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trace = fn
}

// SetFree makes the disk say that so many bytes of total are free.
func (f *FS) SetFree(free, total uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = &vfs.DiskUsage{AvailBytes: free, TotalBytes: total, UsedBytes: total - free}
}

// After returns a disk that breaks at its n-th change and stays broken. The first
// failing operation is carried out if done is set.
func After(n int64, err error, done bool) Decide {
	return func(p Point) Outcome {
		if p.Op == OpRead || p.N < n {
			return Outcome{}
		}
		return Outcome{Err: err, Done: done && p.N == n}
	}
}

// Nth returns a disk of which only the n-th change fails.
func Nth(n int64, err error, done bool) Decide {
	return func(p Point) Outcome {
		if p.Op == OpRead || p.N != n {
			return Outcome{}
		}
		return Outcome{Err: err, Done: done}
	}
}

// Where returns a disk on which what match says fails and is not carried out.
func Where(match func(Point) bool, err error) Decide {
	return func(p Point) Outcome {
		if match(p) {
			return Outcome{Err: err}
		}
		return Outcome{}
	}
}

// point passes one operation through the disk.
func (f *FS) point(op Op, path string, do func() error) error {
	p := Point{Op: op, Path: path, N: f.ops.Load()}
	if op != OpRead {
		p.N = f.ops.Add(1) - 1
		f.mu.Lock()
		trace := f.trace
		f.mu.Unlock()
		if trace != nil {
			trace(p)
		}
	}
	d := f.decide.Load()
	if d == nil {
		return do()
	}
	out := (*d)(p)
	var err error
	if out.Err == nil || out.Done {
		err = do()
	}
	if out.Then != nil {
		out.Then()
	}
	if err == nil && out.Err != nil {
		err = &os.PathError{Op: string(op), Path: path, Err: out.Err}
	}
	return err
}

// opened passes an operation that yields a file.
func (f *FS) opened(op Op, name string, open func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := f.point(op, name, func() (err error) { file, err = open(); return err })
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return nil, err
	}
	return &writer{reader{file, f, name}}, nil
}

// Create is vfs.FS.Create.
func (f *FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.opened(OpCreate, name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

// ReuseForWrite is vfs.FS.ReuseForWrite.
func (f *FS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.opened(OpReuse, to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, category) })
}

// OpenReadWrite is vfs.FS.OpenReadWrite.
func (f *FS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.opened(OpOpen, name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

// Open is vfs.FS.Open.
func (f *FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return &reader{file, f, name}, nil
}

// OpenDir is vfs.FS.OpenDir.
func (f *FS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &directory{dir, f, name}, nil
}

// Link is vfs.FS.Link.
func (f *FS) Link(from, to string) error {
	return f.point(OpLink, to, func() error { return f.FS.Link(from, to) })
}

// Rename is vfs.FS.Rename.
func (f *FS) Rename(from, to string) error {
	return f.point(OpRename, to, func() error { return f.FS.Rename(from, to) })
}

// Remove is vfs.FS.Remove.
func (f *FS) Remove(name string) error {
	return f.point(OpRemove, name, func() error { return f.FS.Remove(name) })
}

// RemoveAll is vfs.FS.RemoveAll.
func (f *FS) RemoveAll(name string) error {
	return f.point(OpRemove, name, func() error { return f.FS.RemoveAll(name) })
}

// MkdirAll is vfs.FS.MkdirAll.
func (f *FS) MkdirAll(name string, perm os.FileMode) error {
	return f.point(OpMkdir, name, func() error { return f.FS.MkdirAll(name, perm) })
}

// Lock is vfs.FS.Lock.
func (f *FS) Lock(name string) (io.Closer, error) { return f.FS.Lock(name) }

// GetDiskUsage returns what SetFree said, else what is beneath.
func (f *FS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	f.mu.Lock()
	free := f.free
	f.mu.Unlock()
	if free != nil {
		return *free, nil
	}
	return f.FS.GetDiskUsage(path)
}

// Unwrap returns the file system beneath.
func (f *FS) Unwrap() vfs.FS { return f.FS }
