package blob

import (
	"errors"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// unstated is a file system that does not tell of files.
type unstated struct{ vfs.FS }

func (unstated) Stat(string) (vfs.FileInfo, error) { return nil, syscall.EIO }

// A store holds a file if its index and its bytes, in full length, are there,
// under whatever root.
func TestHolds(t *testing.T) {
	data := content(t, "holds", 3*MinChunkSize)
	key := func(sums Sums) []byte {
		c, err := ParseCID(sums.CID)
		if err != nil {
			t.Fatal(err)
		}
		return fileKey(sums.SHA256, c)
	}
	root := func(sums Sums) []byte {
		c, err := ParseCID(sums.CID)
		if err != nil {
			t.Fatal(err)
		}
		return rootKey(c)
	}
	drop := func(s *Store, keys ...[]byte) {
		for _, k := range keys {
			if err := s.db.Delete(k, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	spoil := func(s *Store, k []byte) {
		if err := s.db.Set(k, []byte("no row"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(s *Store, a, b Sums) // a and b are two roots of the file
		want   bool
		kind   fault.Kind // of the error, if there is one
		failed bool
	}{
		"whole":              {func(*Store, Sums, Sums) {}, true, 0, false},
		"one root of two":    {func(s *Store, a, _ Sums) { drop(s, key(a), root(a)) }, true, 0, false},
		"no root":            {func(s *Store, a, b Sums) { drop(s, key(a), root(a), key(b), root(b)) }, false, 0, false},
		"rows without roots": {func(s *Store, a, b Sums) { drop(s, root(a), root(b)) }, false, 0, false},
		"roots without rows": {func(s *Store, a, b Sums) { drop(s, key(a), key(b)) }, false, 0, false},
		"damaged row":        {func(s *Store, a, b Sums) { spoil(s, key(a)); spoil(s, key(b)) }, false, fault.Corrupt, true},
		"damaged root":       {func(s *Store, a, b Sums) { spoil(s, root(a)); spoil(s, root(b)) }, false, fault.Corrupt, true},
		"no bytes":           {func(s *Store, a, _ Sums) { must("remove the bytes", s.cfg.FS.Remove(s.filePath(a.SHA256))) }, false, 0, false},
		"too short": {func(s *Store, a, _ Sums) {
			change(t, s.cfg.FS, s.filePath(a.SHA256), func(b []byte) []byte { return b[1:] })
		}, false, 0, false},
		"others, not read":    {func(s *Store, a, _ Sums) { change(t, s.cfg.FS, s.filePath(a.SHA256), flip(5)) }, true, 0, false},
		"a disk that is mute": {func(s *Store, _, _ Sums) { s.cfg.FS = unstated{s.cfg.FS} }, false, fault.Internal, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			a, _ := store(t, s, "a", data, small)
			b, _ := store(t, s, "b", data, Profile{2 * MinChunkSize, MinLinks})
			other, _ := store(t, s, "c", content(t, "other", 10), small)
			tc.change(s, a, b)
			got, err := s.Holds(t.Context(), a.SHA256)
			if got != tc.want || (err != nil) != tc.failed || err != nil && !fault.Is(err, tc.kind) {
				t.Errorf("%v, %v", got, err)
			}
			if name == "a disk that is mute" {
				if !errors.Is(err, syscall.EIO) {
					t.Errorf("the disk's error is hidden: %v", err)
				}
				return
			}
			if got, err := s.Holds(t.Context(), other.SHA256); !got || err != nil {
				t.Errorf("another file: %v, %v", got, err)
			}
			if got, err := s.Holds(t.Context(), [32]byte{1}); got || err != nil {
				t.Errorf("no file: %v, %v", got, err)
			}
		})
	}
}
