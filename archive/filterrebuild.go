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
	rebuildSample = 1024 // rows of the index that a new base must not deny
)

// rebuild makes the base of the filter anew, of the right size for so many keys,
// and stores it. fill puts everything that is stored into it. A base that denies
// what is stored is never used; it is counted, which is an alarm, and made once
// more.
func (f *filter) rebuild(ctx context.Context, capacity uint64, fill func(context.Context, *bloom.Rebuild) error) error {
	began := time.Now()
	err := f.rebuildOnce(ctx, capacity, fill)
	if fault.CodeOf(err) == "REBUILD_DENIES" {
		f.log().Error("a new base of the filter denies what is stored, and is thrown away; it is made once more", "err", err)
		err = f.rebuildOnce(ctx, capacity, fill)
	}
	if err != nil {
		return err
	}
	f.rebuildTook.Store(int64(time.Since(began)))
	f.log().Info("the filter was rebuilt", "keys", f.set.Keys(), "bytes", f.set.Bytes(), "dur", time.Since(began))
	f.alarmed.Store(false)
	f.discardDenying() // what was saved before; it would take the new one for that
	f.want.Store(true)
	return f.save()
}

func (f *filter) rebuildOnce(ctx context.Context, capacity uint64, fill func(context.Context, *bloom.Rebuild) error) error {
	var r *bloom.Rebuild
	var refused error
	err := f.n.between(ctx, func() { r, refused = f.set.StartRebuild(capacity) })
	if err == nil { // else the committer may be writing to refused
		err = refused
	}
	if err != nil {
		return err
	}
	if err = fill(ctx, r); err == nil {
		var sample []bloom.Hash
		if sample, err = f.some(rebuildSample); err == nil {
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

// fill puts everything that the index has into a new base.
func (f *filter) fill(ctx context.Context, r *bloom.Rebuild) error {
	n, hashing, buf := f.n, f.hashing(), []bloom.Hash(nil)
	rows, err := n.iterate(prefixBounds(prefixIndex))
	if err != nil {
		return err
	}
	batch := hashBatch{use: func(hashes []bloom.Hash) { r.AddHash(hashes...) }}
	for valid := rows.First(); valid && ctx.Err() == nil; valid = rows.Next() {
		digest, seq, ok := indexKeyParts(rows.Key())
		if !ok {
			return errors.Join(n.damaged("index key %x", rows.Key()), rows.Close())
		}
		if buf, err = hashing.row(buf[:0], digest, seq, rows.Value()); err != nil {
			return errors.Join(n.rowTrouble(err), rows.Close())
		}
		batch.add(buf...)
	}
	batch.flush()
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

// some returns what the filter must have of up to so many rows of the index, spread
// over all of it.
func (f *filter) some(most uint64) (hashes []bloom.Hash, err error) {
	n, hashing := f.n, f.hashing()
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
		if digest, seq, ok := indexKeyParts(it.Key()); ok {
			if hashes, err = hashing.row(hashes, digest, seq, it.Value()); err != nil {
				return nil, n.rowTrouble(err)
			}
		}
	}
	if err := it.Error(); err != nil {
		return nil, n.readError(fmt.Errorf("keys of the index: %w", err))
	}
	return hashes, nil
}
