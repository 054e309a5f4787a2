package archive

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
)

// load completes the filters: from the log, if they came from snapshots, else from
// the index. In any case it reads the whole index, to prove that the log has no
// gap: each record that is not lost has one row under its own id, so the rows of
// that role must be as many as there are numbers up to last, and add up to the
// same. A complete filter must have everything that it meets.
//
// When the index has been read, it makes sure of the files that records name.
//
// If anything is wrong with the index before a filter is complete, it stays
// incomplete and every query is answered from the store: half a filter would deny
// what is there.
func (n *Node) load(ctx context.Context, rows *pebble.Iterator, last uint64) {
	n.completeFromLog(ctx, last)
	began, intakes := time.Now(), n.intakes()
	err := errors.Join(n.loadRows(ctx, rows, last, intakes), rows.Close())
	for _, in := range intakes {
		if ctx.Err() == nil { // else closing
			in.end(err, time.Since(began))
		}
	}
	look := n.files || err != nil
	close(n.loaded)
	signal(n.wake)
	if look {
		n.lookForFiles(ctx, last)
	}
}

func (n *Node) loadRows(ctx context.Context, rows *pebble.Iterator, last uint64, intakes []*intake) error {
	var records, sum uint64
	for valid := rows.First(); valid; valid = rows.Next() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		digest, seq, ok := indexKeyParts(rows.Key())
		if !ok {
			return n.damaged("index key %x", rows.Key())
		}
		for _, in := range intakes {
			in.row(digest, seq, rows.Value())
		}
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
	for _, in := range intakes {
		in.batch.flush()
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

// intake is what the index is to a filter when it is read: what the filter is made
// of, or what it must have if it is complete.
type intake struct {
	f       *filter
	known   bool // it was complete before
	hashing hashing
	buf     []bloom.Hash
	batch   hashBatch
	err     error // why the filter can not be made of the index; the others can
}

// intakes returns one for each filter.
func (n *Node) intakes() (all []*intake) {
	for _, f := range n.filters() {
		in := &intake{f: f, known: f.known(), hashing: f.hashing()}
		in.batch.use = f.add
		if in.known {
			in.batch.use = func(hashes []bloom.Hash) { f.scrub(hashes...) }
		}
		all = append(all, in)
	}
	return all
}

// row takes a row.
func (in *intake) row(digest [digestLen]byte, seq uint64, value []byte) {
	if in.err != nil {
		return
	}
	if in.buf, in.err = in.hashing.row(in.buf[:0], digest, seq, value); in.err != nil {
		in.err = in.f.n.rowTrouble(in.err)
		return
	}
	in.batch.add(in.buf...)
}

// end completes the filter, if the index was good and read to its end.
func (in *intake) end(err error, dur time.Duration) {
	f, log := in.f, in.f.log()
	err = errors.Join(err, in.err)
	switch {
	case err != nil && in.known:
		log.Error("the index is not what the log gives", "err", err)
	case err != nil:
		log.Error("the filter is not complete: queries are answered from the store", "err", err)
	case in.known:
		log.Info("the index was read", "dur", dur)
	default:
		f.complete()
		log.Info("filter ready", "keys", f.set.Keys(), "dur", dur)
	}
}

// complete says that the filter has everything.
func (f *filter) complete() {
	f.set.Complete()
	f.n.lend()
}

// scrub looks in the filter for what is stored, and returns how much of it was
// denied. The filter has it from then on, and sends every query to the store until
// it is rebuilt.
func (f *filter) scrub(hashes ...bloom.Hash) (denied int) {
	if denied = f.set.Scrub(hashes...); denied == 0 {
		return 0
	}
	if f.alarmed.CompareAndSwap(false, true) {
		f.log().Error("the filter denied what is stored: memory that fails, or a fault of this program; it has it now, and queries are answered from the store until it is rebuilt; others are counted", "keys", denied)
	}
	f.n.lend()
	signal(f.n.wake)
	return denied
}
