package pebblex

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestGuardRefusesAllButNewKeys(t *testing.T) {
	db := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem(), Create: true})
	defer mustClose(t, db)
	// One key in the last level, one in memory.
	if err := db.Set([]byte("old"), []byte("1"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context(), []byte("a"), []byte("z"), false); err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("recent"), []byte("1"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	k, l, v := []byte("k"), []byte("l"), []byte("v")
	for _, tc := range []struct {
		name string
		fill func(*pebble.Batch) error
		ok   bool
	}{
		{"nothing", func(*pebble.Batch) error { return nil }, true},
		{"a new key", func(b *pebble.Batch) error { return b.Set(k, v, nil) }, true},
		{"two new keys", func(b *pebble.Batch) error { return errors.Join(b.Set(k, v, nil), b.Set(l, v, nil)) }, true},
		{"a prefix of a key", func(b *pebble.Batch) error { return b.Set([]byte("ol"), v, nil) }, true},
		{"a longer key", func(b *pebble.Batch) error { return b.Set([]byte("old2"), v, nil) }, true},
		{"a key twice", func(b *pebble.Batch) error { return errors.Join(b.Set(k, v, nil), b.Set(k, v, nil)) }, false},
		{"an existing key", func(b *pebble.Batch) error { return b.Set([]byte("old"), []byte("1"), nil) }, false},
		{"a recent key", func(b *pebble.Batch) error { return b.Set([]byte("recent"), []byte("1"), nil) }, false},
		{"a new and an existing key", func(b *pebble.Batch) error {
			return errors.Join(b.Set(k, v, nil), b.Set([]byte("old"), v, nil))
		}, false},
		{"delete", func(b *pebble.Batch) error { return b.Delete(k, nil) }, false},
		{"sized delete", func(b *pebble.Batch) error { return b.DeleteSized(k, 1, nil) }, false},
		{"single delete", func(b *pebble.Batch) error { return b.SingleDelete(k, nil) }, false},
		{"range delete", func(b *pebble.Batch) error { return b.DeleteRange(k, l, nil) }, false},
		{"merge", func(b *pebble.Batch) error { return b.Merge(k, v, nil) }, false},
		{"range key set", func(b *pebble.Batch) error { return b.RangeKeySet(k, l, nil, v, nil) }, false},
		{"range key unset", func(b *pebble.Batch) error { return b.RangeKeyUnset(k, l, nil, nil) }, false},
		{"range key delete", func(b *pebble.Batch) error { return b.RangeKeyDelete(k, l, nil) }, false},
		{"log data", func(b *pebble.Batch) error { return b.LogData(v, nil) }, false},
		{"a new key, then a delete", func(b *pebble.Batch) error {
			return errors.Join(b.Set(k, v, nil), b.Delete([]byte("old"), nil))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := db.NewBatch()
			defer b.Close()
			if err := tc.fill(b); err != nil {
				t.Fatal(err)
			}
			err := AppendOnly(db, b)
			if tc.ok && err != nil {
				t.Errorf("refused: %v", err)
			}
			if !tc.ok && !errors.Is(err, ErrNotAppend) {
				t.Errorf("got %v, want ErrNotAppend", err)
			}
		})
	}
}

func TestGuardPassesOnAFailedRead(t *testing.T) {
	db := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem(), Create: true})
	defer mustClose(t, db)
	b := db.NewBatch()
	defer b.Close()
	if err := b.Set([]byte("k"), nil, nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken disk")
	err := AppendOnlyFunc(b, func([]byte) (bool, error) { return false, broken })
	if !errors.Is(err, broken) || errors.Is(err, ErrNotAppend) {
		t.Errorf("got %v, want the read's own error", err)
	}
}
