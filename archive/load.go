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
// the way it proves that the log has no gap: each record has one row under its
// own id, so the rows of that role must count 1 to last.
//
// If anything is wrong the filter stays incomplete and every query is answered
// from the store: half a filter would deny what is there.
func (n *Node) load(ctx context.Context, rows *pebble.Iterator, last uint64) {
	defer close(n.loaded)
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
		switch {
		case err != nil:
			return n.damaged("index row of %x at seq %d: %w", digest, seq, err)
		case seq == 0 || seq > last:
			return n.damaged("seq %d is indexed, the log ends at %d", seq, last)
		case r.roles&roleRecord != 0:
			records++
			sum += seq
		}
	}
	if err := rows.Error(); err != nil {
		return n.readError(err)
	}
	// The sum is taken modulo 2^64; half of last*(last+1) is, too.
	want := last / 2 * (last + 1)
	if last%2 == 1 {
		want = (last + 1) / 2 * last
	}
	if records != last || sum != want {
		return n.damaged("the log ends at seq %d, %d records are indexed", last, records)
	}
	return nil
}
