package ledger

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// checker walks a snapshot of the store in the order of the log. Seal and block
// rows are read in the way that lookups read them, filters and all: a damaged
// filter fails a lookup, too.
type checker struct {
	l      *Ledger
	db     pebble.Reader
	edge   *tlogx.Edge // over the leaves seen so far
	blocks int64
	time   time.Time // of the last block

	leaves, hashes *pebble.Iterator
	seals          sealReader
}

func (c *checker) run(ctx context.Context) (err error) {
	var open []*pebble.Iterator
	defer func() {
		for _, it := range open {
			err = errors.Join(err, it.Close())
		}
	}()
	iterate := func(prefix byte) (*pebble.Iterator, error) {
		it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}, UseL6Filters: true})
		if err == nil {
			open = append(open, it)
		}
		return it, err
	}
	blocks, err := iterate(prefixBlock)
	if err != nil {
		return err
	}
	if c.leaves, err = iterate(prefixLeaf); err != nil {
		return err
	}
	if c.hashes, err = iterate(prefixHash); err != nil {
		return err
	}
	c.seals.l = c.l
	if c.seals.it, err = iterate(prefixSeal); err != nil {
		return err
	}
	for ok := blocks.First(); ok; ok = blocks.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		index, err := numberOf(blocks.Key())
		if err != nil {
			return err
		}
		if err := c.block(index); err != nil {
			return err
		}
	}
	if err := blocks.Error(); err != nil {
		return err
	}
	return c.nothingElse(ctx)
}

// block checks one block with all its leaves.
func (c *checker) block(index int64) error {
	b, err := c.l.readBlock(c.db, index)
	if err != nil {
		return err
	}
	switch {
	case b.index != c.blocks:
		return damaged("block %d follows block %d", b.index, c.blocks-1)
	case b.first != c.edge.Size():
		return damaged("block %d starts at leaf %d, the one before ends at %d", b.index, b.first, c.edge.Size())
	case !slices.Equal(b.before.Peaks(), c.edge.Peaks()):
		return damaged("block %d does not stand on the tree before it", b.index)
	case b.time.Before(c.time):
		return damaged("block %d is of %v, earlier than the one before", b.index, b.time)
	}
	for n := b.first; n < b.size(); n++ {
		if err := c.leaf(b, n); err != nil {
			return err
		}
	}
	signed, err := tlogx.OpenCheckpoint(b.checkpoint, c.l.key.verifier)
	if err != nil {
		return damaged("checkpoint of block %d: %w", b.index, err)
	}
	want := tlogx.Checkpoint{Origin: c.l.cfg.Origin, Size: b.size(), Root: c.edge.Root()}
	if signed != want || b.root != want.Root {
		return damaged("block %d: its leaves have the root %s, its row %s, its checkpoint %s at size %d", b.index, want.Root, b.root, signed.Root, signed.Size)
	}
	c.blocks, c.time = c.blocks+1, b.time
	return nil
}

// leaf checks one leaf, its seal row and the tree hashes it completed.
func (c *checker) leaf(b *blockRow, n int64) error {
	data, err := next(c.leaves, numberKey(prefixLeaf, n))
	if err != nil {
		return err
	}
	leaf, err := chain.ParseLeaf(data)
	if err != nil {
		return damaged("leaf %d: %w", n, err)
	}
	if !leaf.Time.Equal(b.time) {
		return damaged("leaf %d is of %v, its block of %v", n, leaf.Time, b.time)
	}
	if err := c.seal(b, n, leaf.Digest); err != nil {
		return err
	}
	c.edge.Append(tlog.RecordHash(data), func(index int64, h tlog.Hash) {
		row, herr := next(c.hashes, numberKey(prefixHash, index))
		if herr == nil && !bytes.Equal(row, h[:]) {
			herr = damaged("tree hash %d is not that of its leaves", index)
		}
		err = errors.Join(err, herr)
	})
	return err
}

// seal checks that the seal row of a leaf's digest names that leaf. Two leaves
// of one digest can not both pass.
func (c *checker) seal(b *blockRow, n int64, digest wire.Digest) error {
	s, ok, err := c.seals.get(digest)
	if err != nil {
		return err
	}
	if !ok {
		return damaged("leaf %d: %s has no seal row", n, digest)
	}
	if s.LeafIndex != n || s.BlockIndex != b.index || s.TreeSize != b.size() || !s.Time.Equal(b.time) {
		return damaged("leaf %d is %s, whose seal row says leaf %d, block %d, size %d, time %v", n, digest, s.LeafIndex, s.BlockIndex, s.TreeSize, s.Time)
	}
	return nil
}

// next moves an iterator that walks all rows of a kind to the next one, which
// must have the given key.
func next(it *pebble.Iterator, key []byte) ([]byte, error) {
	ok := false
	if it.Valid() {
		ok = it.Next()
	} else {
		ok = it.First()
	}
	if err := it.Error(); err != nil {
		return nil, err
	}
	if !ok || !bytes.Equal(it.Key(), key) {
		return nil, damaged("row %x is missing", key)
	}
	return it.ValueAndErr()
}

// nothingElse checks that the store has no rows but those of the log: with as
// many seal rows as leaves, each leaf having one, the two are one to one.
func (c *checker) nothingElse(ctx context.Context) (err error) {
	it, err := c.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	size := c.edge.Size()
	left := map[byte]int64{prefixMeta: 1, prefixLeaf: size, prefixSeal: size, prefixHash: tlog.StoredHashCount(size), prefixBlock: c.blocks}
	lengths := map[byte]int{prefixMeta: 1, prefixLeaf: 9, prefixSeal: 1 + len(wire.Digest{}), prefixHash: 9, prefixBlock: 9}
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := it.Key()
		if len(key) == 0 || len(key) != lengths[key[0]] || left[key[0]] == 0 {
			return damaged("row %x is none of the log's", key)
		}
		left[key[0]]--
	}
	if err := it.Error(); err != nil {
		return err
	}
	for prefix, n := range left {
		if n > 0 {
			return damaged("%d rows %q are missing", n, prefix)
		}
	}
	return checkMeta(c.db, c.l.key)
}
