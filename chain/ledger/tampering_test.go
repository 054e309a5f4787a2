package ledger

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/tlogx"
)

// tampering changes a store behind the back of the ledger, with right checksums.
type tampering struct {
	name   string
	change func(l *Ledger, b *pebble.Batch) error
}

func set(key, row []byte) func(*Ledger, *pebble.Batch) error {
	return func(_ *Ledger, b *pebble.Batch) error { return b.Set(key, row, nil) }
}

func remove(key []byte) func(*Ledger, *pebble.Batch) error {
	return func(_ *Ledger, b *pebble.Batch) error { return b.Delete(key, nil) }
}

// reseal rewrites the seal row of a document.
func reseal(h held, document int, change func(*chain.Seal)) func(*Ledger, *pebble.Batch) error {
	s := h[document].seal
	change(&s)
	return set(sealKey(s.Digest), encodeSeal(s))
}

// reblock rewrites a block row.
func reblock(index int64, change func(*Ledger, *blockRow) error) func(*Ledger, *pebble.Batch) error {
	return func(l *Ledger, batch *pebble.Batch) error {
		b, err := l.readBlock(l.db, index)
		if err != nil {
			return err
		}
		if err := change(l, b); err != nil {
			return err
		}
		return batch.Set(numberKey(prefixBlock, index), b.encode(), nil)
	}
}

// resign gives a block a checkpoint that says what its row says.
func resign(l *Ledger, b *blockRow) (err error) {
	b.checkpoint, err = tlogx.Checkpoint{Origin: l.cfg.Origin, Size: b.size(), Root: b.root}.Sign(l.key.signer)
	return err
}

func tamperings(h held) []tampering {
	leaf := func(n int) []byte {
		return chain.Leaf{Digest: h[n].seal.Digest, Time: h[n].seal.Time}.Bytes()
	}
	stranger := chaintest.Digest(99)
	return []tampering{
		{"leaf lost", remove(numberKey(prefixLeaf, 2))},
		{"first leaf lost", remove(numberKey(prefixLeaf, 0))},
		{"last leaf lost", remove(numberKey(prefixLeaf, 5))},
		{"all leaves lost", func(_ *Ledger, b *pebble.Batch) (err error) {
			for n := range int64(6) {
				err = errors.Join(err, b.Delete(numberKey(prefixLeaf, n), nil))
			}
			return err
		}},
		{"leaf not a leaf", set(numberKey(prefixLeaf, 2), []byte("x"))},
		{"leaf of another digest", set(numberKey(prefixLeaf, 2), chain.Leaf{Digest: stranger, Time: h[2].seal.Time}.Bytes())},
		{"leaf of another time", set(numberKey(prefixLeaf, 2), chain.Leaf{Digest: h[2].seal.Digest, Time: h[2].seal.Time.Add(1)}.Bytes())},
		{"two leaves of one digest", set(numberKey(prefixLeaf, 3), leaf(2))},
		{"a leaf too many", set(numberKey(prefixLeaf, 6), leaf(5))},
		{"tree hash lost", remove(numberKey(prefixHash, 4))},
		{"last tree hash lost", remove(numberKey(prefixHash, tlog.StoredHashCount(6)-1))},
		{"tree hash changed", set(numberKey(prefixHash, 4), make([]byte, 32))},
		{"tree hash cut", set(numberKey(prefixHash, 4), make([]byte, 31))},
		{"a tree hash too many", set(numberKey(prefixHash, tlog.StoredHashCount(6)), make([]byte, 32))},
		{"seal row lost", remove(sealKey(h[3].seal.Digest))},
		{"seal row of no leaf", set(sealKey(stranger), encodeSeal(chain.Seal{Digest: stranger, TreeSize: 1, Time: h[0].seal.Time}))},
		{"seal row cut", set(sealKey(h[3].seal.Digest), []byte{1, 2, 3})},
		{"seal row of another leaf", reseal(h, 3, func(s *chain.Seal) { s.LeafIndex = 2 })},
		{"seal row of another block", reseal(h, 3, func(s *chain.Seal) { s.BlockIndex = 0 })},
		{"seal row of a block to come", reseal(h, 3, func(s *chain.Seal) { s.BlockIndex = 3 })},
		{"seal row of another size", reseal(h, 3, func(s *chain.Seal) { s.TreeSize++ })},
		{"seal row of another time", reseal(h, 3, func(s *chain.Seal) { s.Time = s.Time.Add(-1) })},
		{"block lost", remove(numberKey(prefixBlock, 1))},
		{"first block lost", remove(numberKey(prefixBlock, 0))},
		{"last block lost", remove(numberKey(prefixBlock, 2))},
		{"block of another time", reblock(1, func(_ *Ledger, b *blockRow) error { b.time = b.time.Add(time.Second); return nil })},
		{"block and its seal rows of another time", func(l *Ledger, batch *pebble.Batch) error {
			err := reblock(1, func(_ *Ledger, b *blockRow) error { b.time = b.time.Add(1); return nil })(l, batch)
			for n := 1; n <= 4; n++ {
				err = errors.Join(err, reseal(h, n, func(s *chain.Seal) { s.Time = s.Time.Add(1) })(l, batch))
			}
			return err
		}},
		{"block with another root", reblock(1, func(_ *Ledger, b *blockRow) error { b.root[0] ^= 1; return nil })},
		{"block with another root, signed", reblock(1, func(l *Ledger, b *blockRow) error { b.root[0] ^= 1; return resign(l, b) })},
		{"last block with another root, signed", reblock(2, func(l *Ledger, b *blockRow) error { b.root[0] ^= 1; return resign(l, b) })},
		{"block without its last leaf, signed", reblock(1, func(l *Ledger, b *blockRow) error { b.count--; return resign(l, b) })},
		{"block that overlaps", reblock(2, func(l *Ledger, b *blockRow) error {
			edge, err := tlogx.LoadEdge(4, hashReader(l.db))
			b.first, b.count, b.before = 4, 2, edge
			return errors.Join(err, resign(l, b))
		})},
		{"block on another tree", reblock(1, func(_ *Ledger, b *blockRow) (err error) {
			b.before, err = tlogx.EdgeOf(b.first, []tlog.Hash{{1}})
			return err
		})},
		{"checkpoint of another block", reblock(1, func(l *Ledger, b *blockRow) error {
			other, err := l.readBlock(l.db, 0)
			b.checkpoint = other.checkpoint
			return err
		})},
		{"checkpoint of another key", reblock(1, func(l *Ledger, b *blockRow) error {
			key, err := generateKey(l.cfg.Origin)
			if err != nil {
				return err
			}
			b.checkpoint, err = tlogx.Checkpoint{Origin: l.cfg.Origin, Size: b.size(), Root: b.root}.Sign(key.signer)
			return err
		})},
		{"meta row lost", remove(metaKey())},
		{"meta row of another key", set(metaKey(), meta{vkey: "x+1+y"}.encode())},
		{"unknown row", set([]byte("z"), nil)},
		{"unknown row of a known letter", set([]byte{prefixSeal, 1}, nil)},
	}
}
