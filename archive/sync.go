package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Peers are the other archives, as far as they can be reached. Nothing they say
// is believed: a record is taken if its id is that of its bytes, a file if its
// digest and CID are. Package bus has the implementation over NATS; the methods
// may be called from many goroutines.
//
// A peer that does not answer in time is an error of kind fault.Transient. An
// answer that contradicts itself or the question is fault.Corrupt with code
// CodeWrongAnswer.
type Peers interface {
	// Has reports which records the archive can read now, in the order of ids;
	// at most wire.MaxSyncIDs.
	Has(ctx context.Context, archive wire.ArchiveID, ids []wire.RecordID) ([]bool, error)
	// Record returns a record whose id is id: it has been computed from what is
	// returned. fault.NotFound with code CodeNoRecord says that it is not there.
	Record(ctx context.Context, archive wire.ArchiveID, id wire.RecordID) (wire.PutRecord, error)
	// File returns up to n bytes at off, at most wire.FragmentSize, of a file,
	// and the size that the peer says it has. The bytes are not verified: only
	// all of them together can be.
	File(ctx context.Context, archive wire.ArchiveID, sha256 wire.Digest, cid string, off int64, n int) (data []byte, size int64, err error)
	// FileProfile returns the profile in which the peer says that the file has its
	// CID. It is not verified either.
	FileProfile(ctx context.Context, archive wire.ArchiveID, sha256 wire.Digest, cid string) (blob.Profile, error)
	// Alive returns the other archives that were heard lately, whatever their
	// state, sorted.
	Alive() []wire.ArchiveID
	// Remembered asks all live peers, and an aggregator, what they have heard
	// archive say of itself, and returns their answers, at most
	// wire.MaxGenerations of each. It fails only when there are live peers and
	// nobody answered; with nobody to ask it returns nothing.
	Remembered(ctx context.Context, archive wire.ArchiveID) ([]wire.Remembered, error)
}

// Fleet is Peers with what it takes to move copies between them.
type Fleet interface {
	Peers
	// Settle returns when every live archive has had the time to be heard.
	Settle(ctx context.Context) error
	// Holders returns the ids of the enrolled archives whose copies count, alive
	// or not, this one included, as an aggregator tells them. When none answers
	// it returns those that have been heard, and an error.
	Holders(ctx context.Context) ([]wire.ArchiveID, error)
	// Writable returns those of Alive that take records now, sorted.
	Writable() []wire.ArchiveID
	// Rank orders archives by the rendezvous hash of a placement key.
	Rank(ids []wire.ArchiveID, key [32]byte) []wire.ArchiveID
	// Pull tells an archive to fetch records from others; at most
	// wire.MaxPullIDs. The results are in the order of ids; those with the code
	// CodePullPending are still under way.
	Pull(ctx context.Context, archive wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]wire.PullResult, error)
}

// Codes of refusals between archives.
const (
	CodeNoRecord    = "NO_RECORD"    // the archive has no such record, or can not read it
	CodeNoFile      = "NO_FILE"      // nor such a file
	CodePullPending = "PULL_PENDING" // the pull goes on: ask again
	CodeWrongAnswer = "WRONG_ANSWER" // an archive sent what can not be true
)

// HasRecords reports which records can be read here, in the order of ids. Each
// is read and verified for it; a lost or damaged one is not had, nor is a record
// of a file whose bytes are not here in full length or known to be damaged. Whoever
// is told may rely on it as on an acknowledgement, so it waits as one does.
func (n *Node) HasRecords(ctx context.Context, ids []wire.RecordID) ([]bool, error) {
	have, err := n.hasRecords(ctx, ids)
	if err == nil {
		err = n.settled(ctx)
	}
	if err != nil {
		return nil, err
	}
	return have, nil
}

// hasRecords is HasRecords for the archive itself.
func (n *Node) hasRecords(ctx context.Context, ids []wire.RecordID) ([]bool, error) {
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer n.leave()
	have := make([]bool, len(ids))
	for i, id := range ids {
		rec, err := n.find(ctx, id)
		if err == nil {
			have[i], err = n.hasFile(ctx, rec.File)
		}
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Corrupt) {
			return nil, err
		}
	}
	return have, nil
}

// Portable returns the part of a durable record that its id is computed over,
// exactly as it was put. It shares no memory with the store. What is not here,
// lost or damaged is fault.NotFound with code CodeNoRecord.
func (n *Node) Portable(ctx context.Context, id wire.RecordID) (wire.PutRecord, error) {
	if err := n.enter(); err != nil {
		return wire.PutRecord{}, err
	}
	defer n.leave()
	rec, err := n.find(ctx, id)
	if err != nil {
		return wire.PutRecord{}, err
	}
	p := rec.Portable()
	if p.File != nil {
		p.File = new(*p.File)
		p.File.ID = wire.RecordID{} // the record's own; not part of what was put
	}
	return p, nil
}

// RecordIDs lists durable, readable records after a sequence number: see
// wire.SyncPage. A limit of 0 means wire.MaxSyncIDs.
func (n *Node) RecordIDs(ctx context.Context, after uint64, limit int) (wire.SyncPage, error) {
	if limit <= 0 || limit > wire.MaxSyncIDs {
		limit = wire.MaxSyncIDs
	}
	if err := n.enter(); err != nil {
		return wire.SyncPage{}, err
	}
	defer n.leave()
	page := wire.SyncPage{End: n.durable.Load()}
	var err error
	page.Next, err = n.walk(ctx, after, page.End, limit, func(rec wire.Record) {
		page.Records = append(page.Records, wire.SyncEntry{Seq: rec.Seq, RecordID: rec.ID, Kind: rec.Kind})
	})
	return page, err
}

// find returns the durable record with an id. Where it stands more than once,
// because it was lost and put again, any copy that can be read will do. The
// caller is between enter and leave.
func (n *Node) find(ctx context.Context, id wire.RecordID) (wire.Record, error) {
	var seqs []uint64
	err := n.scan(id, n.durable.Load(), func(seq uint64, r row) bool {
		if r.roles&roleRecord != 0 {
			seqs = append(seqs, seq)
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return wire.Record{}, err
	}
	for _, seq := range slices.Backward(seqs) {
		rec, ok, err := n.readable(seq)
		if err != nil || ok && rec.ID == id {
			return rec, err
		}
	}
	return wire.Record{}, fault.New(fault.NotFound, CodeNoRecord, "archive: record %s is not here, or can not be read", id)
}

// readable returns the record with a sequence number, if it can be read.
func (n *Node) readable(seq uint64) (rec wire.Record, ok bool, err error) {
	data, closer, err := n.db.Get(logKey(seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return wire.Record{}, false, nil // read and Check say that it should be there
	}
	if err := n.readError(err); err != nil {
		if fault.Is(err, fault.Corrupt) {
			return wire.Record{}, false, nil
		}
		return wire.Record{}, false, err
	}
	rec, ok = n.whole(seq, data)
	return rec, ok, closer.Close()
}

// whole reads and verifies a frame. What is not what was written puts the
// archive in quarantine; the stub of a lost record is what was written, and no
// record.
func (n *Node) whole(seq uint64, data []byte) (rec wire.Record, ok bool) {
	f, err := decodeFrame(data)
	if err == nil {
		if f.lost && n.lost.has(seq) {
			return wire.Record{}, false
		}
		rec = f.record()
		err = f.verify(&rec)
	}
	if err == nil && (f.Seq != seq || f.ArchiveID != string(n.cfg.ID)) {
		err = fmt.Errorf("%w: it holds seq %d of %q", errFrame, f.Seq, f.ArchiveID)
	}
	if err != nil {
		_ = n.damaged("seq %d: %w", seq, err) // it is the quarantine that counts here
		return wire.Record{}, false
	}
	return rec, true
}

// hasFile reports whether the bytes of a record's file, if it has one, are here.
func (n *Node) hasFile(ctx context.Context, f *wire.File) (bool, error) {
	if f == nil {
		return true, nil
	}
	if n.cfg.Files == nil {
		return false, nil
	}
	size, err := n.cfg.Files.Size(ctx, f.SHA256, f.CID)
	if err == nil && size == f.Size {
		// A store that knows of damage says more than one that knows the length.
		if s, ok := n.cfg.Files.(interface {
			Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error)
		}); ok {
			return s.Has(ctx, f.SHA256, f.CID)
		}
		return true, nil
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return false, nil
	}
	return false, err
}

// walk calls f for the readable records after a sequence number and up to last,
// in log order, and looks at limit at most. It returns the number after which to
// go on; that is last when there are no more. The caller is between enter and
// leave.
func (n *Node) walk(ctx context.Context, after, last uint64, limit int, f func(wire.Record)) (next uint64, err error) {
	if after >= last {
		return last, nil
	}
	it, err := n.iterate(logKey(after+1), logKey(last+1))
	if err != nil {
		return after, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	next = after
	for valid := it.First(); valid; valid = it.Next() {
		if err := ctx.Err(); err != nil {
			return next, err
		}
		if limit == 0 {
			return next, nil
		}
		limit--
		seq, ok := logSeq(it.Key())
		if !ok {
			return next, n.damaged("log key %x", it.Key())
		}
		next = seq
		if rec, ok := n.whole(seq, it.Value()); ok {
			f(rec)
		}
	}
	if err := n.readError(it.Error()); err != nil {
		return next, err
	}
	return last, nil
}
