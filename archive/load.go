package archive

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
)

// load completes the filter: from the log, if it came from a snapshot, else from
// the index. In any case it reads the whole index, to prove that the log has no
// gap: each record that is not lost has one row under its own id, so the rows of
// that role must be as many as there are numbers up to last, and add up to the
// same. A complete filter must have every key that it meets.
//
// When the index has been read, it makes sure of the files that records name.
//
// If anything is wrong with the index before the filter is complete, it stays
// incomplete and every query is answered from the store: half a filter would deny
// what is there.
func (n *Node) load(ctx context.Context, rows *pebble.Iterator, last uint64) {
	if n.tending.loaded && !n.filter.Ready() {
		n.loadTail(ctx, last)
	}
	began, complete := time.Now(), n.filter.Ready() || n.filter.Denied()
	err := errors.Join(n.loadRows(ctx, rows, last), rows.Close())
	switch {
	case ctx.Err() != nil: // closing
	case err != nil && complete:
		n.cfg.Log.Error("the index is not what the log gives", "err", err)
	case err != nil:
		n.cfg.Log.Error("the filter is not complete: queries are answered from the store", "err", err)
	case complete:
		n.cfg.Log.Info("the index was read", "dur", time.Since(began))
	default:
		n.filter.Complete()
		n.cfg.Log.Info("filter ready", "keys", n.filter.Keys(), "dur", time.Since(began))
	}
	look := n.files || err != nil
	close(n.loaded)
	signal(n.tending.wake)
	if look {
		n.lookForFiles(ctx, last)
	}
}

// loadTail completes a filter that came from a snapshot, if the log can.
func (n *Node) loadTail(ctx context.Context, last uint64) {
	began := time.Now()
	switch err := n.replay(ctx, last); {
	case ctx.Err() != nil: // closing
	case err != nil:
		n.cfg.Log.Warn("the end of the log does not complete the filter; the index does", "err", err)
	default:
		n.filter.Complete()
		n.cfg.Log.Info("filter ready", "keys", n.filter.Keys(), "replayed", n.tending.replayed.Load(), "dur", time.Since(began))
	}
}

func (n *Node) loadRows(ctx context.Context, rows *pebble.Iterator, last uint64) error {
	var records, sum uint64
	keys := hashBatch{use: n.fillOrScrub()}
	for valid := rows.First(); valid; valid = rows.Next() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		digest, seq, ok := indexKeyParts(rows.Key())
		if !ok {
			return n.damaged("index key %x", rows.Key())
		}
		keys.add(n.filter.Hash(digest))
		r, err := decodeRow(rows.Value())
		n.files = n.files || r.roles&roleFile != 0
		switch {
		case err != nil:
			return n.damaged("index row of %x at seq %d: %w", digest, seq, err)
		case seq == 0 || seq > last:
			return n.damaged("seq %d is indexed, the log ends at %d", seq, last)
		case r.roles&roleRecord != 0 && !n.lost.has(seq):
			records++
			sum += seq
		}
	}
	keys.flush()
	if err := rows.Error(); err != nil {
		return n.readError(err)
	}
	log := n.identity.lineage
	wantRecords, wantSum := log.records(last)-uint64(len(n.lost.ids)), log.sum(last)-n.lost.sum()
	if records != wantRecords || sum != wantSum {
		return n.damaged("the log ends at seq %d and should have %d records that are not lost, %d are indexed", last, wantRecords, records)
	}
	return nil
}

// fillOrScrub returns what is done with the keys of the index: they make the
// filter, or it must have them.
func (n *Node) fillOrScrub() func([]bloom.Hash) {
	if n.filter.Ready() || n.filter.Denied() {
		return func(hashes []bloom.Hash) { n.scrubKeys(hashes...) }
	}
	return func(hashes []bloom.Hash) {
		for _, h := range hashes {
			n.filter.AddHash(h)
		}
	}
}

// scrubKeys looks for stored keys in the filter, and returns how many it denied.
// It has them from then on, and sends every query to the store until it is
// rebuilt.
func (n *Node) scrubKeys(hashes ...bloom.Hash) (denied int) {
	if denied = n.filter.Scrub(hashes...); denied == 0 {
		return 0
	}
	if n.tending.alarmed.CompareAndSwap(false, true) {
		n.cfg.Log.Error("the filter denied a key that is stored: memory that fails, or a fault of this program; it has it now, and queries are answered from the store until it is rebuilt; others are counted", "keys", denied)
	}
	signal(n.tending.wake)
	return denied
}
