package archive

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// TestSkeletonIsThatOfTheLog: an entry a record, equal to what the log holds.
func TestSkeletonIsThatOfTheLog(t *testing.T) {
	fs, records := marked(t, 9)
	c := testConfig(fs, "archive-a")
	r, err := openSkeleton(c)
	must1(t, err)
	defer func() { must1(t, r.file.Close()) }()
	if r.entries != uint64(len(records)) {
		t.Fatalf("%d entries", r.entries)
	}
	n := mustOpen(t, c)
	defer mustClose(t, n)
	for i, rec := range records {
		f := mustDecode(t, get(t, n.db, logKey(uint64(i+1))))
		want := bone{uint64(i + 1), f.StoredAt, rec.ID(), putKey(f.PutID)}
		if e, err := r.entry(uint64(i)); err != nil || e != want {
			t.Errorf("entry %d is %+v, %v, want %+v", i, e, err, want)
		}
	}
}

// TestSkeletonIsBuiltAnew deletes, cuts and damages a skeleton whose log agrees
// with the mark: nothing is lost, and it is what it was.
func TestSkeletonIsBuiltAnew(t *testing.T) {
	const count = 7
	fs, _ := marked(t, count)
	path := testConfig(fs, "archive-a").skeletonPath()
	good := read(t, fs, path)
	for name, change := range map[string]func(fs *vfs.MemFS){
		"deleted":              func(fs *vfs.MemFS) { must1(t, fs.Remove(path)) },
		"empty":                func(fs *vfs.MemFS) { write(t, fs, path, nil) },
		"cut in the header":    func(fs *vfs.MemFS) { write(t, fs, path, good[:7]) },
		"cut after the header": func(fs *vfs.MemFS) { write(t, fs, path, good[:skeletonHeader]) },
		"cut in an entry":      func(fs *vfs.MemFS) { write(t, fs, path, good[:len(good)-1]) },
		"an entry short":       func(fs *vfs.MemFS) { write(t, fs, path, good[:len(good)-boneLen]) },
		"another magic":        func(fs *vfs.MemFS) { write(t, fs, path, append([]byte("X"), good[1:]...)) },
		"another version":      func(fs *vfs.MemFS) { write(t, fs, path, append([]byte("VRLV\x02"), good[5:]...)) },
		"last entry damaged":   func(fs *vfs.MemFS) { write(t, fs, path, append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1)) },
		"last entry of another log": func(fs *vfs.MemFS) {
			write(t, fs, path, bone{seq: count, storedAt: 7, id: wire.RecordID{9}}.append(bytes.Clone(good[:len(good)-boneLen])))
		},
		"zeros": func(fs *vfs.MemFS) { write(t, fs, path, make([]byte, len(good))) },
	} {
		t.Run(name, func(t *testing.T) {
			fs := copyOf(t, fs)
			change(fs)
			n := mustOpen(t, testConfig(fs, "archive-a"))
			mustClose(t, n)
			if got := read(t, fs, path); !bytes.Equal(got, good) {
				t.Errorf("%d bytes, want %d as they were", len(got), len(good))
			}
			n = mustOpen(t, testConfig(fs, "archive-a"))
			mustPut(t, n, metadata(alice, digest("next"), `{}`))
			mustClose(t, n)
			if got := read(t, fs, path); len(got) != len(good)+boneLen || !bytes.Equal(got[:len(good)], good) {
				t.Errorf("after another record: %d bytes", len(got))
			}
		})
	}
	t.Run("rest of a torn write", func(t *testing.T) {
		fs := copyOf(t, fs)
		write(t, fs, path, append(bytes.Clone(good), make([]byte, 3*boneLen)...))
		n := mustOpen(t, testConfig(fs, "archive-a"))
		mustPut(t, n, metadata(alice, digest("next"), `{}`))
		mustClose(t, n)
		if n = mustOpen(t, testConfig(fs, "archive-a")); n.Seq() != count+1 {
			t.Errorf("seq %d", n.Seq())
		}
		mustClose(t, n)
	})
}

// TestSkeletonAheadOfTheMarkTellsOfLoss: an entry is written when its record is
// durable, so one without a record is a loss that the mark does not know yet.
func TestSkeletonAheadOfTheMarkTellsOfLoss(t *testing.T) {
	fs, _ := marked(t, 5)
	path := testConfig(fs, "archive-a").skeletonPath()
	good := read(t, fs, path)
	ids := []wire.RecordID{{1}, {2}, {3}}
	ahead := bytes.Clone(good)
	for i, id := range ids {
		ahead = bone{seq: uint64(6 + i), storedAt: 1 << 62, id: id}.append(ahead)
	}
	torn := bytes.Clone(ahead)
	torn[len(good)+20] ^= 1 // the first of them was never whole on disk
	for name, data := range map[string][]byte{"whole": ahead, "with a torn entry": torn} {
		fs := copyOf(t, fs)
		write(t, fs, path, data)
		_, err := Open(testConfig(fs, "archive-a"))
		if fault.CodeOf(err) != "LOST_RECORDS" || !strings.Contains(fmt.Sprint(err), ids[2].String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
