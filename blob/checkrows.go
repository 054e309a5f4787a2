package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// CheckRows finds rows that no file needs: nodes and leaves of no tree, and
// roots that the row of their file does not know, which are the trace of a loss.
//
// All rows of a file come at once. So every row that is seen first belongs to a
// file that is seen after it, whatever is committed meanwhile.
func (s *Store) CheckRows(ctx context.Context) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		findings, err := s.findUnreferenced(ctx)
		for _, f := range findings {
			if !yield(f, nil) {
				return
			}
		}
		if err != nil {
			yield(Finding{}, fmt.Errorf("blob: check: %w", err))
		}
	}
}

func (s *Store) findUnreferenced(ctx context.Context) (findings []Finding, err error) {
	var there []uint64 // begins of digests; two that share 8 bytes are taken for one
	for _, kind := range []byte{rowLeaf, rowNode} {
		err := s.eachRow(ctx, kind, func(key, _ []byte) error {
			if len(key) == 1+digestLen {
				there = append(there, binary.BigEndian.Uint64(key[1:]))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	needed, whole, err := s.neededBlocks(ctx)
	if err != nil || !whole {
		return nil, err // a tree that can not be followed may need any row
	}
	if findings, err = s.roots(ctx); err != nil {
		return findings, err
	}
	slices.Sort(needed)
	left := slices.DeleteFunc(there, func(d uint64) bool {
		_, found := slices.BinarySearch(needed, d)
		return found
	})
	if len(left) == 0 {
		return findings, nil
	}
	slices.Sort(left)
	for _, kind := range []byte{rowLeaf, rowNode} {
		err := s.eachRow(ctx, kind, func(key, value []byte) error {
			if len(key) != 1+digestLen {
				return nil
			}
			if _, found := slices.BinarySearch(left, binary.BigEndian.Uint64(key[1:])); !found {
				return nil
			}
			f := Finding{Kind: FindingUnreferenced, Path: s.path(dirIndex), What: fmt.Sprintf("block %x belongs to no file", key[1:])}
			if l, err := parseLeaf(key, value); err == nil && kind == rowLeaf {
				f.SHA256 = l.file
			}
			findings = append(findings, f)
			return nil
		})
		if err != nil {
			return findings, err
		}
	}
	return findings, nil
}

// neededBlocks follows the trees of all files. whole is false if one of them
// can not be followed.
func (s *Store) neededBlocks(ctx context.Context) (needed []uint64, whole bool, err error) {
	for i := range 256 {
		roots, findings, err := s.filesOf(ctx, byte(i))
		if err != nil || len(findings) > 0 {
			return nil, false, err
		}
		for _, list := range roots {
			for _, r := range list {
				digests, err := s.blocksBelow(ctx, r)
				if err != nil {
					return nil, false, ctx.Err()
				}
				for _, d := range digests {
					needed = append(needed, binary.BigEndian.Uint64(d[:]))
				}
			}
		}
	}
	return needed, true, nil
}

func (s *Store) blocksBelow(ctx context.Context, r rootInfo) ([][32]byte, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	w := walk{store: s, seen: make(map[CID]bool)}
	err = w.visit(ctx, r.cid, 0)
	return w.digests, err
}

// roots finds the roots that the row of their file does not know.
func (s *Store) roots(ctx context.Context) (findings []Finding, err error) {
	err = s.eachRow(ctx, rowRoot, func(key, value []byte) error {
		r, err := parseRoot(key, value)
		if err == nil {
			var there bool
			if _, there, err = s.get(fileKey(r.file, r.cid)); err != nil || there {
				return err
			}
			err = fmt.Errorf("%w: root %s is kept, the row of its file %x is not", errLost, r.cid, r.file)
		}
		findings = append(findings, Finding{Kind: FindingIndex, SHA256: r.file, Path: s.path(dirIndex), What: s.damaged(r.file, err).Error(), Damage: true})
		return nil
	})
	return findings, err
}

// rowsAtATime is how many rows are looked at under one iterator, which keeps old
// tables of the index from being removed.
const rowsAtATime = 10_000

// eachRow calls f for the rows of a kind. The store may be closed in between.
func (s *Store) eachRow(ctx context.Context, kind byte, f func(key, value []byte) error) error {
	for from := []byte{kind}; from != nil; {
		var err error
		if from, err = s.someRows(ctx, kind, from, f); err != nil {
			return err
		}
	}
	return nil
}

// someRows returns where the next rows begin, or nil.
func (s *Store) someRows(ctx context.Context, kind byte, from []byte, f func(key, value []byte) error) (next []byte, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{kind + 1}})
	if err != nil {
		return nil, indexError(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	n := 0
	for valid := it.First(); valid; valid = it.Next() {
		if n++; n > rowsAtATime {
			return bytes.Clone(it.Key()), ctx.Err()
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return nil, err
		}
	}
	return nil, indexErrorOrNil(it.Error())
}
