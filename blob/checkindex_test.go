package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCheckFindsWhatTheIndexHolds plants rows that are too many or too few.
func TestCheckFindsWhatTheIndexHolds(t *testing.T) {
	set := func(t *testing.T, s *Store, r row) {
		if err := s.db.Set(r.key, r.value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		plant  func(t *testing.T, s *Store, sums Sums)
		kind   string
		damage bool
	}{
		"leaf of no file": {func(t *testing.T, s *Store, sums Sums) {
			set(t, s, leafRef{file: sums.SHA256, offset: 7, length: 9}.row([32]byte{1}))
		}, FindingUnreferenced, false},
		"node of no file": {func(t *testing.T, s *Store, _ Sums) {
			set(t, s, seal(nodeKey([32]byte{1}), []byte("node")))
		}, FindingUnreferenced, false},
		"file row gone, root left": {func(t *testing.T, s *Store, sums Sums) {
			c, err := ParseCID(sums.CID)
			if err == nil {
				err = s.db.Delete(fileKey(sums.SHA256, c), pebble.Sync)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, FindingIndex, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			store(t, s, "other", content(t, "other", 3*MinChunkSize), small)
			sums, _ := store(t, s, "u", content(t, "rows", 3*MinChunkSize), small)
			wantClean(t, s)
			tc.plant(t, s, sums)
			var kinds []string
			for f, err := range s.Check(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if f.Kind == tc.kind && (f.Damage != tc.damage || f.What == "") {
					t.Errorf("%+v", f)
				}
				kinds = append(kinds, f.Kind)
			}
			if !slices.Contains(kinds, tc.kind) {
				t.Errorf("found %v", kinds)
			}
		})
	}
}

// TestCheckOfTheIndexReadsItsFiles flips bytes of a table that the index keeps
// in its cache.
func TestCheckOfTheIndexReadsItsFiles(t *testing.T) {
	s := openStore(t, testConfig(t))
	store(t, s, "u", content(t, "table", 30*MinChunkSize), small)
	s = reopen(t, s) // the index is flushed when it closes
	wantClean(t, s)  // and now in memory
	names, err := s.IndexTables()
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	asked := 0
	read := func(_ context.Context, n int) error { asked += n; return nil }
	for _, name := range names {
		f, size, err := s.CheckIndexTable(t.Context(), name, read)
		if f != nil || err != nil || size == 0 || asked == 0 {
			t.Errorf("whole: %+v, %d bytes, %v", f, size, err)
		}
	}
	if found, err := s.CheckIndexLogs(t.Context(), nil); len(found) > 0 || err != nil {
		t.Errorf("whole: %+v, %v", found, err)
	}
	change(t, s.cfg.FS, s.path(dirIndex, names[0]), flip(100))
	f, _, err := s.CheckIndexTable(t.Context(), names[0], nil)
	if err != nil || f == nil || f.Kind != FindingIndex || !f.Damage {
		t.Errorf("flipped: %+v, %v", f, err)
	}
	if d := s.Damages(); len(d) != 1 {
		t.Errorf("remembered: %+v", d)
	}
	change(t, s.cfg.FS, s.path(dirIndex, names[0]), flip(100))
}

// TestCheckGoesOnWhereItStopped: the files behind the cursor, each once, in
// order, and at the rate of the hook.
func TestCheckGoesOnWhereItStopped(t *testing.T) {
	s := openStore(t, testConfig(t))
	var all [][32]byte
	bytesOf := map[[32]byte]int64{}
	for i := range 20 {
		sums, _ := store(t, s, "u", content(t, fmt.Sprint(i), 100*i), small)
		all = append(all, sums.SHA256)
		bytesOf[sums.SHA256] = sums.Size
	}
	slices.SortFunc(all, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, paced := range []bool{false, true} {
		for from := range len(all) {
			var o CheckOptions
			if from > 0 {
				o.After = all[from-1]
			}
			asked := 0
			if paced {
				o.Read = func(_ context.Context, n int) error { asked += n; return nil }
			}
			var done [][32]byte
			o.Done = func(sha256 [32]byte, size int64) {
				done = append(done, sha256)
				if size != bytesOf[sha256] {
					t.Errorf("%x has %d bytes", sha256, size)
				}
			}
			for f, err := range s.CheckFiles(t.Context(), o) {
				t.Errorf("%+v, %v", f, err)
			}
			if !slices.Equal(done, all[from:]) || paced && asked == 0 {
				t.Errorf("after %d: %d files, asked for %d bytes", from, len(done), asked)
			}
		}
	}
	enough := errors.New("enough")
	stop := func(context.Context, int) error { return enough }
	for f, err := range s.CheckFiles(t.Context(), CheckOptions{Read: stop}) {
		if !errors.Is(err, enough) || f != (Finding{}) {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

// TestCheckReadsTheDisk is about the real file system, where what is checked
// must not come from memory.
func TestCheckReadsTheDisk(t *testing.T) {
	c := testConfig(t)
	c.FS, c.Dir = vfs.Default, t.TempDir()+"/blobs"
	s := openStore(t, c)
	sums, _ := store(t, s, "u", content(t, "disk", 10*MinChunkSize), small)
	wantClean(t, s)
	change(t, s.cfg.FS, s.filePath(sums.SHA256), flip(9*MinChunkSize))
	checkFinds(t, s, sums, true)
}
