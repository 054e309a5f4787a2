package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/pebblex/faultfs"
)

// kept is a closed store and what is in it.
type kept struct {
	cfg   StoreConfig
	files map[string][]byte // by CID
	refs  []FileRef
}

// full returns a closed store with files of several sizes and profiles, two of
// which share a leaf, and one under two roots.
func full(t testing.TB, fs vfs.FS) *kept {
	t.Helper()
	cfg := testConfig(t)
	cfg.FS, cfg.Now = fs, func() time.Time { return time.Unix(1e9, 0) }
	s, err := OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Create = false
	k := &kept{cfg: cfg, files: map[string][]byte{}}
	shared := content(t, "shared", MinChunkSize)
	for i, data := range [][]byte{
		{}, []byte("small"), content(t, "large", 6*MinChunkSize),
		slices.Concat(shared, content(t, "a", 100)), slices.Concat(shared, content(t, "b", 100)),
	} {
		for j, p := range []Profile{small, Default} {
			if j > 0 && i != 2 {
				continue
			}
			sums, _ := store(t, s, fmt.Sprintf("u%d-%d", i, j), data, p)
			k.files[sums.CID] = data
			k.refs = append(k.refs, FileRef{SHA256: sums.SHA256, CID: sums.CID, Size: sums.Size, Profile: p})
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kept) source(_ context.Context, ref FileRef, write func([]byte) error) error {
	for b := range slices.Chunk(k.files[ref.CID], 1000) {
		if err := write(bytes.Clone(b)); err != nil {
			return err
		}
	}
	return nil
}

// Sources of other kinds than the one that has all.
func lying(ctx context.Context, ref FileRef, write func([]byte) error) error {
	return write(bytes.Repeat([]byte{'x'}, int(ref.Size)))
}

func endless(ctx context.Context, ref FileRef, write func([]byte) error) error {
	for {
		if err := write(make([]byte, 1<<10)); err != nil {
			return err
		}
	}
}

func silent(context.Context, FileRef, func([]byte) error) error {
	return fault.New(fault.NotFound, "NO_FILE", "a peer: no such file")
}

func (k *kept) path(elem ...string) string {
	return k.cfg.FS.PathJoin(append([]string{k.cfg.Dir}, elem...)...)
}

// each edits every file of the index whose name has a part.
func (k *kept) each(t testing.TB, part string, edit func([]byte) []byte) {
	t.Helper()
	names, err := k.cfg.FS.List(k.path(dirIndex))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(name, part) {
			continue
		}
		path := k.path(dirIndex, name)
		if edit == nil {
			if err := k.cfg.FS.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else if info, err := k.cfg.FS.Stat(path); err == nil && info.Size() > 0 {
			change(t, k.cfg.FS, path, edit)
		}
	}
}

func (k *kept) file(ref FileRef) string {
	return (&Store{cfg: k.cfg}).filePath(ref.SHA256)
}

// mend runs both steps of a repair as a program does, and returns the files that
// stay lost.
func (k *kept) mend(t testing.TB, sources ...CopySource) (report RepairReport, lost int) {
	t.Helper()
	report, err := RepairIndex(t.Context(), k.cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(k.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range report.Missing {
		if _, err := s.Refetch(t.Context(), ref, k.path("evidence"), sources); err != nil {
			wantFault(t, err, fault.NotFound, CodeNoCopy)
			lost++
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return report, lost
}

// whole checks that every file is served under every root.
func (k *kept) whole(t testing.TB) {
	t.Helper()
	s, err := OpenStore(k.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range s.Check(t.Context()) {
		t.Errorf("after the repair: %+v, %v", f, err)
	}
	for cid, want := range k.files {
		if len(want) == 0 {
			continue
		}
		if got, err := readAll(t, s, cid, 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("after the repair %s: %d bytes, %v", cid, len(got), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// hashes returns the hashes of all files of a directory, by path.
func hashes(t testing.TB, fs vfs.FS, dir string) map[string][32]byte {
	t.Helper()
	out := make(map[string][32]byte)
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			for p, sum := range hashes(t, fs, path) {
				out[fs.PathJoin(name, p)] = sum
			}
			continue
		}
		data, err := pebblex.ReadFile(fs, path, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = sha256.Sum256(data)
	}
	return out
}

func TestRepairOfAWholeStoreChangesNothing(t *testing.T) {
	k := full(t, vfs.NewMem())
	before := hashes(t, k.cfg.FS, k.cfg.Dir)
	report, lost := k.mend(t)
	if report.Rebuilt || report.Evidence != "" || len(report.Missing)+len(report.Damages)+lost > 0 {
		t.Errorf("%+v", report)
	}
	report, err := RepairIndex(t.Context(), k.cfg, true)
	if err != nil || report.Rebuilt {
		t.Errorf("%+v, %v", report, err)
	}
	after := hashes(t, k.cfg.FS, k.cfg.Dir)
	for path := range before {
		if strings.HasPrefix(path, dirFiles) && before[path] != after[path] {
			t.Errorf("%s changed", path)
		}
	}
	k.whole(t)
}

// TestRepairTable damages a store in one way and another. With a peer that has
// everything it is whole afterwards; without one exactly the files are lost whose
// bytes were damaged. What was replaced is kept as it was.
func TestRepairTable(t *testing.T) {
	middle := func(b []byte) []byte { b[len(b)/2] ^= 4; return b }
	end := func(b []byte) []byte { b[len(b)-3] ^= 4; return b }
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	index := func(part string, edit func([]byte) []byte) func(testing.TB, *kept) {
		return func(t testing.TB, k *kept) { k.each(t, part, edit) }
	}
	rows := func(edit func(db *pebble.DB) error) func(testing.TB, *kept) {
		return func(t testing.TB, k *kept) {
			db, err := pebblex.Open(pebblex.Options{Dir: k.path(dirIndex), FS: k.cfg.FS})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(edit(db), db.Flush(), db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	large, small := 2, 1 // refs
	for name, tc := range map[string]struct {
		damage  func(testing.TB, *kept)
		rebuilt bool
		lost    int  // roots without a peer
		only    bool // the rows of files that no row names come back with their records only
	}{
		"manifest flipped":     {damage: index("MANIFEST", func(b []byte) []byte { b[9] ^= 1; return b }), rebuilt: true},
		"manifest gone":        {damage: index("MANIFEST", nil), rebuilt: true},
		"marker gone":          {damage: index("marker.manifest", nil), rebuilt: true},
		"options gone":         {damage: index("OPTIONS", nil)},
		"table: end flipped":   {damage: index(".sst", end), rebuilt: true},
		"table: block flipped": {damage: index(".sst", middle), rebuilt: true, only: true},
		"table: cut":           {damage: index(".sst", cut), rebuilt: true, only: true},
		"tables gone":          {damage: index(".sst", nil), rebuilt: true, only: true},
		"a leaf row gone":      {damage: rows(func(db *pebble.DB) error { return db.DeleteRange([]byte{rowLeaf}, []byte{rowLeaf + 1}, pebble.Sync) }), rebuilt: true},
		"node rows gone":       {damage: rows(func(db *pebble.DB) error { return db.DeleteRange([]byte{rowNode}, []byte{rowNode + 1}, pebble.Sync) }), rebuilt: true},
		"a wrong root row": {damage: rows(func(db *pebble.DB) error {
			return db.Set(append([]byte{rowRoot, 0x70}, make([]byte, 32)...), []byte("no"), pebble.Sync)
		}), rebuilt: true},
		"index gone": {damage: func(t testing.TB, k *kept) {
			if err := k.cfg.FS.RemoveAll(k.path(dirIndex)); err != nil {
				t.Fatal(err)
			}
		}, rebuilt: true, only: true},
		"file flipped": {damage: func(t testing.TB, k *kept) { change(t, k.cfg.FS, k.file(k.refs[large]), middle) }, lost: 2},
		"file cut":     {damage: func(t testing.TB, k *kept) { change(t, k.cfg.FS, k.file(k.refs[small]), cut) }, lost: 1},
		"file gone": {damage: func(t testing.TB, k *kept) {
			if err := k.cfg.FS.Remove(k.file(k.refs[small])); err != nil {
				t.Fatal(err)
			}
		}, lost: 1},
		"file gone and manifest flipped": {damage: func(t testing.TB, k *kept) {
			if err := k.cfg.FS.Remove(k.file(k.refs[large])); err != nil {
				t.Fatal(err)
			}
			k.each(t, "MANIFEST", func(b []byte) []byte { b[9] ^= 1; return b })
		}, rebuilt: true, lost: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, peers := range []string{"all", "none", "lies"} {
				if peers != "all" && tc.lost == 0 {
					continue // no peer is asked
				}
				k := full(t, vfs.NewMem())
				tc.damage(t, k)
				before := hashes(t, k.cfg.FS, k.cfg.Dir)
				sources := map[string][]CopySource{"all": {silent, lying, endless, k.source}, "none": {silent}, "lies": {lying, endless}}[peers]
				report, lost := k.mend(t, sources...)
				if report.Rebuilt != tc.rebuilt || (report.Evidence != "") != tc.rebuilt {
					t.Errorf("%s: %+v", peers, report)
				}
				if want := tc.lost; peers == "all" && lost != 0 || peers != "all" && lost != want {
					t.Errorf("%s: %d files are lost of %d", peers, lost, len(report.Missing))
				}
				if tc.rebuilt {
					old := hashes(t, k.cfg.FS, report.Evidence)
					for path, sum := range before {
						if rest, ok := strings.CutPrefix(path, dirIndex+"/"); ok && old[rest] != sum {
							t.Errorf("%s: the evidence %s changed", peers, path)
						}
					}
				}
				if tc.only {
					k.adopt(t)
				}
				if peers == "all" || tc.lost == 0 {
					k.whole(t)
				}
			}
		})
	}
}

// adopt does what the repair of the records does: every file that a record names
// is made whole.
func (k *kept) adopt(t testing.TB) {
	t.Helper()
	s, err := OpenStore(k.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range k.refs {
		if adopted, err := s.Refetch(t.Context(), ref, k.path("evidence"), nil); err != nil || !adopted {
			t.Errorf("adopt %s: %v, %v", ref.CID, adopted, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRepairKeepsTheDamagedFile: the bytes that were replaced can be looked at.
func TestRepairKeepsTheDamagedFile(t *testing.T) {
	k := full(t, vfs.NewMem())
	path := k.file(k.refs[1])
	change(t, k.cfg.FS, path, func(b []byte) []byte { return []byte("bad") })
	k.mend(t, k.source)
	got, err := pebblex.ReadFile(k.cfg.FS, k.path("evidence", k.cfg.FS.PathBase(path)), 100)
	if err != nil || string(got) != "bad" {
		t.Errorf("%q, %v", got, err)
	}
}

// What fails here says nothing of the file: it is whole, or the repair of it ends
// with that error, and never with the word that nobody has it.
func TestFailureHereLosesNoFile(t *testing.T) {
	failures := 0
	for n := int64(0); ; n++ {
		disk := faultfs.New(vfs.NewMem())
		k := full(t, disk)
		ref := k.refs[1]
		change(t, k.cfg.FS, k.file(ref), func([]byte) []byte { return []byte("bad") })
		s := openStore(t, k.cfg)
		var at, hit atomic.Int64
		disk.Fail(func(p faultfs.Point) (out faultfs.Outcome) {
			if p.Op != faultfs.OpRead && !strings.Contains(p.Path, dirIndex) && at.Add(1)-1 == n {
				hit.Add(1)
				out.Err = faultfs.ErrIO
			}
			return out
		})
		_, err := s.Refetch(t.Context(), ref, k.path("evidence"), []CopySource{silent, k.source, k.source})
		disk.Fail(nil)
		if hit.Load() == 0 {
			break
		}
		if err != nil {
			failures++
		}
		if fault.Is(err, fault.NotFound) {
			t.Errorf("change %d fails: %v", n, err)
		}
		if _, err := s.Refetch(t.Context(), ref, k.path("evidence"), []CopySource{k.source}); err != nil {
			t.Errorf("after the failure of change %d: %v", n, err)
		}
	}
	if failures < 4 {
		t.Errorf("%d failures were told", failures)
	}
	k := full(t, vfs.NewMem())
	change(t, k.cfg.FS, k.file(k.refs[1]), func([]byte) []byte { return []byte("bad") })
	k.cfg.MaxFileSize = 1
	_, err := openStore(t, k.cfg).Refetch(t.Context(), k.refs[1], k.path("evidence"), []CopySource{k.source})
	wantFault(t, err, fault.Invalid, CodeTooLarge)
}

// A file that can not be read is set aside for the bytes of another.
func TestRepairReplacesWhatCanNotBeRead(t *testing.T) {
	disk := faultfs.New(vfs.NewMem())
	k := full(t, disk)
	path := k.file(k.refs[1])
	s := openStore(t, k.cfg)
	var replaced atomic.Bool
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool {
		if p.Op == faultfs.OpRename && p.Path == path {
			replaced.Store(true)
		}
		return p.Op == faultfs.OpRead && p.Path == path && !replaced.Load()
	}, faultfs.ErrIO))
	if adopted, err := s.Refetch(t.Context(), k.refs[1], k.path("evidence"), []CopySource{k.source}); err != nil || adopted {
		t.Errorf("%v, %v", adopted, err)
	}
	disk.Fail(nil)
	if _, err := k.cfg.FS.Stat(k.path("evidence", k.cfg.FS.PathBase(path))); err != nil {
		t.Error(err)
	}
	if got, err := readAll(t, s, k.refs[1].CID, 100); err != nil || string(got) != "small" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRepairRefusesAnOpenStore(t *testing.T) {
	k := full(t, vfs.NewMem())
	openStore(t, k.cfg)
	if _, err := RepairIndex(t.Context(), k.cfg, false); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v", err)
	}
}

// TestRepairSurvivesACrash cuts the power before every change that the repair of
// an index makes, keeping all, half or none of what was not synced, and runs it
// again.
func TestRepairSurvivesACrash(t *testing.T) {
	mem := vfs.NewCrashableMem()
	disk := faultfs.New(mem)
	k := full(t, disk)
	k.each(t, "MANIFEST", func(b []byte) []byte { b[9] ^= 1; return b })
	settled(t, mem, k.cfg.Dir)
	var left []*vfs.MemFS
	step := need.Rounds(7, 1)
	if testing.Short() {
		step = 35
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex // guards left
	disk.Trace(func(p faultfs.Point) {
		mu.Lock()
		defer mu.Unlock()
		if p.N%int64(step) == 0 {
			left = append(left, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng}))
		}
	})
	if report, err := RepairIndex(t.Context(), k.cfg, false); err != nil || !report.Rebuilt {
		t.Fatal(report, err)
	}
	disk.Trace(nil)
	for i, fs := range left {
		k.cfg.FS = fs
		if _, lost := k.mend(t); lost != 0 {
			t.Fatalf("crash %d: %d files are lost", i, lost)
		}
		k.whole(t)
	}
	t.Logf("%d crashes", len(left))
}

// settled makes all of a directory durable.
func settled(t testing.TB, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err == nil && info.IsDir() {
			settled(t, fs, path)
			continue
		}
		f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := pebblex.SyncDir(fs, dir); err != nil {
		t.Fatal(err)
	}
}
