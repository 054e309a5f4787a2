package bloom

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
)

var identity = [16]byte{7}

// storeOf is a store of records that are numbered from 1; record i has key(i).
func storeOf(last uint64) Store { return Store{Identity: identity, Last: last} }

func mark(seq uint64) Mark { return Mark{Identity: identity, Seq: seq} }

// saved is a set of the keys up to seq, saved as of there.
func saved(t testing.TB, fs FS, seq uint64) *Set {
	t.Helper()
	s := New(fleet)
	for k := range numbered(1, seq+1) {
		s.Add(k)
	}
	s.Complete()
	if err := s.Save(fs, snapshots, mark(seq)); err != nil {
		t.Fatal(err)
	}
	return s
}

// replayed completes a set that was loaded, as an owner does.
func replayed(s *Set, r Report, last uint64) *Set {
	for k := range numbered(r.Seq+1, last+1) {
		s.Add(k)
	}
	s.Complete()
	return s
}

func load(t testing.TB, fs FS, store Store) (*Set, Report) {
	t.Helper()
	s, r, err := Load(fs, snapshots, fleet, store)
	if err != nil {
		t.Fatal(err)
	}
	if s.Ready() {
		t.Error("a set that was loaded is complete before the rest was added")
	}
	return s, r
}

// knows fails if a key of the records up to last is denied.
func knows(t testing.TB, s *Set, last uint64) {
	t.Helper()
	for i := range last {
		if s.Test(key(i+1)) != Maybe {
			t.Fatalf("record %d of %d is denied", i+1, last)
		}
	}
}

// TestLoadTable is BL-02: whatever is in the directory, what Load returns and the
// replay from there deny nothing; and what was not used is gone.
func TestLoadTable(t *testing.T) {
	heads := func(store Store) Store {
		store.HeadAt = func(seq uint64) ([32]byte, error) { return [32]byte{byte(seq), 1}, nil }
		return store
	}
	other := fleet
	other.Secret.ID++
	tight := fleet
	tight.MaxBytes = 2000
	const last = 1000
	for _, tc := range []struct {
		name   string
		put    func(t *testing.T, fs disk)
		params Params
		store  Store
		seq    uint64
		file   string
		codes  []string
		left   []string
	}{
		{name: "nothing", put: func(*testing.T, disk) {}},
		{name: "one snapshot", put: func(t *testing.T, fs disk) { saved(t, fs, 900) }, seq: 900, file: fileCurrent, left: []string{fileCurrent}},
		{
			name: "two snapshots and a rest", put: func(t *testing.T, fs disk) {
				saved(t, fs, 500)
				saved(t, fs, 900)
				writeFile(t, fs.FS, fileTemp, []byte("half"))
			}, seq: 900, file: fileCurrent, left: []string{fileCurrent, filePrevious},
		},
		{
			name: "the newer one is cut", put: func(t *testing.T, fs disk) {
				saved(t, fs, 500)
				saved(t, fs, 900)
				b := readFile(t, fs.FS, fileCurrent)
				writeFile(t, fs.FS, fileCurrent, b[:len(b)-1])
			}, seq: 500, file: filePrevious, codes: []string{"SNAPSHOT_CORRUPT"}, left: []string{filePrevious},
		},
		{
			name: "the newer one is empty, the older garbage", put: func(t *testing.T, fs disk) {
				writeFile(t, fs.FS, fileCurrent, nil)
				writeFile(t, fs.FS, filePrevious, slices.Repeat([]byte("garbage "), 100))
			}, codes: []string{"SNAPSHOT_CORRUPT", "SNAPSHOT_CORRUPT"},
		},
		{
			name: "a damaged older one beside a good one", put: func(t *testing.T, fs disk) {
				saved(t, fs, 900)
				writeFile(t, fs.FS, filePrevious, []byte("garbage"))
			}, seq: 900, file: fileCurrent, left: []string{fileCurrent},
		},
		{name: "of another store", put: func(t *testing.T, fs disk) { saved(t, fs, 900) }, store: Store{Identity: [16]byte{8}, Last: last}, codes: []string{"SNAPSHOT_FOREIGN"}},
		{name: "under another secret", put: func(t *testing.T, fs disk) { saved(t, fs, 900) }, params: other, codes: []string{"SNAPSHOT_SECRET"}},
		{name: "more than the memory", put: func(t *testing.T, fs disk) { saved(t, fs, 900) }, params: tight, codes: []string{"SNAPSHOT_MEMORY"}},
		{
			name: "of the same history", put: func(t *testing.T, fs disk) {
				if err := saved(t, fs, 900).Save(fs, snapshots, Mark{identity, 900, [32]byte{900 & 0xff, 1}}); err != nil {
					t.Fatal(err)
				}
			}, store: heads(storeOf(last)), seq: 900, file: fileCurrent, left: []string{fileCurrent},
		},
		{name: "of another history", put: func(t *testing.T, fs disk) { saved(t, fs, 900) }, store: heads(storeOf(last)), codes: []string{"SNAPSHOT_HISTORY"}},
		{
			name: "history that can not be read", put: func(t *testing.T, fs disk) { saved(t, fs, 900) },
			store: Store{Identity: identity, Last: last, HeadAt: func(uint64) ([32]byte, error) { return [32]byte{}, errors.New("bad disk") }},
			codes: []string{"SNAPSHOT_HISTORY"},
		},
		{name: "older than the store by all", put: func(t *testing.T, fs disk) { saved(t, fs, 0) }, file: fileCurrent, left: []string{fileCurrent}},
		{name: "newer than the store", put: func(t *testing.T, fs disk) { saved(t, fs, 1200) }, seq: last, file: fileCurrent, left: []string{fileCurrent}},
		{
			name: "both newer than the store", put: func(t *testing.T, fs disk) {
				saved(t, fs, 1100)
				saved(t, fs, 1200)
			}, seq: last, file: fileCurrent, left: []string{fileCurrent},
		},
		{
			name: "the damaged one's elder newer than the store", put: func(t *testing.T, fs disk) {
				saved(t, fs, 1100)
				saved(t, fs, 1200)
				writeFile(t, fs.FS, fileCurrent, nil)
			}, seq: last, file: filePrevious, codes: []string{"SNAPSHOT_CORRUPT"}, left: []string{fileCurrent},
		},
		{
			name: "only the elder newer than the store", put: func(t *testing.T, fs disk) {
				saved(t, fs, 1100)
				saved(t, fs, 900)
			}, seq: 900, file: fileCurrent, left: []string{fileCurrent},
		},
		{name: "newer than a store with heads", put: func(t *testing.T, fs disk) { saved(t, fs, 1200) }, store: heads(storeOf(last)), codes: []string{"SNAPSHOT_AHEAD"}},
		{
			name: "newer than a store with heads, with an elder", put: func(t *testing.T, fs disk) {
				saved(t, fs, 0)
				saved(t, fs, 1200)
			}, store: heads(storeOf(last)), file: filePrevious, codes: []string{"SNAPSHOT_AHEAD"}, left: []string{filePrevious},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mem, fs := memory(t)
			tc.put(t, fs)
			if tc.store.Last == 0 {
				tc.store = storeOf(last)
			}
			if tc.params.Capacity == 0 {
				tc.params = fleet
			}
			s, r, err := Load(fs, snapshots, tc.params, tc.store)
			if err != nil {
				t.Fatal(err)
			}
			if r.Seq != tc.seq || r.File != tc.file || r.CorruptChunks != 0 {
				t.Errorf("%+v, want seq %d of %q", r, tc.seq, tc.file)
			}
			var codes []string
			for _, e := range r.Rejected {
				codes = append(codes, fault.CodeOf(e))
			}
			if !slices.Equal(codes, tc.codes) {
				t.Errorf("rejected: %v, want %v", r.Rejected, tc.codes)
			}
			// What is left is left after a power cut too.
			crashed := mem.CrashClone(vfs.CrashCloneCfg{})
			for _, on := range []vfs.FS{mem, crashed} {
				left := files(t, on)
				for _, name := range tc.left {
					if !left[name] {
						t.Errorf("%s is gone", name)
					}
					delete(left, name)
				}
				if len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
			knows(t, replayed(s, r, last), last)
		})
	}
}

// The clamp is on disk when Load returns. Otherwise the snapshot would be
// believed again when other records have taken the numbers that it claims.
func TestClampIsOnDiskBeforeAnyWrite(t *testing.T) {
	mem, fs := memory(t)
	saved(t, fs, 1000)
	_, r := load(t, fs, storeOf(990)) // ten records were lost
	if r.Clamped != 1000 || r.Seq != 990 {
		t.Errorf("%+v", r)
	}
	// A crash at once, or when the store has grown past the old number.
	again := disk{mem.CrashClone(vfs.CrashCloneCfg{})}
	s, r := load(t, again, storeOf(1100))
	if r.Seq != 990 || r.Clamped != 0 {
		t.Errorf("after the clamp: %+v", r)
	}
	knows(t, replayed(s, r, 1100), 1100)
}

// A snapshot of which nobody knows some bits is still one after the clamp.
func TestClampRemembersDamage(t *testing.T) {
	mem, fs := memory(t)
	saved(t, fs, 1000)
	b := readFile(t, mem, fileCurrent)
	b[len(b)-9] ^= 1
	writeFile(t, mem, fileCurrent, b)
	for _, want := range []Report{
		{Seq: 990, File: fileCurrent, Clamped: 1000, CorruptChunks: 1},
		{Seq: 990, File: fileCurrent},
	} {
		s, r := load(t, fs, storeOf(990))
		if r.Seq != want.Seq || r.File != want.File || r.Clamped != want.Clamped || r.CorruptChunks != want.CorruptChunks || !s.Stats().Damaged {
			t.Errorf("%+v, damaged %v, want %+v", r, s.Stats().Damaged, want)
		}
	}
}

// On a disk without any room the snapshot that claims too much is removed, which
// needs none. If that fails too, Load says so, and the set is good all the same.
func TestClampThatCanNotBeWritten(t *testing.T) {
	for _, removes := range []bool{true, false} {
		mem, fs := memory(t)
		saved(t, fs, 900)
		saved(t, fs, 1000)
		full := faultfs.New(mem)
		full.Fail(faultfs.Where(func(p faultfs.Point) bool {
			return p.Op == faultfs.OpWrite || p.Op == faultfs.OpRemove && !removes
		}, faultfs.ErrFull))
		s, r, err := Load(disk{full}, snapshots, fleet, storeOf(990))
		if r.Seq != 990 || r.Clamped != 1000 {
			t.Errorf("%+v", r)
		}
		knows(t, replayed(s, r, 990), 990)
		if removes {
			if err != nil || len(files(t, mem)) != 0 {
				t.Errorf("left behind: %v, %v", files(t, mem), err)
			}
			continue
		}
		if fault.CodeOf(err) != "SNAPSHOT_STAYS" || fault.KindOf(err) != fault.Transient {
			t.Errorf("%v, want SNAPSHOT_STAYS", err)
		}
		full.Fail(nil)
		if err := Discard(disk{full}, snapshots); err != nil || len(files(t, mem)) != 0 {
			t.Errorf("left behind: %v, %v", files(t, mem), err)
		}
	}
}

// Removing is not done before it is durable: a Load that could not sync the
// directory fails, and so does the next one that finds nothing there.
func TestRemovalIsDurableOrAnError(t *testing.T) {
	mem, fs := memory(t)
	saved(t, fs, 1000)
	bad := faultfs.New(mem)
	bad.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpSyncDir }, faultfs.ErrIO))
	foreign := Store{Identity: [16]byte{9}, Last: 1000}
	for range 2 {
		if _, _, err := Load(disk{bad}, snapshots, fleet, foreign); fault.CodeOf(err) != "SNAPSHOT_STAYS" {
			t.Errorf("%v, want SNAPSHOT_STAYS", err)
		}
	}
	bad.Fail(nil)
	if _, _, err := Load(disk{bad}, snapshots, fleet, foreign); err != nil {
		t.Fatal(err)
	}
	if left := files(t, mem.CrashClone(vfs.CrashCloneCfg{})); len(left) != 0 {
		t.Errorf("after a power cut: %v", left)
	}
}

// A directory that is not there is one without snapshots.
func TestLoadWithoutADirectory(t *testing.T) {
	s, r, err := Load(disk{vfs.NewMem()}, "nowhere", fleet, storeOf(10))
	if err != nil || s == nil || r.Seq != 0 || len(r.Rejected) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Each write point of Save fails, carried out or not, and each read of Load: there
// is the new snapshot or the one before, and nothing is denied.
func TestSaveOnADiskThatFails(t *testing.T) {
	mem, fs := memory(t)
	s := saved(t, fs, 300)
	for k := range numbered(301, 1001) {
		s.Add(k)
	}
	failed := 0
	for _, done := range []bool{false, true} {
		for n := int64(0); ; n++ {
			clone := mem.CrashClone(vfs.CrashCloneCfg{})
			bad := faultfs.New(clone)
			bad.Fail(faultfs.Nth(n, faultfs.ErrFull, done))
			err := s.Save(disk{bad}, snapshots, mark(1000))
			if err == nil && bad.Ops() <= n {
				break // it has no such point
			}
			if err != nil {
				failed++
			}
			if files(t, clone)[fileTemp] {
				t.Errorf("change %d fails (done %v): a file was left behind", n, done)
			}
			for _, on := range []*vfs.MemFS{clone, clone.CrashClone(vfs.CrashCloneCfg{})} {
				got, r := load(t, disk{on}, storeOf(1000))
				if r.Seq != 300 && r.Seq != 1000 || err == nil && r.Seq != 1000 || len(r.Rejected) > 0 {
					t.Errorf("change %d fails (done %v): %+v, Save: %v", n, done, r, err)
				}
				knows(t, replayed(got, r, 1000), 1000)
				if err := got.Save(disk{on}, snapshots, mark(1000)); err != nil {
					t.Errorf("change %d failed (done %v), and then: %v", n, done, err)
				}
				if _, r := load(t, disk{on}, storeOf(1000)); r.Seq != 1000 {
					t.Errorf("change %d failed (done %v), and the next Save: %+v", n, done, r)
				}
			}
		}
	}
	if failed < 10 {
		t.Errorf("%d failures", failed)
	}
}

func TestLoadFromADiskThatFails(t *testing.T) {
	mem, fs := memory(t)
	p := fleet
	p.Capacity = 80_000 // chunks: three
	s := New(p)
	for k := range numbered(1, 5001) {
		s.Add(k)
	}
	s.Complete()
	if err := s.Save(fs, snapshots, mark(5000)); err != nil {
		t.Fatal(err)
	}
	for n := range 6 {
		clone := mem.CrashClone(vfs.CrashCloneCfg{})
		bad, reads := faultfs.New(clone), 0
		bad.Fail(func(p faultfs.Point) faultfs.Outcome {
			if p.Op == faultfs.OpRead {
				if reads++; reads == n+1 {
					return faultfs.Outcome{Err: faultfs.ErrIO}
				}
			}
			return faultfs.Outcome{}
		})
		got, r, err := Load(disk{bad}, snapshots, p, storeOf(5000))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case n < 2: // of the header
			if r.File != "" || len(r.Rejected) != 1 || len(files(t, clone)) != 0 {
				t.Errorf("read %d fails: %+v, left %v", n, r, files(t, clone))
			}
		case reads > n:
			if r.Seq != 5000 || r.CorruptChunks != 1 || !got.Stats().Damaged {
				t.Errorf("read %d fails: %+v", n, r)
			}
		}
		knows(t, replayed(got, r, 5000), 5000)
	}
}

// A chunk that rots on disk is served around at once, and mended by a rebuild.
func TestCorruptChunkIsRebuiltBehind(t *testing.T) {
	mem, fs := memory(t)
	saved(t, fs, 1000)
	b := readFile(t, mem, fileCurrent)
	b[len(b)/2] ^= 4
	writeFile(t, mem, fileCurrent, b)
	s, r := load(t, fs, storeOf(1000))
	if r.CorruptChunks != 1 || r.Seq != 1000 || r.File != fileCurrent {
		t.Errorf("%+v", r)
	}
	if fill := s.Stats().BaseFill; fill != 1 {
		t.Errorf("the only chunk is all ones, and the fill %v", fill)
	}
	replayed(s, r, 1000)
	knows(t, s, 1000)
	rebuildIfNeeded(t, s, 1000)
	knows(t, s, 1000)
	if stats := s.Stats(); stats.Damaged || stats.Rebuilds != 1 || s.Test(key(5000)) != Absent {
		t.Errorf("after the rebuild: %+v", stats)
	}
	if err := s.Save(fs, snapshots, mark(1000)); err != nil {
		t.Fatal(err)
	}
	if s, r = load(t, fs, storeOf(1000)); r.CorruptChunks != 0 || s.Stats().Damaged {
		t.Errorf("loaded again: %+v", r)
	}
}

// A set goes on growing after a load as if it had never been away.
func TestLoadedSetGrowsOn(t *testing.T) {
	for _, rebuilds := range []bool{false, true} {
		p := fleet
		p.Rebuilds = rebuilds
		mem, fs := memory(t)
		n := uint64(0)
		for range 6 {
			s, r, err := Load(fs, snapshots, p, storeOf(n))
			if err != nil {
				t.Fatal(err)
			}
			replayed(s, r, n)
			at := n
			for k := range numbered(n+1, n+1501) {
				s.Add(k)
				n++
				if rebuilds && n%50 == 0 {
					rebuildIfNeeded(t, s, n)
				}
				if n%700 == 0 {
					at = n
				}
			}
			knows(t, s, n)
			if at > 0 {
				if err := s.Save(fs, snapshots, mark(at)); err != nil {
					t.Fatal(err)
				}
			}
			if stats := s.Stats(); stats.EstimatedErrorRate > DefaultErrorRate || stats.Degraded {
				t.Errorf("rebuilds %v, %d keys: %+v", rebuilds, n, stats)
			}
			fs = disk{mem.CrashClone(vfs.CrashCloneCfg{})}
			mem = fs.FS.(*vfs.MemFS)
		}
	}
}

func TestErrorsOfLoadNameTheFile(t *testing.T) {
	_, fs := memory(t)
	writeFile(t, fs.FS, fileCurrent, []byte("garbage"))
	_, r := load(t, fs, storeOf(1))
	if got, want := fmt.Sprint(r.Rejected), "[filter/snapshot: bloom: snapshot: it has 7 bytes, which is too short for a header; the filter is built from the store]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
