package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// change rewrites a file in a file system.
func change(t testing.TB, fs vfs.FS, path string, edit func([]byte) []byte) {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	w, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(edit(b))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b }
}

// wantCorrupt checks that a file is refused as damaged by every way in, and that
// it is remembered.
func wantCorrupt(t *testing.T, s *Store, sums Sums, off int64) {
	t.Helper()
	_, _, err := s.Read(t.Context(), sums.CID, off, 1)
	wantFault(t, err, fault.Corrupt, CodeCorrupt)
	if r, err := s.NewReader(t.Context(), sums.CID); err != nil {
		wantFault(t, err, fault.Corrupt, CodeCorrupt)
	} else {
		got, err := io.ReadAll(r)
		wantFault(t, err, fault.Corrupt, CodeCorrupt)
		if int64(len(got)) > off {
			t.Errorf("the reader gave %d bytes, damaged from %d", len(got), off)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if d := s.Damages(); len(d) != 1 || d[0].SHA256 != sums.SHA256 || d[0].What == "" || d[0].At.IsZero() {
		t.Errorf("remembered: %+v", d)
	}
	if ok, err := s.Has(t.Context(), sums.SHA256, sums.CID); ok || err != nil {
		t.Errorf("Has of a damaged file = %v, %v", ok, err)
	}
}

// TestNoFlippedBitIsServed flips every byte of a stored file in turn.
func TestNoFlippedBitIsServed(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "flip", 300)
	sums, _ := store(t, s, "u", data, small)
	s = reopen(t, s) // nothing verified is in memory
	path := s.filePath(sums.SHA256)
	for at := range data {
		change(t, s.cfg.FS, path, flip(at))
		wantCorrupt(t, s, sums, 0)
		change(t, s.cfg.FS, path, flip(at))
		s.healed(sums.SHA256)
	}
	if got, err := readAll(t, s, sums.CID, 100); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the restored file: %v", err)
	}
}

// TestDamageStopsAtTheLeaf: what is whole before a damaged leaf is served, the
// leaf is not, and neither is anything as missing.
func TestDamageStopsAtTheLeaf(t *testing.T) {
	for name, edit := range map[string]func([]byte) []byte{
		"flipped": flip(2*MinChunkSize + 77),
		"cut":     func(b []byte) []byte { return b[:2*MinChunkSize+77] },
		"zeroed":  func(b []byte) []byte { clear(b[2*MinChunkSize+4096:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			data := content(t, "leaf", 3*MinChunkSize)
			sums, _ := store(t, s, "u", data, small)
			change(t, s.cfg.FS, s.filePath(sums.SHA256), edit)
			got, _, err := s.Read(t.Context(), sums.CID, 0, 2*MinChunkSize)
			if err != nil || !bytes.Equal(got, data[:2*MinChunkSize]) {
				t.Errorf("whole leaves before the damage: %v", err)
			}
			_, _, err = s.Read(t.Context(), sums.CID, MinChunkSize, MinChunkSize+1)
			wantFault(t, err, fault.Corrupt, CodeCorrupt)
			wantCorrupt(t, s, sums, 2*MinChunkSize)
			checkFinds(t, s, sums, true)
		})
	}
}

// checkFinds checks that Check reports exactly one file.
func checkFinds(t *testing.T, s *Store, sums Sums, damage bool) {
	t.Helper()
	n := 0
	for f, err := range s.Check(t.Context()) {
		if err != nil || f.SHA256 != sums.SHA256 || f.Damage != damage || f.What == "" {
			t.Errorf("finding %+v, %v", f, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d findings", n)
	}
}

// TestLostFileIsDamage: bytes that are gone are not "not found".
func TestLostFileIsDamage(t *testing.T) {
	s := openStore(t, testConfig(t))
	sums, _ := store(t, s, "u", content(t, "lost", 2*MinChunkSize), small)
	if err := s.cfg.FS.Remove(s.filePath(sums.SHA256)); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, s, sums, 0)
	_, err := s.Blocks(t.Context(), sums.SHA256, sums.CID)
	wantFault(t, err, fault.Corrupt, CodeCorrupt)
	checkFinds(t, s, sums, true)
}

// TestFreshUploadHeals: the right bytes take the place of damaged ones.
func TestFreshUploadHeals(t *testing.T) {
	for name, harm := range map[string]func(s *Store, path string){
		"flipped": func(s *Store, path string) { change(t, s.cfg.FS, path, flip(MinChunkSize+5)) },
		"cut":     func(s *Store, path string) { change(t, s.cfg.FS, path, func(b []byte) []byte { return b[:10] }) },
		"lost": func(s *Store, path string) {
			if err := s.cfg.FS.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			data := content(t, "heal", 3*MinChunkSize)
			sums, _ := store(t, s, "u", data, small)
			harm(s, s.filePath(sums.SHA256))
			if _, err := readAll(t, s, sums.CID, 1<<20); !fault.Is(err, fault.Corrupt) {
				t.Fatalf("before: %v", err)
			}
			if _, dup := store(t, s, "again", data, small); !dup {
				t.Error("the root was known, but the upload is no duplicate")
			}
			if got, err := readAll(t, s, sums.CID, 1<<20); err != nil || !bytes.Equal(got, data) {
				t.Errorf("after: %v", err)
			}
			if d := s.Damages(); len(d) != 0 {
				t.Errorf("still damaged: %+v", d)
			}
			wantClean(t, s)
		})
	}
}

// TestOrphanIsAdopted: a file without rows, as a crash leaves it, is reported as
// no damage, and an upload in any state of its bytes makes it good.
func TestOrphanIsAdopted(t *testing.T) {
	data := content(t, "orphan", MinChunkSize+1)
	sums := sumsOf(t, data, small)
	for name, orphan := range map[string][]byte{
		"whole": data, "flipped": flip(3)(bytes.Clone(data)), "cut": data[:100], "empty": nil, "longer": append(bytes.Clone(data), 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			w, err := s.cfg.FS.Create(s.filePath(sums.SHA256), vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Write(bytes.Clone(orphan))
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			checkFinds(t, s, sums, false)
			if _, dup := store(t, s, "u", data, small); dup {
				t.Error("a file without rows made the upload a duplicate")
			}
			if got, err := readAll(t, s, sums.CID, 1<<20); err != nil || !bytes.Equal(got, data) {
				t.Error(err)
			}
			wantClean(t, s)
		})
	}
}

// TestLostRowsAreDamage removes rows of the tree behind the store's back.
func TestLostRowsAreDamage(t *testing.T) {
	data := content(t, "rows", 3*MinChunkSize)
	sums := sumsOf(t, data, small)
	root, err := ParseCID(sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	wrong := seal(nodeKey(root.Digest), []byte("not this node"))
	for _, tt := range []struct {
		name  string
		harm  func(db *pebble.DB) error
		heals bool // by another upload; what is there and wrong is never overwritten
	}{
		{"lost node", func(db *pebble.DB) error { return db.Delete(nodeKey(root.Digest), pebble.Sync) }, true},
		{"wrong node", func(db *pebble.DB) error { return db.Set(wrong.key, wrong.value, pebble.Sync) }, false},
		{"unsealed node", func(db *pebble.DB) error { return db.Set(wrong.key, []byte("x"), pebble.Sync) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			store(t, s, "u", data, small)
			if err := tt.harm(s.db); err != nil {
				t.Fatal(err)
			}
			wantCorrupt(t, s, sums, 0)
			_, err := s.Blocks(t.Context(), sums.SHA256, sums.CID)
			wantFault(t, err, fault.Corrupt, CodeCorrupt)
			checkFinds(t, s, sums, true)
			if tt.heals {
				store(t, s, "again", data, small)
				wantClean(t, s)
				return
			}
			send(t, s, "again", data, small)
			_, err = s.Commit(t.Context(), "again", sums.Size, sums.SHA256, sums.CID)
			wantFault(t, err, fault.Corrupt, CodeCorrupt)
		})
	}
	t.Run("lost leaf", func(t *testing.T) {
		s := openStore(t, testConfig(t))
		store(t, s, "u", data, small)
		if err := s.db.Delete(leafKey(sumsOf(t, data[:MinChunkSize], small).SHA256), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		checkFinds(t, s, sums, true)
	})
	t.Run("damaged root", func(t *testing.T) {
		s := openStore(t, testConfig(t))
		store(t, s, "u", data, small)
		if err := s.db.Set(rootKey(root), []byte("xxxxxxxx"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Read(t.Context(), sums.CID, 0, 1)
		wantFault(t, err, fault.Corrupt, CodeCorrupt)
		if len(s.Damages()) != 1 {
			t.Errorf("remembered: %+v", s.Damages())
		}
		send(t, s, "again", data, small)
		_, err = s.Commit(t.Context(), "again", sums.Size, sums.SHA256, sums.CID)
		wantFault(t, err, fault.Corrupt, CodeCorrupt)
		checkFinds(t, s, sums, true)
	})
}

// TestNoFlippedBitOfTheIndexIsServed flips bytes of every file of a closed
// index. The store then does not open, or answers that something is damaged, or
// gives the right bytes; a file that was acknowledged is never "not found".
func TestNoFlippedBitOfTheIndexIsServed(t *testing.T) {
	cfg := testConfig(t)
	disk := vfs.NewCrashableMem()
	cfg.FS = disk
	s := openStore(t, cfg)
	data := content(t, "index", 3*MinChunkSize)
	sums, _ := store(t, s, "u", data, small)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := disk.List(s.path(dirIndex))
	if err != nil {
		t.Fatal(err)
	}
	step := 1
	if testing.Short() {
		step = 61
	}
	outcomes := map[string]int{}
	for _, name := range names {
		path := s.path(dirIndex, name)
		info, err := disk.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stride := step
		if strings.HasPrefix(name, "OPTIONS") { // text about the store, not of it
			stride = max(step, 17)
		}
		for at := 0; at < int(info.Size()); at += stride {
			fs := disk.CrashClone(vfs.CrashCloneCfg{})
			change(t, fs, path, flip(at))
			outcome := readFlipped(t, fs, sums, data)
			if outcome == "wrong" || outcome == "not found" {
				t.Errorf("byte %d of %s: %s", at, name, outcome)
			}
			outcomes[strings.TrimRight(name, "0123456789.-")+" "+outcome]++
		}
	}
	t.Log(outcomes)
}

// readFlipped opens a store and reads its one file.
func readFlipped(t *testing.T, fs vfs.FS, sums Sums, data []byte) string {
	t.Helper()
	s, err := OpenStore(StoreConfig{Dir: "blobs", FS: fs, OnFatal: func(string) { panic("fatal") }})
	if err != nil {
		return "refused"
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	}()
	got, err := readAll(t, s, sums.CID, 1<<20)
	switch {
	case err == nil && bytes.Equal(got, data):
		return "right"
	case err == nil:
		return "wrong"
	case fault.Is(err, fault.Corrupt):
		return "corrupt"
	case fault.Is(err, fault.NotFound):
		return "not found"
	}
	return "failed"
}

// brokenFS fails to read.
type brokenFS struct {
	vfs.FS
	err error
}

func (b *brokenFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := b.FS.Open(name, opts...)
	if err != nil || b.err == nil {
		return f, err
	}
	return brokenFile{f, b.err}, nil
}

type brokenFile struct {
	vfs.File
	err error
}

func (b brokenFile) ReadAt([]byte, int64) (int, error) { return 0, b.err }
func (b brokenFile) Read([]byte) (int, error)          { return 0, b.err }

// TestFailedReadIsOurFault: a disk that does not answer proves neither that a
// file is missing nor that it is damaged.
func TestFailedReadIsOurFault(t *testing.T) {
	cfg := testConfig(t)
	fs := &brokenFS{FS: cfg.FS}
	cfg.FS = fs
	s := openStore(t, cfg)
	data := content(t, "broken", 100)
	sums, _ := store(t, s, "u", data, small)
	for _, cause := range []error{errors.New("input/output error"), os.ErrPermission} {
		fs.err = cause
		_, _, err := s.Read(t.Context(), sums.CID, 0, 10)
		if !errors.Is(err, cause) || !fault.Is(err, fault.Internal) {
			t.Errorf("%v became %v", cause, err)
		}
		r, err := s.NewReader(t.Context(), sums.CID)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.WriteTo(io.Discard); n != 0 || !errors.Is(err, cause) || !fault.Is(err, fault.Internal) {
			t.Errorf("%v became %v after %d bytes", cause, err, n)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	fs.err = nil
	if d := s.Damages(); len(d) != 0 {
		t.Errorf("damages %+v", d)
	}
	if got, err := readAll(t, s, sums.CID, 10); err != nil || !bytes.Equal(got, data) {
		t.Error(err)
	}
}

// TestVerifiedLeavesAreKeptInBounds reads a leaf in quarters: it is hashed once,
// and the memory for it is bounded.
func TestVerifiedLeavesAreKeptInBounds(t *testing.T) {
	cfg := testConfig(t)
	cfg.CacheBytes = 2*MinChunkSize + 10
	s := openStore(t, cfg)
	data := content(t, "cache", 8*MinChunkSize)
	sums, _ := store(t, s, "u", data, small)
	for off := 0; off < len(data); off += MinChunkSize / 4 {
		got, _, err := s.Read(t.Context(), sums.CID, int64(off), MinChunkSize/4)
		if err != nil || !bytes.Equal(got, data[off:off+MinChunkSize/4]) {
			t.Fatalf("at %d: %v", off, err)
		}
		got[0] ^= 0xff // the caller owns it: the kept leaf must not change
	}
	if got := s.Stats(); got.LeavesVerified != 8 || got.LeavesCached != 24 {
		t.Errorf("%d leaves hashed, %d from memory; want 8 and 24", got.LeavesVerified, got.LeavesCached)
	}
	if s.leaves.sum > cfg.CacheBytes || len(s.leaves.items) != 2 || s.leaves.order.Len() != 2 {
		t.Errorf("%d bytes in %d leaves are kept", s.leaves.sum, len(s.leaves.items))
	}
}
