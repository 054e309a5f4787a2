package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// Absent reports whether the archive surely has nothing under digest, and counts
// it as a query that was met with silence if so. It costs a few memory reads, so
// a caller can ask before it decodes a query.
func (n *Node) Absent(digest wire.Digest) bool {
	if n.keys.set.Test(digest) != bloom.Absent {
		return false
	}
	n.metrics.miss.Inc()
	return true
}

// Answer returns the records under q.SHA256 that q.TenantID may see, in the
// order they were stored, as one unpaged reply. False means silence: there is
// nothing for this caller, and he cannot tell why. An error of kind
// fault.Corrupt means that there is something which is not readable. Records of
// the caller's own that are lost are counted in the reply, which may hold no
// others.
//
// The reply shares no memory with the store and stays valid after Close.
func (n *Node) Answer(ctx context.Context, q wire.Query) (wire.Reply, bool, error) {
	if err := q.Check(); err != nil {
		return wire.Reply{}, false, invalid(err)
	}
	ready := n.keys.set.Ready()
	// Every miss takes the same work: where keys alone decided, the time that views
	// takes would tell the caller that there is something which is not his.
	s, ok := n.mayShow(q.TenantID, q.SHA256)
	if n.Absent(q.SHA256) {
		if ok {
			n.confirm(s, false)
		}
		return wire.Reply{}, false, nil
	}
	if !ok {
		n.metrics.miss.Inc()
		return wire.Reply{}, false, nil
	}
	if err := n.enter(); err != nil {
		return wire.Reply{}, false, err
	}
	defer n.leave()
	s.keys = ready
	rows, steered := 0, false
	records, lost, err := n.visible(ctx, q.SHA256, q.TenantID, &s, func(r row) bool {
		rows, steered = rows+1, steered || r.steers(q.TenantID)
		return len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.kind)
	})
	if err == nil {
		n.confirm(s, rows > 0)
		err = n.addRetention(ctx, q, records, steered)
	}
	n.metrics.query(rows, len(records), err)
	if err != nil || len(records) == 0 && lost == 0 {
		return wire.Reply{}, false, err
	}
	return wire.Reply{
		ArchiveID: n.cfg.ID, SHA256: q.SHA256, Records: records, Page: 1, Pages: 1, Lost: lost, Checkpoint: n.Checkpoint(),
	}, true, nil
}

// visible returns the durable records under digest that want takes and viewer
// may see, as he may see them, in log order, and how many of his own are lost and
// have not been stored again. s sees what is read.
func (n *Node) visible(ctx context.Context, digest [32]byte, viewer wire.TenantID, s *sight, want func(row) bool) (records []wire.Record, lost uint64, err error) {
	type hit struct {
		seq uint64
		id  wire.RecordID
	}
	var hits []hit
	var gone map[wire.RecordID]struct{} // made when it is needed: it hardly ever is
	err = n.scanAll(digest, n.durable.Load(), func(seq uint64, r row) bool {
		wanted, there := want(r) && r.mayShow(viewer), !n.lost.has(seq)
		s.row(r, there, wanted)
		switch {
		case !wanted:
		case there:
			hits = append(hits, hit{seq, r.id})
		case r.tenant == viewer:
			if gone == nil {
				gone = make(map[wire.RecordID]struct{})
			}
			gone[r.id] = struct{}{}
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, h := range hits {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		rec, err := n.read(h.seq, h.id)
		if err != nil {
			return nil, 0, err
		}
		delete(gone, h.id) // it was stored again
		s.record(&rec)
		if seen, ok := rec.For(viewer); ok {
			records = append(records, seen)
		}
	}
	return records, uint64(len(gone)), ctx.Err()
}

// scan calls f for the index rows of digest up to the sequence number last, in
// log order, until f returns false. Rows of lost records are left out.
func (n *Node) scan(digest [32]byte, last uint64, f func(seq uint64, r row) bool) error {
	return n.scanAll(digest, last, func(seq uint64, r row) bool { return n.lost.has(seq) || f(seq, r) })
}

// scanAll is scan with the rows of lost records.
func (n *Node) scanAll(digest [32]byte, last uint64, f func(seq uint64, r row) bool) (err error) {
	it, err := n.iterate(rowsUnder(digest))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		_, seq, ok := indexKeyParts(it.Key())
		if !ok {
			return n.damaged("index key %x", it.Key())
		}
		if seq > last {
			return nil
		}
		r, err := decodeRow(it.Value())
		if err != nil {
			return n.damaged("index row of %x at seq %d: %w", digest, seq, err)
		}
		if !f(seq, r) {
			return nil
		}
	}
	return n.readError(it.Error())
}

// read returns the record with sequence number seq, which must have id.
func (n *Node) read(seq uint64, id wire.RecordID) (rec wire.Record, err error) {
	data, closer, err := n.db.Get(logKey(seq))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return wire.Record{}, n.damaged("seq %d is indexed and not in the log", seq)
	case err != nil:
		return wire.Record{}, n.readError(err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	f, err := decodeFrame(data)
	if err != nil {
		return wire.Record{}, n.damaged("seq %d: %w", seq, err)
	}
	if rec = f.record(); f.lost {
		return wire.Record{}, n.damaged("seq %d is a stub, and not among the lost records", seq)
	}
	if f.Seq != seq || rec.ID != id || f.ArchiveID != string(n.cfg.ID) {
		return wire.Record{}, n.damaged("seq %d of record %s holds seq %d of record %s", seq, id, f.Seq, rec.ID)
	}
	if err := f.verify(&rec); err != nil {
		return wire.Record{}, n.damaged("%w", err)
	}
	return rec, nil
}

// damaged puts the archive in quarantine and returns the reason.
func (n *Node) damaged(format string, args ...any) error {
	err := fault.New(fault.Corrupt, "CORRUPT", "archive: "+format, args...)
	n.health.quarantine(err.Error())
	return err
}

// readError sorts errors of the store: damage is ours to report, all else is a
// read that failed.
func (n *Node) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err), pebblex.IsUnreadable(err):
		return n.damaged("%w", err)
	}
	return fmt.Errorf("archive: read: %w", err)
}
