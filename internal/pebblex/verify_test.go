package pebblex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/need"
)

// verified returns a closed store with a few tables, one of them large enough
// for many blocks, and with something in its log.
func verified(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	db := mustOpen(t, Options{Dir: "s", FS: fs, Create: true})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		v := make([]byte, 400)
		for j := range v {
			v[j] = byte(rng.Uint32())
		}
		if err := db.Set(fmt.Appendf(nil, "key-%06d", i), v, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if i == 200 || i == 280 {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, db)
	return fs
}

func flawsOf(t testing.TB, v Verify) []Flaw {
	t.Helper()
	flaws, _, err := v.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return flaws
}

// filesWith returns the paths in the store whose names begin or end with part.
func filesWith(t testing.TB, fs vfs.FS, part string) (paths []string) {
	t.Helper()
	names, err := fs.List("s")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(names, compareNames)
	for _, name := range names {
		if strings.HasPrefix(name, part) || strings.HasSuffix(name, part) {
			paths = append(paths, fs.PathJoin("s", name))
		}
	}
	if len(paths) == 0 {
		t.Fatalf("no %s in %v", part, names)
	}
	return paths
}

func TestVerifyFindsNothingInAWholeStore(t *testing.T) {
	fs := verified(t)
	asked := 0
	v := Verify{FS: fs, Dir: "s", Read: func(_ context.Context, n int) error { asked += n; return nil }}
	flaws, sum, err := v.All(t.Context())
	if err != nil || len(flaws) > 0 {
		t.Fatalf("closed: %v, %v", flaws, err)
	}
	if sum.Files < 4 || sum.Bytes < 100<<10 || int64(asked) < sum.Bytes*9/10 {
		t.Errorf("%+v, asked for %d bytes", sum, asked)
	}
	db := mustOpen(t, Options{Dir: "s", FS: fs})
	defer mustClose(t, db)
	if flaws := flawsOf(t, Verify{FS: fs, Dir: "s"}.Of(db)); len(flaws) > 0 {
		t.Errorf("open: %v", flaws)
	}
}

// TestVerifyFindsEveryFlippedByteOfATable: nothing of a table is left out.
func TestVerifyFindsEveryFlippedByteOfATable(t *testing.T) {
	fs := verified(t)
	v := Verify{FS: fs, Dir: "s"}
	flips := 0
	for _, path := range filesWith(t, fs, tableSuffix) {
		data, err := fs.UnsafeGetFileDataBuffer(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += need.Rounds(97, 1) {
			data[i] ^= 1 << (i % 8)
			flaw, _, err := v.Table(t.Context(), fs.PathBase(path))
			if err != nil || flaw == nil || !flaw.Damage || flaw.Path != path {
				t.Errorf("%s, byte %d of %d: %v, %v", path, i, len(data), flaw, err)
			}
			data[i] ^= 1 << (i % 8)
			flips++
		}
	}
	t.Log(flips, "bytes flipped")
	if flaws := flawsOf(t, v); len(flaws) > 0 {
		t.Errorf("after all was put back: %v", flaws)
	}
}

func TestVerifyFindsOtherDamage(t *testing.T) {
	rewrite := func(t *testing.T, fs *vfs.MemFS, path string, data []byte) {
		if err := WriteFile(fs, path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		part   string
		change func(t *testing.T, fs *vfs.MemFS, path string, data []byte)
		live   bool // only the open store knows that the file should be there
		damage bool
	}{
		"table cut":        {tableSuffix, func(t *testing.T, fs *vfs.MemFS, path string, data []byte) { rewrite(t, fs, path, data[:len(data)-1]) }, false, true},
		"table of nothing": {tableSuffix, func(t *testing.T, fs *vfs.MemFS, path string, _ []byte) { rewrite(t, fs, path, nil) }, false, true},
		"table grown":      {tableSuffix, func(t *testing.T, fs *vfs.MemFS, path string, data []byte) { rewrite(t, fs, path, append(data, 0)) }, false, true},
		"table gone": {tableSuffix, func(t *testing.T, fs *vfs.MemFS, path string, _ []byte) {
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, true, true},
		"manifest cut": {manifestPrefix, func(t *testing.T, fs *vfs.MemFS, path string, data []byte) { rewrite(t, fs, path, data[:len(data)-1]) }, false, false},
		"options cut in a word": {optionsPrefix, func(t *testing.T, fs *vfs.MemFS, path string, data []byte) {
			rewrite(t, fs, path, []byte(strings.Replace(string(data), "comparer=leveldb", "comparer=lev", 1)))
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := verified(t)
			v := Verify{FS: fs, Dir: "s"}
			if tc.live {
				db := mustOpen(t, Options{Dir: "s", FS: fs})
				defer mustClose(t, db)
				v = v.Of(db)
			}
			paths := filesWith(t, fs, tc.part)
			path := paths[len(paths)-1]
			data, err := fs.UnsafeGetFileDataBuffer(path)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(t, fs, path, append([]byte(nil), data...))
			if flaws := flawsOf(t, v); len(flaws) != 1 || flaws[0].Path != path || flaws[0].Damage != tc.damage || flaws[0].What == "" {
				t.Errorf("%+v", flaws)
			}
		})
	}
}

// TestVerifyFindsAFlippedLog: behind the damage the log says that it was synced.
func TestVerifyFindsAFlippedLog(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, Options{Dir: "s", FS: fs, Create: true})
	put(t, db, 0, 400)
	defer mustClose(t, db)
	crashed := Verify{FS: fs, Dir: "s"} // the log as a killed process leaves it
	if flaws := flawsOf(t, crashed); len(flaws) > 0 {
		t.Fatalf("whole: %+v", flaws)
	}
	paths := filesWith(t, fs, walSuffix)
	data, err := fs.UnsafeGetFileDataBuffer(paths[len(paths)-1])
	if err != nil {
		t.Fatal(err)
	}
	data[1000] ^= 1
	defer func() { data[1000] ^= 1 }()
	if flaws := flawsOf(t, crashed); len(flaws) != 1 || !flaws[0].Damage {
		t.Errorf("%+v", flaws)
	}
}

// TestVerifyWhileTablesComeAndGo reads an open store whose tables are replaced
// by compactions all the time.
func TestVerifyWhileTablesComeAndGo(t *testing.T) {
	fs := vfs.NewMem()
	db := mustOpen(t, Options{Dir: "s", FS: fs, Create: true})
	defer mustClose(t, db)
	put(t, db, 0, 10)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 10; ; i += 10 {
			select {
			case <-stop:
				return
			default:
			}
			put(t, db, i%200, 10)
			if err := errors.Join(db.Flush(), db.Compact(t.Context(), []byte("a"), []byte("z"), false)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range need.Rounds(10, 200) {
		if flaws := flawsOf(t, Verify{FS: fs, Dir: "s"}.Of(db)); len(flaws) > 0 {
			t.Errorf("%+v", flaws)
		}
	}
	close(stop)
	wg.Wait()
}

func TestVerifyEndsWithItsContextAndItsHook(t *testing.T) {
	fs := verified(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if flaws, _, err := (Verify{FS: fs, Dir: "s"}).All(ctx); !errors.Is(err, context.Canceled) || len(flaws) > 0 {
		t.Errorf("%v, %v", flaws, err)
	}
	enough := errors.New("enough")
	v := Verify{FS: fs, Dir: "s", Read: func(context.Context, int) error { return enough }}
	if flaws, _, err := v.All(t.Context()); !errors.Is(err, enough) || len(flaws) > 0 {
		t.Errorf("%v, %v", flaws, err)
	}
}

// unclosable is a disk whose files can be read and not be closed.
type unclosable struct{ vfs.FS }

type unclosableFile struct{ vfs.File }

var errClose = errors.New("close failed")

func (u unclosable) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := u.FS.Open(name, opts...)
	return unclosableFile{f}, err
}

func (f unclosableFile) Close() error { return errors.Join(f.File.Close(), errClose) }

// A log that can not be closed is told as an error, not passed over.
func TestVerifyOfLogsTellsOfAFailedClose(t *testing.T) {
	v := Verify{FS: unclosable{verified(t)}, Dir: "s"}
	if _, _, err := v.Logs(t.Context()); !errors.Is(err, errClose) {
		t.Errorf("it says %v", err)
	}
}
