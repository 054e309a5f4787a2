package archive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

const (
	rebuildChunk  = 64   // keys that are added together
	rebuildSample = 1024 // stored keys that a new base must not deny
)

// rebuildFilter makes the base of the filter anew, of the right size for so many
// keys, and stores it. fill puts every stored key into it. A base that denies
// what is stored is never used; it is counted, which is an alarm, and made once
// more.
func (n *Node) rebuildFilter(ctx context.Context, capacity uint64, fill func(context.Context, *bloom.Rebuild) error) error {
	began := time.Now()
	err := n.rebuildOnce(ctx, capacity, fill)
	if fault.CodeOf(err) == "REBUILD_DENIES" {
		n.cfg.Log.Error("a new base of the filter denies what is stored, and is thrown away; it is made once more", "err", err)
		err = n.rebuildOnce(ctx, capacity, fill)
	}
	if err != nil {
		return err
	}
	n.tending.rebuildTook.Store(int64(time.Since(began)))
	n.cfg.Log.Info("the filter was rebuilt", "keys", n.filter.Keys(), "bytes", n.filter.Bytes(), "dur", time.Since(began))
	n.tending.alarmed.Store(false)
	n.discardDenying() // what was saved before; it would take the new one for that
	n.tending.want.Store(true)
	return n.saveFilter()
}

func (n *Node) rebuildOnce(ctx context.Context, capacity uint64, fill func(context.Context, *bloom.Rebuild) error) error {
	var r *bloom.Rebuild
	var refused error
	err := n.between(ctx, func() { r, refused = n.filter.StartRebuild(capacity) })
	if err == nil { // else the committer may be writing to refused
		err = refused
	}
	if err != nil {
		return err
	}
	if err = fill(ctx, r); err == nil {
		var sample []bloom.Hash
		if sample, err = n.someKeys(rebuildSample); err == nil {
			return r.Swap(slices.Values(sample))
		}
	}
	r.Cancel()
	return err
}

// between runs f on the committer's goroutine between two batches: every key that
// was added to the filter is then in the store, or never will be. After an error f
// is not run, or its outcome is not for anybody to use.
func (n *Node) between(ctx context.Context, f func()) error {
	p := &pending{reply: make(chan outcome, 1), between: func() error {
		if err := errors.Join(ctx.Err(), n.health.failure()); err != nil {
			return err
		}
		f()
		return nil
	}}
	switch err := n.committer.Submit(ctx, p); {
	case errors.Is(err, pebblex.ErrClosed):
		return fault.New(fault.Transient, "CLOSED", "archive: closed")
	case err != nil:
		return err
	}
	return n.await(ctx, p).err
}

// orders runs what a batch has for between, and returns the others.
func orders(items []*pending) []*pending {
	if !slices.ContainsFunc(items, func(p *pending) bool { return p.between != nil }) {
		return items
	}
	puts := make([]*pending, 0, len(items))
	for _, p := range items {
		if p.between == nil {
			puts = append(puts, p)
			continue
		}
		p.reply <- outcome{err: p.between()}
	}
	return puts
}

// fillFilter puts every key of the index into a new base.
func (n *Node) fillFilter(ctx context.Context, r *bloom.Rebuild) error {
	rows, err := n.iterate(prefixBounds(prefixIndex))
	if err != nil {
		return err
	}
	keys := hashBatch{use: func(hashes []bloom.Hash) { r.AddHash(hashes...) }}
	for valid := rows.First(); valid && ctx.Err() == nil; valid = rows.Next() {
		digest, _, ok := indexKeyParts(rows.Key())
		if !ok {
			return errors.Join(n.damaged("index key %x", rows.Key()), rows.Close())
		}
		keys.add(n.filter.Hash(digest))
	}
	keys.flush()
	return errors.Join(ctx.Err(), n.readError(rows.Error()), rows.Close())
}

// hashBatch collects hashes, and leaves out what comes twice in a row, as in an
// index that is sorted.
type hashBatch struct {
	use    func([]bloom.Hash)
	hashes []bloom.Hash
}

func (b *hashBatch) add(hashes ...bloom.Hash) {
	for _, h := range hashes {
		if len(b.hashes) > 0 && b.hashes[len(b.hashes)-1] == h {
			continue
		}
		if b.hashes = append(b.hashes, h); len(b.hashes) == rebuildChunk {
			b.flush()
		}
	}
}

func (b *hashBatch) flush() {
	b.use(b.hashes)
	b.hashes = b.hashes[:0]
}

// someKeys returns up to so many keys of the index, spread over all of it.
func (n *Node) someKeys(most uint64) (keys []bloom.Hash, err error) {
	lower, upper := prefixBounds(prefixIndex)
	it, err := n.iterate(lower, upper)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for i := range most {
		key := binary.BigEndian.AppendUint64(lower[:1:1], i*(1<<63/most*2))
		if !it.SeekGE(key) {
			break
		}
		if digest, _, ok := indexKeyParts(it.Key()); ok {
			keys = append(keys, n.filter.Hash(digest))
		}
	}
	if err := it.Error(); err != nil {
		return nil, n.readError(fmt.Errorf("keys of the index: %w", err))
	}
	return keys, nil
}
