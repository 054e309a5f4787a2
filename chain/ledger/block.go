package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// recentBlocks is how many of the newest blocks stay in memory with their tree
// hashes: whoever registers asks for the certificate next. It bounds them to
// recentBlocks * maxBlock * 64 bytes, 8 MiB.
const recentBlocks = 64

// block is a block with what its certificates are made of.
type block struct {
	blockRow
	hashes []tlog.Hash // the tree hashes it stored, if they are in memory
}

// seal commits a block of the given entries and adds their seals to known. After
// an error it is unknown whether the block is on disk.
func (l *Ledger) seal(fresh []chain.Entry, known map[wire.Digest]chain.Seal) (err error) {
	last := l.head.Load()
	now := time.Unix(0, max(l.cfg.Now().UnixNano(), last.time.UnixNano())).UTC()
	batch := l.db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
	edge := l.edge.Clone()
	b := &block{blockRow: blockRow{index: last.blocks, first: edge.Size(), count: len(fresh), time: now, before: l.edge}}
	seals := make([]chain.Seal, len(fresh))
	for i, e := range fresh {
		s := chain.Seal{
			Digest: e.Digest, LeafIndex: b.first + int64(i), BlockIndex: b.index, TreeSize: b.size(), Time: now,
			JobID: e.JobID, SubmissionID: e.SubmissionID, FileID: e.FileID, Origin: l.cfg.Origin,
		}
		if err := b.appendLeaf(batch, edge, s); err != nil {
			return err
		}
		seals[i] = s
	}
	b.root = edge.Root()
	if b.checkpoint, err = (tlogx.Checkpoint{Origin: l.cfg.Origin, Size: b.size(), Root: b.root}).Sign(l.key.signer); err != nil {
		return err
	}
	if err := batch.Set(numberKey(prefixBlock, b.index), b.encode(), nil); err != nil {
		return fmt.Errorf("block %d: %w", b.index, err)
	}
	if err := l.write(b, batch, known); err != nil {
		return fmt.Errorf("block %d: %w", b.index, err)
	}
	l.edge = edge
	for _, s := range seals {
		known[s.Digest] = s
	}
	l.publish(b)
	return nil
}

// appendLeaf adds to batch all rows of one seal but the block's own.
func (b *block) appendLeaf(batch *pebble.Batch, edge *tlogx.Edge, s chain.Seal) error {
	leaf := chain.Leaf{Digest: s.Digest, Time: s.Time}.Bytes()
	err := errors.Join(
		batch.Set(numberKey(prefixLeaf, s.LeafIndex), leaf, nil),
		batch.Set(sealKey(s.Digest), encodeSeal(s), nil),
	)
	edge.Append(tlog.RecordHash(leaf), func(index int64, h tlog.Hash) {
		b.hashes = append(b.hashes, h)
		err = errors.Join(err, batch.Set(numberKey(prefixHash, index), h[:], nil))
	})
	if err != nil {
		return fmt.Errorf("leaf %d: %w", s.LeafIndex, err)
	}
	return nil
}

// write is the one door to the store.
//
// Whether a key exists is known without reading: numbers below those of block b
// are taken and, as Open has checked, none above; and of the digests in b, which
// were all looked up just now, only those in known have a row. Reading every key
// again would take more time than the rest of a commit.
func (l *Ledger) write(b *block, batch *pebble.Batch, known map[wire.Digest]chain.Seal) error {
	taken := map[byte]int64{prefixLeaf: b.first, prefixHash: tlog.StoredHashCount(b.first), prefixBlock: b.index}
	err := pebblex.AppendOnlyFunc(batch, func(key []byte) (bool, error) {
		if digest, ok := digestOf(key); ok {
			_, sealed := known[digest]
			return sealed, nil
		}
		n, err := numberOf(key)
		end, ours := taken[key[0]]
		return !ours || n < end, err
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := l.apply(batch); err != nil {
		return err
	}
	l.metrics.commit.Observe(time.Since(began).Seconds())
	return nil
}

// publish shows a block that is durable.
func (l *Ledger) publish(b *block) {
	l.recent[b.index%recentBlocks].Store(b)
	l.head.Store(&head{blocks: b.index + 1, size: b.size(), time: b.time, root: b.root, checkpoint: b.checkpoint})
	l.guard.offer(b.checkpoint)
	l.metrics.blocks.Inc()
	l.metrics.seals.Add(float64(b.count))
	l.metrics.size.Set(float64(b.size()))
}
