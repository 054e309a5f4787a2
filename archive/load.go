package archive

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// keysPerRecord is how many digests a record is expected to be indexed under,
// with some room; it sizes the filter that is built at open.
const keysPerRecord = 3

// load puts every indexed digest into the filter and declares it complete. On
// the way it proves that the log has no gap: each record that is not lost has one
// row under its own id, so the rows of that role must be as many as there are
// numbers up to last, and add up to the same.
//
// When the filter is ready, it makes sure of the files that records name.
//
// If anything is wrong the filter stays incomplete and every query is answered
// from the store: half a filter would deny what is there.
func (n *Node) load(ctx context.Context, rows *pebble.Iterator, last uint64) {
	began := time.Now()
	err := errors.Join(n.loadRows(ctx, rows, last), rows.Close())
	switch {
	case ctx.Err() != nil: // closing
	case err != nil:
		n.cfg.Log.Error("the filter is not complete: queries are answered from the store", "err", err)
	default:
		n.filter.Complete()
		n.cfg.Log.Info("filter ready", "keys", n.filter.Keys(), "dur", time.Since(began))
	}
	look := n.files || err != nil
	close(n.loaded)
	if look {
		n.lookForFiles(ctx, last)
	}
}

func (n *Node) loadRows(ctx context.Context, rows *pebble.Iterator, last uint64) error {
	var records, sum uint64
	for valid := rows.First(); valid; valid = rows.Next() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		digest, seq, ok := indexKeyParts(rows.Key())
		if !ok {
			return n.damaged("index key %x", rows.Key())
		}
		n.filter.Add(digest)
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
