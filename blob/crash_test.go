package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

var errInjected = errors.New("injected")

// faultFS fails one change of the disk, counted from when it is armed.
type faultFS struct {
	vfs.FS
	only  func(path string) bool // whose changes fail; nil: all
	mu    sync.Mutex
	at    int  // the change that fails, from 1; 0 = disarmed
	done  bool // it is done all the same, and then reported as failed
	dead  bool // all later changes fail as well: the power is gone
	count int
	err   error // how it fails; nil means errInjected
}

// step reports what becomes of the next change.
func (f *faultFS) step() (perform bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == 0 {
		return true, nil
	}
	f.count++
	switch {
	case f.count < f.at:
		return true, nil
	case f.count == f.at:
		return f.done, cmp.Or(f.err, errInjected)
	case f.dead:
		return false, errInjected
	}
	return true, nil
}

func (f *faultFS) arm(at int, done, dead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.done, f.dead, f.count = at, done, dead, 0
}

func (f *faultFS) hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count >= f.at
}

// spares reports whether changes of a path never fail.
func (f *faultFS) spares(path string) bool { return f.only != nil && !f.only(path) }

// do runs a change, or not.
func (f *faultFS) do(change func() error) error {
	perform, err := f.step()
	if perform {
		err = errors.Join(change(), err)
	}
	return err
}

func (f *faultFS) Create(name string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	if f.spares(name) {
		return f.FS.Create(name, c)
	}
	err = f.do(func() error { file, err = f.FS.Create(name, c); return err })
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return nil, err
	}
	return faultFile{file, f}, nil
}

func (f *faultFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	if f.spares(newname) {
		return f.FS.ReuseForWrite(oldname, newname, c)
	}
	err = f.do(func() error { file, err = f.FS.ReuseForWrite(oldname, newname, c); return err })
	if err != nil {
		return nil, err
	}
	return faultFile{file, f}, nil
}

func (f *faultFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	if err != nil || f.spares(name) {
		return file, err
	}
	return faultFile{file, f}, nil
}

func (f *faultFS) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil || f.spares(name) {
		return d, err
	}
	return faultFile{d, f}, nil
}

func (f *faultFS) Rename(oldname, newname string) error {
	if f.spares(newname) {
		return f.FS.Rename(oldname, newname)
	}
	return f.do(func() error { return f.FS.Rename(oldname, newname) })
}

func (f *faultFS) Remove(name string) error {
	if f.spares(name) {
		return f.FS.Remove(name)
	}
	return f.do(func() error { return f.FS.Remove(name) })
}

type faultFile struct {
	vfs.File
	fs *faultFS
}

func (f faultFile) Write(p []byte) (n int, err error) {
	err = f.fs.do(func() error { n, err = f.File.Write(p); return err })
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (f faultFile) Sync() error     { return f.fs.do(f.File.Sync) }
func (f faultFile) SyncData() error { return f.fs.do(f.File.SyncData) }

// attempt runs f on a goroutine of its own and returns its error. If the index
// fails for good meanwhile, f may never end, and the failure is the error.
func attempt(fatal <-chan struct{}, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-fatal:
		return errors.New("the index failed for good")
	}
}

// TestCommitSurvivesEveryFault fails each change of the disk that an upload and
// its commit make, in all four ways, then cuts the power. Whatever was
// acknowledged is there, nothing is ever half there, and the upload can be
// repeated.
func TestCommitSurvivesEveryFault(t *testing.T) {
	for _, done := range []bool{false, true} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("done=%v,dead=%v", done, dead), func(t *testing.T) {
				steps := 1
				for ; failAt(t, steps, done, dead); steps++ {
				}
				if steps < 11 {
					t.Errorf("only %d changes were seen; is the wrapper bypassed?", steps-1)
				}
			})
		}
	}
}

// failAt runs the scenario with a fault at one change, and reports whether there
// was such a change.
func failAt(t *testing.T, at int, done, dead bool) bool {
	t.Helper()
	fatal := make(chan struct{})
	var once sync.Once
	disk := vfs.NewCrashableMem()
	fs := &faultFS{FS: disk}
	cfg := StoreConfig{Dir: "blobs", FS: fs, Create: true, OnFatal: func(string) {
		once.Do(func() { close(fatal) })
		runtime.Goexit()
	}}
	s, err := OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before, data := []byte("there before"), content(t, "fault", 2*MinChunkSize+9)
	old, _ := store(t, s, "before", before, small)
	sums := sumsOf(t, data, small)

	fs.arm(at, done, dead)
	result := attempt(fatal, func() error { return uploadOnce(s, "u", data, sums) })
	hit := fs.hit()
	fs.arm(0, false, false)
	if !hit && result != nil {
		t.Fatalf("no fault, but %v", result)
	}
	if result != nil && fault.Is(result, fault.Invalid) || fault.Is(result, fault.Corrupt) {
		t.Errorf("step %d blames the sender or the disk's contents: %v", at, result)
	}
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("step=%d,unsynced=%d", at, percent), func(t *testing.T) {
			after := StoreConfig{Dir: cfg.Dir, FS: disk.CrashClone(vfs.CrashCloneCfg{
				UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(at), uint64(percent))),
			})}
			checkAfterCrash(t, openStore(t, after), old, before, sums, data, result == nil)
		})
	}
	// The store goes on if its index did.
	select {
	case <-fatal:
		return hit
	default:
	}
	if err := attempt(fatal, func() error { return uploadOnce(s, "again", data, sums) }); err != nil {
		t.Errorf("step %d: the store does not go on after %v: %v", at, result, err)
	}
	if n, err := s.Sweep(time.Hour); n != 0 || err != nil { // removes what a failed removal left
		t.Errorf("swept %d, %v", n, err)
	}
	wantClean(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return hit
}

func uploadOnce(s *Store, id string, data []byte, sums Sums) error {
	if err := s.Open(id, small); err != nil {
		return err
	}
	for off := 0; off < len(data); off += MinChunkSize {
		piece := bytes.Clone(data[off:min(off+MinChunkSize, len(data))])
		if _, err := s.Write(id, int64(off), piece); err != nil {
			return err
		}
	}
	_, err := s.Commit(context.Background(), id, sums.Size, sums.SHA256, sums.CID)
	return err
}

// checkAfterCrash looks at the store that a crash left.
func checkAfterCrash(t *testing.T, s *Store, old Sums, before []byte, sums Sums, data []byte, acknowledged bool) {
	t.Helper()
	if got, err := readAll(t, s, old.CID, 1<<20); err != nil || !bytes.Equal(got, before) {
		t.Errorf("the file before: %v", err)
	}
	here, err := s.Has(t.Context(), sums.SHA256, sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	if acknowledged && !here {
		t.Error("an acknowledged file is gone")
	}
	got, err := readAll(t, s, sums.CID, 1<<20)
	switch {
	case here && (err != nil || !bytes.Equal(got, data)):
		t.Errorf("the file is here but does not read: %v", err)
	case !here && !fault.Is(err, fault.NotFound):
		t.Errorf("the file is not here, but reading it says %v", err)
	}
	for f, err := range s.Check(t.Context()) {
		if err != nil || f.Damage {
			t.Errorf("check: %+v, %v", f, err)
		}
	}
	if _, dup := store(t, s, "u", data, small); dup != here {
		t.Errorf("uploaded again: duplicate %v, but it was here: %v", dup, here)
	}
	wantClean(t, s)
}

// TestFullDiskIsTransient: the reserve may be overrun, or the disk may have less
// than it tells. Each change before the index meets it in turn.
func TestFullDiskIsTransient(t *testing.T) {
	cfg := testConfig(t)
	fs := &faultFS{FS: cfg.FS, err: &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	cfg.FS = fs
	s := openStore(t, cfg)
	data := content(t, "full", MinChunkSize+1)
	sums := sumsOf(t, data, small)
	for at, what := range []string{"create", "write", "write", "sync", "rename", "sync of the directory"} {
		fs.arm(at+1, false, false)
		err := uploadOnce(s, "u", data, sums)
		fs.arm(0, false, false)
		if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != CodeDiskFull || fault.RetryAfter(err) <= 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := uploadOnce(s, "u", data, sums); err != nil {
		t.Errorf("with room again: %v", err)
	}
	wantClean(t, s)
}
