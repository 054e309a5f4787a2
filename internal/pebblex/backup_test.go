package pebblex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
)

// backedUp is a store of n rows and a file beside it, with a backup of both.
func backedUp(t testing.TB, fs vfs.FS, n int) (db *pebble.DB, m Manifest) {
	t.Helper()
	db = openMem(t, fs, n)
	m, err := backupOf(t.Context(), fs, fs, db, "backup")
	if err != nil {
		t.Fatal(err)
	}
	return db, m
}

func openMem(t testing.TB, fs vfs.FS, n int) *pebble.DB {
	t.Helper()
	db, err := Open(Options{Dir: "data/store", FS: fs, Create: true, OnFatal: func(s string) { panic(s) }})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, 0, n)
	return db
}

// fill writes rows, half of them to a table.
func fill(t testing.TB, db *pebble.DB, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		if err := db.Set(fmt.Appendf(nil, "k%05d", i), bytes.Repeat([]byte{byte(i)}, 100), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if i == from+n/2 {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// backupOf makes a backup through fs and opens its copy through plain: what a
// store does about a failing disk is not what is tested here.
func backupOf(ctx context.Context, fs, plain vfs.FS, db *pebble.DB, to string) (Manifest, error) {
	b, err := NewBackup(fs, to, "archive", "archive-a", time.Unix(1_800_000_000, 0))
	if err != nil {
		return Manifest{}, err
	}
	if err := b.AddStore(ctx, "records/store", db, "data/store"); err != nil {
		return Manifest{}, err
	}
	if err := errors.Join(b.AddBytes("roster.json", []byte("{}\n")), b.AddDir("files/empty")); err != nil {
		return Manifest{}, err
	}
	return b.Finish(ctx, func(dir string) (*BackupLog, error) {
		n, err := rows(plain, fs.PathJoin(dir, "records", "store"))
		return &BackupLog{Origin: "archive-a/g1", Size: int64(n)}, err
	})
}

// rows opens a copy of a store and counts what is in it.
func rows(fs vfs.FS, dir string) (n int, err error) {
	db, err := Open(Options{Dir: dir, FS: fs})
	if err != nil {
		return 0, err
	}
	it, err := db.NewIter(nil)
	if err != nil {
		return 0, errors.Join(err, db.Close())
	}
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n, errors.Join(it.Error(), it.Close(), db.Close())
}

func restoreRows(fs, plain vfs.FS, from, to string) (n int, err error) {
	m, err := ReadManifest(fs, from, "archive")
	if err != nil {
		return 0, err
	}
	err = Restore(context.Background(), fs, from, m, to, func(dir string) error {
		n, err = rows(plain, fs.PathJoin(dir, "records", "store"))
		return err
	})
	return n, err
}

func TestBackupHoldsAllThatWasCommittedBefore(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			if name == "disk" {
				t.Chdir(t.TempDir())
			}
			db, m := backedUp(t, fs, 200)
			if m.Log.Size != 200 || m.Sum == "" {
				t.Errorf("manifest: %+v", m.Log)
			}
			fill(t, db, 200, 50) // work goes on
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			for _, to := range []string{"new", "newer"} { // a restore leaves the backup as it is
				if n, err := restoreRows(fs, fs, "backup", to); err != nil || n != 200 {
					t.Errorf("%s: %d rows, %v", to, n, err)
				}
				if _, err := fs.Stat(fs.PathJoin(to, "files", "empty")); err != nil {
					t.Error(err)
				}
			}
			for _, dir := range []string{"", "data", "backup"} {
				names, err := fs.List(dir)
				if dir != "" && err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					if strings.Contains(name, "checkpoint") || strings.Contains(name, "incomplete") || name == scratchName {
						t.Errorf("%s is left in %s", name, dir)
					}
				}
			}
		})
	}
}

func TestFilesOfABackupAreTheirOwnersBusiness(t *testing.T) {
	t.Chdir(t.TempDir())
	db, _ := backedUp(t, vfs.Default, 10)
	defer db.Close()
	err := filepath.WalkDir("backup", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBackupAndRestoreTakeOnlyAFreePlace(t *testing.T) {
	fs := vfs.NewMem()
	db, _ := backedUp(t, fs, 10)
	defer db.Close()
	if _, err := backupOf(t.Context(), fs, fs, db, "backup"); fault.CodeOf(err) != CodeBackupTarget {
		t.Errorf("a second backup in one place: %v", err)
	}
	if _, err := restoreRows(fs, fs, "backup", "data"); fault.CodeOf(err) != CodeBackupTarget {
		t.Errorf("a restore over data: %v", err)
	}
	if err := fs.MkdirAll("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	if n, err := restoreRows(fs, fs, "backup", "empty"); n != 10 || err != nil {
		t.Errorf("a restore to an empty directory: %d, %v", n, err)
	}
	m, err := ReadManifest(fs, "backup", "vault")
	if fault.CodeOf(err) != CodeBackupKind {
		t.Errorf("an archive's backup as a vault's: %+v, %v", m, err)
	}
}

// A backup whose copy does not open gets no manifest.
func TestBackupIsGoodOnlyOnceItWasOpened(t *testing.T) {
	fs := vfs.NewMem()
	b, err := NewBackup(fs, "backup", "archive", "archive-a", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.AddBytes("roster.json", []byte("x")); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	if _, err := b.Finish(t.Context(), func(string) (*BackupLog, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Errorf("finish: %v", err)
	}
	if _, err := ReadManifest(fs, "backup", "archive"); fault.CodeOf(err) != CodeBackupBroken {
		t.Errorf("it is taken for a backup: %v", err)
	}
}

func TestBackupEndsWithItsContext(t *testing.T) {
	fs := vfs.NewMem()
	db := openMem(t, fs, 10)
	defer db.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := backupOf(ctx, fs, fs, db, "backup"); !errors.Is(err, context.Canceled) {
		t.Errorf("backup: %v", err)
	}
	if _, err := ReadManifest(fs, "backup", "archive"); fault.CodeOf(err) != CodeBackupBroken {
		t.Errorf("it is taken for a backup: %v", err)
	}
}

// Every file of a backup is changed, cut and taken away; every one of these is
// found before anything gets its name.
func TestChangedBackupIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	db, m := backedUp(t, fs, 100)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	paths := []string{ManifestName}
	for _, f := range m.Files {
		paths = append(paths, f.Path)
	}
	if len(paths) < 6 {
		t.Fatalf("only %q", paths)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range paths {
		good, err := ReadFile(fs, join(fs, "backup", p), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(good)
		if len(flipped) > 0 {
			flipped[rng.IntN(len(flipped))] ^= 1 << rng.IntN(8)
		}
		for what, bad := range map[string][]byte{"flipped": flipped, "cut": good[:len(good)/2], "emptied": {}, "longer": append(bytes.Clone(good), 0)} {
			if bytes.Equal(bad, good) {
				continue
			}
			overwrite(t, fs, join(fs, "backup", p), bad)
			mustRefuse(t, fs, p+" "+what)
		}
		if err := fs.Remove(join(fs, "backup", p)); err != nil {
			t.Fatal(err)
		}
		mustRefuse(t, fs, p+" removed")
		overwrite(t, fs, join(fs, "backup", p), good)
	}
	if n, err := restoreRows(fs, fs, "backup", "new"); err != nil || n != 100 {
		t.Errorf("the good backup: %d, %v", n, err)
	}
}

func overwrite(t testing.TB, fs vfs.FS, path string, data []byte) {
	t.Helper()
	if err := WriteFile(fs, path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustRefuse(t testing.TB, fs vfs.FS, what string) {
	t.Helper()
	_, err := restoreRows(fs, fs, "backup", "new")
	if fault.CodeOf(err) != CodeBackupBroken || !fault.Is(err, fault.Corrupt) {
		t.Errorf("%s: %v", what, err)
	}
	for _, left := range []string{"new", "new.incomplete"} {
		if _, err := fs.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %s is there, %v", what, left, err)
		}
	}
}

// atOperation runs do at the n'th operation that changes the disk.
func atOperation(fs vfs.FS, n int, do func() error) (vfs.FS, *int) {
	count := new(int)
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if *count++; *count == n {
			return do()
		}
		return nil
	})), count
}

// A crash before any operation of a restore leaves nothing at the target, or all.
func TestRestoreCutShortByACrashLeavesNothingOrAll(t *testing.T) {
	mem := vfs.NewCrashableMem()
	db, _ := backedUp(t, mem, 20)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{0, 50, 100} {
		step := need.Rounds(3, 1)
		for n := 1 + keep/50%step; ; n += step {
			disk := mem.CrashClone(vfs.CrashCloneCfg{})
			var crashed *vfs.MemFS
			fs, count := atOperation(disk, n, func() error {
				crashed = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(uint64(n), uint64(keep)))})
				return nil
			})
			m, err := ReadManifest(fs, "backup", "archive")
			if err == nil {
				err = Restore(t.Context(), fs, "backup", m, "new", func(string) error { return nil })
			}
			if err != nil {
				t.Fatal(err)
			}
			if *count < n {
				if n < 20 {
					t.Fatalf("a restore makes only %d operations", n)
				}
				break
			}
			if got, err := rows(crashed, "new/records/store"); err == nil && got == 20 {
				continue // the last steps: it has its name
			}
			if names, err := crashed.List("new"); err == nil && len(names) > 0 {
				t.Fatalf("operation %d, %d %% kept: a part is there: %q", n, keep, names)
			}
			if got, err := restoreRows(crashed, crashed, "backup", "new"); err != nil || got != 20 {
				t.Fatalf("operation %d, %d %% kept: the next try: %d, %v", n, keep, got, err)
			}
		}
	}
}

// A crash before any operation of a backup leaves no manifest, or a good backup;
// and the store as it was.
func TestBackupCutShortByACrashIsNoneOrGood(t *testing.T) {
	good, points := 0, 0
	for _, keep := range []int{0, 50, 100} {
		step := need.Rounds(3, 1) // another third for each keep
		for n := 1 + keep/50%step; ; n += step {
			mem := vfs.NewCrashableMem()
			db := openMem(t, mem, 20)
			var crashed *vfs.MemFS
			fs, _ := atOperation(mem, n, func() error {
				crashed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(uint64(n), uint64(keep)))})
				return nil
			})
			_, err := backupOf(t.Context(), fs, mem, db, "backup")
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if crashed == nil {
				break
			}
			points++
			switch got, err := restoreRows(crashed, crashed, "backup", "new"); {
			case err == nil && got == 20:
				good++
			case fault.CodeOf(err) != CodeBackupBroken:
				t.Fatalf("operation %d, %d %% kept: %d rows, %v", n, keep, got, err)
			}
			if got, err := rows(crashed, "data/store"); err != nil || got != 20 {
				t.Fatalf("operation %d, %d %% kept: the store itself: %d, %v", n, keep, got, err)
			}
		}
	}
	if t.Logf("%d points, %d of them with a backup", points, good); points < 20 || good == points {
		t.Error("too few points")
	}
}

// What fails is told, and leaves nothing that could be taken for whole.
func TestBackupAndRestoreThatFailedLeaveNothing(t *testing.T) {
	mem := vfs.NewMem()
	db := openMem(t, mem, 20)
	defer db.Close()
	points := 0
	for n := 1; ; n++ {
		fs, count := atOperation(mem, n, func() error { return errorfs.ErrInjected })
		_, err := backupOf(t.Context(), fs, mem, db, "backup")
		if err == nil {
			_, err = restoreRows(fs, mem, "backup", "new")
		}
		if err == nil && *count < n {
			break
		}
		points++
		if _, there := mem.Stat("new"); there == nil {
			if got, err := rows(mem, "new/records/store"); err != nil || got != 20 {
				t.Fatalf("operation %d failed: a part is there: %d rows, %v", n, got, err)
			}
		}
		if got, err := restoreRows(mem, mem, "backup", "newer"); fault.CodeOf(err) != CodeBackupBroken && (err != nil || got != 20) {
			t.Fatalf("operation %d failed: %d rows, %v", n, got, err)
		}
		for _, dir := range []string{"backup", "new", "newer"} {
			if err := mem.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	if points < 50 {
		t.Errorf("only %d points", points)
	}
}
