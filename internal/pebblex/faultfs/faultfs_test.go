package faultfs_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/pebblex/faultfs"
)

// steps is every operation that changes something, each by itself.
var steps = []struct {
	op faultfs.Op
	do func(fs vfs.FS) error
}{
	{faultfs.OpMkdir, func(fs vfs.FS) error { return fs.MkdirAll("d", 0o700) }},
	{faultfs.OpCreate, func(fs vfs.FS) error { return with(fs.Create("d/a", vfs.WriteCategoryUnspecified))(nil) }},
	{faultfs.OpReuse, func(fs vfs.FS) error {
		return with(fs.ReuseForWrite("d/a", "d/b", vfs.WriteCategoryUnspecified))(nil)
	}},
	{faultfs.OpOpen, func(fs vfs.FS) error { return with(fs.OpenReadWrite("d/b", vfs.WriteCategoryUnspecified))(nil) }},
	{faultfs.OpWrite, func(fs vfs.FS) error {
		return with(fs.OpenReadWrite("d/b", vfs.WriteCategoryUnspecified))(func(f vfs.File) error { _, err := f.Write([]byte("x")); return err })
	}},
	{faultfs.OpSync, func(fs vfs.FS) error {
		return with(fs.OpenReadWrite("d/b", vfs.WriteCategoryUnspecified))(vfs.File.Sync)
	}},
	{faultfs.OpSync, func(fs vfs.FS) error {
		return with(fs.OpenReadWrite("d/b", vfs.WriteCategoryUnspecified))(vfs.File.SyncData)
	}},
	{faultfs.OpSync, func(fs vfs.FS) error {
		return with(fs.OpenReadWrite("d/b", vfs.WriteCategoryUnspecified))(func(f vfs.File) error { _, err := f.SyncTo(1); return err })
	}},
	{faultfs.OpClose, func(fs vfs.FS) error { return with(fs.OpenReadWrite("d/b", vfs.WriteCategoryUnspecified))(nil) }},
	{faultfs.OpSyncDir, func(fs vfs.FS) error { return with(fs.OpenDir("d"))(vfs.File.Sync) }},
	{faultfs.OpLink, func(fs vfs.FS) error { return fs.Link("d/b", "d/c") }},
	{faultfs.OpRename, func(fs vfs.FS) error { return fs.Rename("d/c", "d/e") }},
	{faultfs.OpRemove, func(fs vfs.FS) error { return fs.Remove("d/e") }},
	{faultfs.OpRemove, func(fs vfs.FS) error { return fs.RemoveAll("d") }},
}

// with uses a file that was opened and closes it.
func with(f vfs.File, err error) func(func(vfs.File) error) error {
	return func(use func(vfs.File) error) error {
		if err != nil || use == nil {
			if err == nil {
				err = f.Close()
			}
			return err
		}
		return errors.Join(use(f), f.Close())
	}
}

// Every kind of operation fails when it is its turn, alone, and is carried out
// or not, as told.
func TestEveryOperationCanFail(t *testing.T) {
	for _, done := range []bool{false, true} {
		for i, step := range steps {
			t.Run(fmt.Sprintf("%d %s %v", i, step.op, done), func(t *testing.T) {
				fs := faultfs.New(vfs.NewMem())
				for _, before := range steps[:i] {
					if err := before.do(fs); err != nil {
						t.Fatal(err)
					}
				}
				fs.Fail(func(p faultfs.Point) faultfs.Outcome {
					if p.Op != step.op {
						return faultfs.Outcome{}
					}
					return faultfs.Outcome{Err: faultfs.ErrIO, Done: done}
				})
				if err := step.do(fs); !errors.Is(err, faultfs.ErrIO) {
					t.Errorf("%v, want EIO", err)
				}
			})
		}
	}
}

func TestOperationsAreCountedAndTraced(t *testing.T) {
	fs := faultfs.New(vfs.NewMem())
	var got []faultfs.Op
	fs.Trace(func(p faultfs.Point) {
		if p.N != int64(len(got)) {
			t.Errorf("operation %d is number %d", len(got), p.N)
		}
		got = append(got, p.Op)
	})
	for _, step := range steps {
		if err := step.do(fs); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range steps {
		if !slices.Contains(got, step.op) {
			t.Errorf("%s is not traced", step.op)
		}
	}
	if fs.Ops() != int64(len(got)) {
		t.Errorf("%d operations counted, %d traced", fs.Ops(), len(got))
	}
}

// A disk that breaks stays broken, one that stumbles does not, and reads are no
// changes.
func TestBrokenAndStumbling(t *testing.T) {
	create := func(fs vfs.FS) error { return with(fs.Create("a", vfs.WriteCategoryUnspecified))(nil) } // two changes
	for name, c := range map[string]struct {
		decide faultfs.Decide
		want   []bool
	}{
		"after":     {faultfs.After(2, faultfs.ErrFull, false), []bool{true, false, false}},
		"after, 1":  {faultfs.After(3, faultfs.ErrFull, true), []bool{true, false, false}},
		"nth":       {faultfs.Nth(2, faultfs.ErrFull, false), []bool{true, false, true}},
		"where":     {faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpClose }, faultfs.ErrFull), []bool{false, false, false}},
		"none":      {nil, []bool{true, true, true}},
		"only read": {faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpRead }, faultfs.ErrIO), []bool{true, true, true}},
	} {
		fs := faultfs.New(vfs.NewMem())
		fs.Fail(c.decide)
		got := []bool{}
		for range c.want {
			got = append(got, create(fs) == nil)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadsFailAndEndOfFileDoesNot(t *testing.T) {
	fs := faultfs.New(vfs.NewMem())
	if err := with(fs.Create("a", vfs.WriteCategoryUnspecified))(func(f vfs.File) error { _, err := f.Write([]byte("abc")); return err }); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != "abc" {
		t.Errorf("read %q, %v", b, err)
	}
	fs.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpRead }, faultfs.ErrIO))
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, faultfs.ErrIO) {
		t.Errorf("read of a bad disk: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFailureThatPebbleDoesNotSurviveEndsTheProcess(t *testing.T) {
	fs, p := faultfs.New(vfs.NewMem()), faultfs.NewProcess()
	fs.Fail(p.Kills(faultfs.After(0, faultfs.ErrIO, true), 1000))
	if !p.Run(func() { _, _ = fs.Create("000001.log", vfs.WriteCategoryUnspecified) }) {
		t.Error("the process survived a log that it can not make")
	}
	if _, err := fs.Stat("000001.log"); err != nil {
		t.Errorf("the operation was to be carried out first: %v", err)
	}
	p = faultfs.NewProcess()
	fs.Fail(p.Kills(faultfs.After(0, faultfs.ErrIO, false), 2))
	tries := 0
	died := p.Run(func() {
		for range 10 {
			tries++
			_, _ = fs.Create("000001.sst", vfs.WriteCategoryUnspecified)
		}
	})
	if !died || tries != 3 {
		t.Errorf("died: %v, after %d tries", died, tries)
	}
}
