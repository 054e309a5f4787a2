package archive

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultFS is a disk that breaks at one write point and stays broken: from the
// failAt-th on, every operation that changes something fails. The first of them
// is still carried out if persist is set, which is a disk that did its work and
// could not say so.
//
// Where a directory cannot be synced, or a log not be made, written or ended,
// Pebble panics, on whatever goroutine and past recovery. There, as in the fatal
// hook, the process dies: dead is closed and the goroutine never goes on. It also
// dies, by an operator's hand, when it has tried patience operations in vain:
// Pebble repeats a failed flush for ever.
type faultFS struct {
	vfs.FS
	failAt  int // negative: never
	persist bool
	ops     atomic.Int64
	dead    chan struct{} // made by newFaultFS
	once    sync.Once
	// beforeSync, if set, is called before a log file is synced.
	beforeSync func()
}

const patience = 300

func newFaultFS(fs vfs.FS, failAt int, persist bool) *faultFS {
	return &faultFS{FS: fs, failAt: failAt, persist: persist, dead: make(chan struct{})}
}

// die is the end of the process at this point.
func (f *faultFS) die() {
	f.once.Do(func() { close(f.dead) })
	select {}
}

// fatal is an OnFatal hook: the process is gone.
func (f *faultFS) fatal(string) { f.die() }

// run calls do as a process of its own, which may die, and returns when it has
// ended or died.
func (f *faultFS) run(do func()) {
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	select {
	case <-ended:
	case <-f.dead:
	}
}

// point counts a write point. do tells whether to carry the operation out, and
// err what to say.
func (f *faultFS) point() (do bool, err error) {
	at := f.ops.Add(1) - 1
	if f.failAt < 0 || at < int64(f.failAt) {
		return true, nil
	}
	if at > int64(f.failAt)+patience {
		f.die()
	}
	return f.persist && at == int64(f.failAt), errDisk
}

func (f *faultFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f, isLog(name)}, nil
}

// file passes a write point that opens the file name.
func (f *faultFS) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
	do, fail := f.point()
	var file vfs.File
	if do {
		opened, err := open()
		if file, err = f.wrap(name, opened, err); err != nil {
			return nil, err
		}
	}
	if fail != nil && isLog(name) {
		f.die()
	}
	if fail != nil && file != nil {
		return nil, errors.Join(fail, file.Close())
	}
	return file, fail
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// rotating reports whether the calling goroutine is ending a log.
func rotating() bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, ".rotateWAL") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (f *faultFS) change(do func() error) error {
	ok, fail := f.point()
	if !ok {
		return fail
	}
	if err := do(); err != nil {
		return err
	}
	return fail
}

func (f *faultFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *faultFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, category) })
}

func (f *faultFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, category, opts...)
	return f.wrap(name, file, err)
}

func (f *faultFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	return &faultDir{dir, f}, err
}

func (f *faultFS) Rename(from, to string) error {
	return f.change(func() error { return f.FS.Rename(from, to) })
}

func (f *faultFS) Link(from, to string) error {
	return f.change(func() error { return f.FS.Link(from, to) })
}

func (f *faultFS) Remove(name string) error {
	return f.change(func() error { return f.FS.Remove(name) })
}

type faultFile struct {
	vfs.File
	fs  *faultFS
	log bool
}

func (f *faultFile) Write(p []byte) (n int, err error) {
	err = f.fs.change(func() (err error) { n, err = f.File.Write(p); return err })
	if err != nil && f.log {
		f.fs.die()
	}
	return n, err
}

func (f *faultFile) sync(do func() error) error {
	if f.log && f.fs.beforeSync != nil {
		f.fs.beforeSync()
	}
	err := f.fs.change(do)
	if err != nil && f.log && rotating() {
		f.fs.die()
	}
	return err
}

func (f *faultFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *faultFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *faultFile) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

type faultDir struct {
	vfs.File
	fs *faultFS
}

func (d *faultDir) Sync() error {
	do, fail := d.fs.point()
	if do {
		if err := d.File.Sync(); err != nil {
			return err
		}
	}
	if fail != nil {
		d.fs.die()
	}
	return nil
}
