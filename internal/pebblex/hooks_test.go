package pebblex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex/faultfs"
)

// brokenSync is a disk whose log files fail to sync once it is broken.
type brokenSync struct {
	vfs.FS
	broken *atomic.Bool
}

func (b brokenSync) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := b.FS.Create(name, category)
	return brokenFile{f, b.broken}, err
}

func (b brokenSync) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := b.FS.ReuseForWrite(from, to, category)
	return brokenFile{f, b.broken}, err
}

func (b brokenSync) OpenDir(name string) (vfs.File, error) {
	f, err := b.FS.OpenDir(name)
	return brokenFile{f, b.broken}, err
}

type brokenFile struct {
	vfs.File
	broken *atomic.Bool
}

var errDisk = errors.New("input/output error")

func (f brokenFile) SyncData() error {
	if f.broken.Load() {
		return errDisk
	}
	return f.File.SyncData()
}

func (f brokenFile) Sync() error {
	if f.broken.Load() {
		return errDisk
	}
	return f.File.Sync()
}

// failingSet opens a store on a disk that fails, and writes one key. It is left
// open: a store whose commit failed cannot be closed in order.
func failingSet(t testing.TB, onFatal func(string), log *slog.Logger) error {
	var broken atomic.Bool
	db := mustOpen(t, Options{
		Dir: "store", FS: brokenSync{vfs.NewMem(), &broken}, Create: true, OnFatal: onFatal, Log: log,
	})
	broken.Store(true)
	return db.Set([]byte("k"), []byte("v"), pebble.Sync)
}

func TestFailedCommitCallsTheHook(t *testing.T) {
	var reason string
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		err := failingSet(t, func(r string) { reason = r; panic(r) }, nil)
		t.Errorf("the write returned %v", err)
	}()
	<-done
	if !strings.Contains(reason, errDisk.Error()) {
		t.Errorf("hook called with %q, want the disk's error", reason)
	}
}

func TestHookThatReturnsStillStopsTheGoroutine(t *testing.T) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		err := failingSet(t, func(string) {}, nil)
		t.Errorf("the write returned %v", err)
	}()
	if got := <-done; got == nil {
		t.Error("the write went on after the hook returned")
	}
}

// TestDiskErrorIsLogged: Pebble panics when it cannot end a log, and what it
// prints then does not name the disk's error.
func TestDiskErrorIsLogged(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(fs vfs.FS) error
	}{
		{"log", func(fs vfs.FS) error { return createAndSync(fs, "store/000004.log") }},
		{"manifest", func(fs vfs.FS) error { return createAndSync(fs, "store/MANIFEST-000001") }},
		{"recycled log", func(fs vfs.FS) error {
			if err := createAndSync(fs, "store/old"); err == nil {
				return errors.New("the disk is not broken")
			}
			f, err := fs.ReuseForWrite("store/old", "store/000005.log", vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			return errors.Join(f.SyncData(), f.Close())
		}},
		{"directory", func(fs vfs.FS) error { return syncDir(fs, "store") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mem := vfs.NewMem()
			if err := mem.MkdirAll("store", 0o700); err != nil {
				t.Fatal(err)
			}
			var broken atomic.Bool
			broken.Store(true)
			var out bytes.Buffer
			l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
			if err := tc.do(tellFS{brokenSync{mem, &broken}, l.failed}); !errors.Is(err, errDisk) {
				t.Fatalf("got %v, want the disk's error", err)
			}
			if n := strings.Count(out.String(), errDisk.Error()); n != 1 {
				t.Errorf("the error is logged %d times:\n%s", n, out.String())
			}
		})
	}
	var out bytes.Buffer
	fs := tellFS{vfs.NewMem(), (&logger{log: slog.New(slog.NewTextHandler(&out, nil))}).failed}
	if err := createAndSync(fs, "gone/x.log"); err == nil || !strings.Contains(out.String(), "create") {
		t.Errorf("a log that cannot be made: %v, logged %q", err, out.String())
	}
}

func createAndSync(fs vfs.FS, name string) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// TestExitEndsTheProcessWithItsCode runs this test binary again; there it opens
// a store with no hook on a failing disk.
func TestExitEndsTheProcessWithItsCode(t *testing.T) {
	if os.Getenv("PEBBLEX_EXIT") == "1" {
		err := failingSetDefault(t, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		t.Fatalf("the write returned %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestExitEndsTheProcessWithItsCode$")
	cmd.Env = append(os.Environ(), "PEBBLEX_EXIT=1")
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != ExitCode {
		t.Fatalf("ended with %v, want status %d\n%s", err, ExitCode, out)
	}
	if !strings.Contains(string(out), errDisk.Error()) {
		t.Errorf("the log does not name the reason:\n%s", out)
	}
}

func failingSetDefault(t *testing.T, log *slog.Logger) error {
	var broken atomic.Bool
	db, err := Open(Options{Dir: "store", FS: brokenSync{vfs.NewMem(), &broken}, Create: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	return db.Set([]byte("k"), []byte("v"), pebble.Sync)
}

func TestCorruptBlockCallsTheHookAndNothingExits(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, Options{Dir: "store", FS: mem, Create: true})
	put(t, db, 0, 200)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	names, err := mem.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			data, err := mem.UnsafeGetFileDataBuffer("store/" + name)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/4] ^= 1
		}
	}
	var what atomic.Value
	db = mustOpen(t, Options{Dir: "store", FS: mem, OnCorruption: func(s string) { what.Store(s) }})
	defer mustClose(t, db)
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for valid := it.First(); valid; valid = it.Next() {
	}
	if err := it.Close(); !pebble.IsCorruptionError(err) {
		t.Errorf("scan of a damaged table: %v, want a corruption error", err)
	}
	if s, _ := what.Load().(string); !strings.Contains(s, ".sst") {
		t.Errorf("hook got %q, want the table's path", s)
	}
}

func TestRepeatedEventsAreThinnedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &logger{log: slog.New(slog.NewTextHandler(&out, nil)), fatal: func(r string) { panic(r) }}
		events := listener(l, nil)
		for range 100_000 { // what a full disk makes in a minute
			events.BackgroundError(errDisk)
		}
		events.LowDiskSpace(pebble.LowDiskSpaceInfo{}) // another event is not held back
		time.Sleep(repeatEvery)
		events.BackgroundError(errDisk)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines, want 3:\n%s", len(lines), out.String())
		}
		if !strings.Contains(lines[2], "skipped=99999") {
			t.Errorf("the events left out are not counted: %s", lines[2])
		}
	})
}

// A log that can not be written or synced, be the disk bad or full, ends the
// process: nobody knows what of it is on disk.
func TestAFailedLogIsFatal(t *testing.T) {
	for name, err := range map[string]error{"bad": faultfs.ErrIO, "full": faultfs.ErrFull} {
		for _, op := range []faultfs.Op{faultfs.OpWrite, faultfs.OpSync} {
			t.Run(name+" "+string(op), func(t *testing.T) {
				disk, process := faultfs.New(vfs.NewMem()), faultfs.NewProcess()
				reason := make(chan string, 1)
				db := mustOpen(t, Options{
					Dir: "store", FS: disk, Create: true,
					OnFatal: func(s string) { reason <- s; process.Die() },
				})
				disk.Fail(process.Kills(faultfs.Where(func(p faultfs.Point) bool { return p.Op == op && strings.HasSuffix(p.Path, ".log") }, err), 1000))
				died := process.Run(func() {
					err := db.Set([]byte("k"), []byte("v"), pebble.Sync)
					t.Errorf("the write returned %v", err)
				})
				if !died {
					t.Error("the process lives on")
				}
				select {
				case got := <-reason:
					if !strings.Contains(got, err.Error()) {
						t.Errorf("the hook got %q", got)
					}
				default: // where Pebble panics there is no hook, but the log names the disk's error
					if op != faultfs.OpWrite {
						t.Error("no hook was called")
					}
				}
			})
		}
	}
}

// A flush that fails for want of room is tried until there is some; the store
// lives on and keeps what was written.
func TestAFailedFlushIsMadeUpFor(t *testing.T) {
	disk := faultfs.New(vfs.NewMem())
	db := mustOpen(t, Options{Dir: "store", FS: disk, Create: true})
	defer mustClose(t, db)
	tries := make(chan struct{}, 1000)
	disk.Fail(func(p faultfs.Point) faultfs.Outcome {
		if p.Op != faultfs.OpCreate || !strings.HasSuffix(p.Path, ".sst") {
			return faultfs.Outcome{}
		}
		tries <- struct{}{}
		return faultfs.Outcome{Err: faultfs.ErrFull}
	})
	put(t, db, 0, 10)
	flushed := make(chan error)
	go func() { flushed <- db.Flush() }()
	<-tries
	<-tries // it comes again
	put(t, db, 10, 10)
	disk.Fail(nil)
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	for i := range 20 {
		if _, closer, err := db.Get(fmt.Appendf(nil, "key-%06d", i)); err != nil {
			t.Errorf("key %d: %v", i, err)
		} else if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What fails for good is told as damage, what passes is not.
func TestBackgroundErrorsOfABadDiskAreDamage(t *testing.T) {
	for err, damage := range map[error]bool{faultfs.ErrIO: true, faultfs.ErrFull: false, context.Canceled: false} {
		told := ""
		events := listener(&logger{log: slog.New(slog.DiscardHandler)}, func(s string) { told = s })
		events.BackgroundError(fmt.Errorf("flush: %w", err))
		if (told != "") != damage {
			t.Errorf("%v is told as %q", err, told)
		}
	}
}
