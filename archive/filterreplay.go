package archive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/wire"
)

// completeFromLog completes filters that came from snapshots, if the log can.
func (n *Node) completeFromLog(ctx context.Context, last uint64) {
	var behind []*filter
	for _, f := range n.filters() {
		if f.loaded && !f.known() {
			behind = append(behind, f)
		}
	}
	if len(behind) == 0 {
		return
	}
	began := time.Now()
	err := n.replay(ctx, last, behind)
	if ctx.Err() != nil {
		return // closing
	}
	for _, f := range behind {
		if err != nil {
			f.log().Warn("the end of the log does not complete the filter; the index does", "err", err)
			continue
		}
		f.complete()
		f.log().Info("filter ready", "keys", f.set.Keys(), "replayed", f.replayed.Load(), "dur", time.Since(began))
	}
}

// replay puts what the records after their snapshots, up to last, are found under
// into filters, from the log. It fails if a record can not be read, or its file is
// not here to tell the blocks: then the index has to be read.
func (n *Node) replay(ctx context.Context, last uint64, filters []*filter) (err error) {
	from := uint64(math.MaxUint64)
	hashings, hashes := make([]hashing, len(filters)), []bloom.Hash(nil)
	for i, f := range filters {
		from, hashings[i] = min(from, f.from), f.hashing()
	}
	it, err := n.iterate(logKey(from+1), logKey(last+1))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	log, prev, places := n.identity.lineage, from, []place(nil)
	for valid := it.First(); valid; valid = it.Next() {
		seq, ok := logSeq(it.Key())
		if !ok || log.records(seq) != log.records(prev)+1 {
			return fmt.Errorf("archive: log key %x comes after seq %d", it.Key(), prev)
		}
		rec, at, err := n.placesAgain(ctx, it.Value(), seq, places[:0])
		if err != nil {
			return err
		}
		places, prev = at, seq
		for i, f := range filters {
			if seq <= f.from {
				continue
			}
			hashes = hashings[i].record(hashes[:0], &rec, places)
			f.add(hashes)
			f.replayed.Add(uint64(len(hashes)))
		}
	}
	if err := it.Error(); err != nil || log.records(prev) == log.records(last) {
		return err
	}
	return fmt.Errorf("archive: the log has nothing after seq %d, and should up to %d", prev, last)
}

// add puts hashes into the filter.
func (f *filter) add(hashes []bloom.Hash) {
	for _, h := range hashes {
		f.set.AddHash(h)
	}
}

// placesAgain returns the record of a log entry, and appends what it is indexed
// under.
func (n *Node) placesAgain(ctx context.Context, value []byte, seq uint64, places []place) (wire.PutRecord, []place, error) {
	f, err := decodeFrame(value)
	switch {
	case err != nil:
		return wire.PutRecord{}, nil, fmt.Errorf("archive: seq %d: %w", seq, err)
	case f.lost || f.Seq != seq:
		return wire.PutRecord{}, nil, fmt.Errorf("archive: seq %d is a stub, or the record of seq %d", seq, f.Seq)
	}
	rec := f.portable()
	var blocks [][digestLen]byte
	if rec.File != nil {
		if blocks, err = n.blocks(ctx, rec.File); err != nil {
			return wire.PutRecord{}, nil, err
		}
	}
	return rec, appendPlaces(places, &rec, wire.RecordID(f.RecordID), blocks), ctx.Err()
}
