package pebblex

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex/faultfs"
)

// paced is a full disk below the pacer, and what is logged of it.
func paced(fatal func(string)) (fs paceFS, out *bytes.Buffer) {
	disk := faultfs.New(vfs.NewMem())
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpWrite }, faultfs.ErrFull))
	out = &bytes.Buffer{}
	return paceFS{disk, &pacer{log: &logger{log: slog.New(slog.NewTextHandler(out, nil)), fatal: fatal}}}, out
}

func writeTo(t *testing.T, fs vfs.FS, name string) error {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write([]byte("x"))
	return errors.Join(err, f.Close())
}

// A table that meets a full disk waits before it is tried again; a log, on which
// a put waits, does not.
func TestAFullDiskIsTriedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, out := paced(func(string) { t.Error("the process ends though the store was open") })
		began := time.Now()
		for range 40 {
			if err := writeTo(t, fs, "000001.sst"); !IsFull(err) {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 40*fullPause {
			t.Errorf("40 tries within %s", took)
		}
		if n := strings.Count(out.String(), "\n"); n > 2 {
			t.Errorf("%d lines for 40 tries:\n%s", n, out)
		}
		began = time.Now()
		if err := writeTo(t, fs, "000001.log"); !IsFull(err) || time.Since(began) > 0 {
			t.Errorf("a log: %v after %s", err, time.Since(began))
		}
	})
}

// A disk that got full while the store opens, whatever it said before, ends the
// process after some tries: Open would never return.
func TestOpeningDoesNotTryForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := ""
		fs, _ := paced(func(s string) { reason = s; panic("end of the process") })
		fs.pacer.opening.Store(true)
		tries := 0
		func() {
			defer func() { _ = recover() }()
			for range 10 * openTries {
				tries++
				_ = writeTo(t, fs, "000001.sst")
			}
		}()
		if tries != openTries || !strings.Contains(reason, "full") {
			t.Errorf("%d tries, reason %q", tries, reason)
		}
	})
}

// A bad disk is tried at once, a thousand times; then it is paced too, until it
// takes a table.
func TestABadDiskIsTriedSlowlyInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.New(vfs.NewMem())
		fs := paceFS{disk, &pacer{log: &logger{log: slog.New(slog.DiscardHandler)}}}
		table := func() (time.Duration, error) {
			began := time.Now()
			f, err := fs.Create("000001.sst", vfs.WriteCategoryUnspecified)
			if err == nil {
				err = errors.Join(f.Sync(), f.Close())
			}
			return time.Since(began), err
		}
		broken := faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpSync }, faultfs.ErrIO)
		for round := range 2 {
			disk.Fail(broken)
			for i := range ioTries {
				if took, err := table(); !errors.Is(err, faultfs.ErrIO) || took > 0 {
					t.Fatalf("round %d, try %d: %v after %s", round, i, err, took)
				}
			}
			if took, err := table(); err == nil || took < fullPause {
				t.Errorf("round %d: the next: %v after %s", round, err, took)
			}
			disk.Fail(nil)
			if _, err := table(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
