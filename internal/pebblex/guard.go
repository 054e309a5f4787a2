package pebblex

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/cockroachdb/pebble/v2"
)

// ErrNotAppend is returned for a batch that would do more than add new keys.
var ErrNotAppend = errors.New("pebblex: the batch is not append-only")

// AppendOnly returns nil if all that batch does is to set keys that are not in
// db, none of them twice; else an error that is ErrNotAppend, or a failed read.
// It is the last check before every commit of a store that promises never to
// change what it holds: Pebble itself lets a Set replace and a Delete remove
// anything without an error.
//
// The answer holds only as long as no other writer commits in between.
func AppendOnly(db pebble.Reader, batch *pebble.Batch) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return fmt.Errorf("pebblex: guard: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return AppendOnlyFunc(batch, func(key []byte) (bool, error) { return Has(it, key) })
}

// AppendOnlyFunc is [AppendOnly] for a caller who can tell in a cheaper way than
// by reading whether a key exists.
func AppendOnlyFunc(batch *pebble.Batch, exists func(key []byte) (bool, error)) error {
	// Keys are remembered by a hash: to keep thousands of them costs more than the
	// rest of the check. Two keys of one hash, which hardly ever meet, are compared.
	seen, seed := make(map[uint64]struct{}, batch.Count()), maphash.MakeSeed()
	for r := batch.Reader(); ; {
		kind, key, _, ok, err := r.Next()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrNotAppend, err)
		case !ok:
			return nil
		case kind != pebble.InternalKeyKindSet:
			return fmt.Errorf("%w: %s of key %x", ErrNotAppend, kind, key)
		}
		hash := maphash.Bytes(seed, key)
		if _, met := seen[hash]; met && count(batch, key) > 1 {
			return fmt.Errorf("%w: key %x is set twice", ErrNotAppend, key)
		}
		seen[hash] = struct{}{}
		there, err := exists(key)
		if err != nil {
			return fmt.Errorf("pebblex: guard: %w", err)
		}
		if there {
			return fmt.Errorf("%w: key %x exists", ErrNotAppend, key)
		}
	}
}

// count returns how often key is in batch.
func count(batch *pebble.Batch, key []byte) int {
	n := 0
	for r := batch.Reader(); ; {
		_, k, _, ok, err := r.Next()
		if !ok || err != nil {
			return n
		}
		if bytes.Equal(k, key) {
			n++
		}
	}
}

// Has reports whether key is among what it iterates over. Open it with
// UseL6Filters: a plain Get of a key that is not there reads a block of the last
// level, where nearly all data of an append-only store ends up; this reads a
// filter.
func Has(it *pebble.Iterator, key []byte) (bool, error) {
	if !it.SeekPrefixGE(key) {
		return false, it.Error()
	}
	return bytes.Equal(it.Key(), key), nil
}
