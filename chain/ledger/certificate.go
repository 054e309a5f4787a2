package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

// Certificate implements chain.Ledger. The proof is computed anew and verified
// against the block's root before it leaves: a damaged hash becomes a Corrupt
// error, not a certificate that fails in somebody's hands years later.
func (l *Ledger) Certificate(_ context.Context, s chain.Seal) (string, error) {
	if err := l.enter(); err != nil {
		return "", err
	}
	defer l.mu.RUnlock()
	b, err := l.blockOf(s)
	if err != nil {
		return "", err
	}
	leaf := chain.Leaf{Digest: s.Digest, Time: s.Time}.Bytes()
	hashes := b.before.Over(l.hashesOf(b))
	path, err := tlog.ProveRecord(s.TreeSize, s.LeafIndex, hashes)
	if err != nil {
		return "", fault.Wrap(kindOf(err), fmt.Errorf("ledger: proof of leaf %d: %w", s.LeafIndex, err))
	}
	if err := tlog.CheckRecord(path, s.TreeSize, b.root, s.LeafIndex, tlog.RecordHash(leaf)); err != nil {
		return "", l.explain(s, err)
	}
	return tlogx.Proof{Extra: leaf, Index: s.LeafIndex, Hashes: path, Checkpoint: b.checkpoint}.Text(), nil
}

// explain tells a seal that is not ours from a log that is damaged.
func (l *Ledger) explain(s chain.Seal, cause error) error {
	ours, ok, err := l.lookup(s.Digest)
	switch {
	case err != nil:
		return err
	case ok && ours.LeafIndex == s.LeafIndex && ours.Time.Equal(s.Time):
		return damaged("leaf %d is not under the checkpoint of block %d: %w", s.LeafIndex, s.BlockIndex, cause)
	}
	return foreign(s)
}

func foreign(s chain.Seal) error {
	return fault.New(fault.NotFound, "NOT_SEALED", "ledger: no seal of %s at leaf %d of block %d", s.Digest, s.LeafIndex, s.BlockIndex)
}

// blockOf returns the durable block that a seal names, if it can hold it.
func (l *Ledger) blockOf(s chain.Seal) (*block, error) {
	if s.BlockIndex < 0 || s.BlockIndex >= l.head.Load().blocks || s.Origin != l.cfg.Origin {
		return nil, foreign(s)
	}
	b := l.recent[s.BlockIndex%recentBlocks].Load()
	if b == nil || b.index != s.BlockIndex {
		row, err := l.readBlock(l.db, s.BlockIndex)
		if err != nil {
			return nil, err
		}
		b = &block{blockRow: *row}
	}
	if s.LeafIndex < b.first || s.LeafIndex >= b.size() || s.TreeSize != b.size() || !s.Time.Equal(b.time) {
		return nil, foreign(s)
	}
	return b, nil
}

// readBlock reads one block row and checks that its checkpoint is about it.
func (l *Ledger) readBlock(db pebble.Reader, index int64) (*blockRow, error) {
	row, closer, err := db.Get(numberKey(prefixBlock, index))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, damaged("block %d is missing", index)
	}
	if err != nil {
		return nil, fault.Wrap(kindOf(err), fmt.Errorf("ledger: block %d: %w", index, err))
	}
	b, err := decodeBlock(index, row)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, fault.Wrap(kindOf(err), fmt.Errorf("ledger: block %d: %w", index, err))
	}
	// The signature is left to Check: to verify it takes longer than all the rest
	// of a lookup, and the crc has shown that the row is the one we wrote.
	text := tlogx.Checkpoint{Origin: l.cfg.Origin, Size: b.size(), Root: b.root}.Text()
	if !bytes.HasPrefix(b.checkpoint, []byte(text+"\n")) {
		return nil, damaged("block %d has the checkpoint of something else", index)
	}
	return b, nil
}

// hashesOf reads tree hashes that a block stored, from memory if they are there.
func (l *Ledger) hashesOf(b *block) tlog.HashReader {
	if b.hashes == nil {
		return hashReader(l.db)
	}
	start := tlog.StoredHashCount(b.first)
	return tlogx.ReadEach(func(index int64) (tlog.Hash, error) {
		if i := index - start; i >= 0 && i < int64(len(b.hashes)) {
			return b.hashes[i], nil
		}
		return tlog.Hash{}, fmt.Errorf("ledger: tree hash %d is not of block %d", index, b.index)
	})
}

// hashReader reads tree hashes from a store. One iterator serves all hashes of a
// proof: they lie close together, and it loads the tables' indexes once.
func hashReader(db pebble.Reader) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixHash}, UpperBound: []byte{prefixHash + 1}})
		if err != nil {
			return nil, fmt.Errorf("ledger: tree hashes: %w", err)
		}
		defer func() { err = errors.Join(err, it.Close()) }()
		out = make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			key := numberKey(prefixHash, index)
			if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
				return nil, errors.Join(fmt.Errorf("%w: tree hash %d is missing", errRow, index), it.Error())
			}
			row, err := it.ValueAndErr()
			if err != nil {
				return nil, fmt.Errorf("ledger: tree hash %d: %w", index, err)
			}
			if len(row) != tlog.HashSize {
				return nil, fmt.Errorf("%w: tree hash %d has %d bytes", errRow, index, len(row))
			}
			out[i] = tlog.Hash(row)
		}
		return out, nil
	})
}

// Consistency proves that the log of size from is a prefix of the log of size to
// (RFC 6962, section 2.1.2). Sizes beyond the durable log are fault.Invalid.
func (l *Ledger) Consistency(_ context.Context, from, to int64) ([]tlog.Hash, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.mu.RUnlock()
	if size := l.head.Load().size; from < 0 || from > to || to > size {
		return nil, fault.New(fault.Invalid, "BAD_SIZE", "ledger: no proof from size %d to %d, the log has %d leaves", from, to, size)
	}
	proof, err := tlogx.Consistency(from, to, hashReader(l.db))
	if err != nil {
		return nil, fault.Wrap(kindOf(err), fmt.Errorf("ledger: consistency: %w", err))
	}
	return proof, nil
}
