package archive

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// codeUnknown marks a put that was given up while it was being stored.
const codeUnknown = "PUT_UNKNOWN"

// rowBytes is about what an index row costs in a batch, key and value.
const rowBytes = 160

// pending is a put on its way through the committer.
type pending struct {
	rec      *wire.PutRecord
	id       wire.RecordID
	putID    putKey
	hasPutID bool
	frame    draft
	places   []place
	pairs    []bloom.Hash // for the filter views
	tag      tenantTag
	size     int
	reply    chan outcome // takes one without blocking

	seq uint64 // given by the committer

	between func() error // see Node.between; nil for a put
}

// outcome answers a pending put. Its id is filled in last.
type outcome struct {
	id        wire.RecordID
	seq       uint64
	duplicate bool
	at        uint64 // position of the feed up to which it has to be known, see Node.settle
	err       error
}

// Put appends the record in put and returns when it is durable.
//
// A repetition is harmless: the same put id, or the same record under another or
// no put id, is acknowledged as a duplicate with the sequence number of the
// first; the same put id with another record is fault.Conflict. A put id is bound
// by the record that it stored, not by a duplicate that it met.
//
// The acknowledgement carries the newest published checkpoint; if put.Checkpoint
// is set, one that covers the record.
//
// Errors: fault.Invalid names the field; fault.Transient with code FILE_MISSING
// says that the bytes of the record's file are not here yet, with others that
// another archive or a later try may do. After an error that is neither Invalid
// nor Conflict, or when ctx ends, the record may have been stored or not:
// repeat the put with the same id. Nothing is acknowledged that is not on disk, or
// that somebody may still deny by a copy of the filter, see [Node.Feed].
func (n *Node) Put(ctx context.Context, put wire.Put) (wire.PutAck, error) {
	out := n.put(ctx, put)
	n.metrics.put(out)
	if out.err != nil {
		return wire.PutAck{}, out.err
	}
	ack := wire.PutAck{
		ArchiveID: n.cfg.ID, Generation: n.identity.generation, Boot: n.boot,
		RecordID: out.id, Seq: out.seq, Duplicate: out.duplicate, Checkpoint: n.Checkpoint(),
	}
	if !put.Checkpoint {
		return ack, nil
	}
	var err error
	if ack.Checkpoint, err = n.keeper.await(ctx, out.seq); err != nil {
		return wire.PutAck{}, err
	}
	return ack, nil
}

func (n *Node) put(ctx context.Context, put wire.Put) outcome {
	if err := n.health.accepting(); err != nil {
		return outcome{err: err}
	}
	p, err := n.prepare(ctx, put)
	if err != nil {
		return outcome{err: err}
	}
	switch err := n.committer.Submit(ctx, p); {
	case errors.Is(err, pebblex.ErrClosed):
		return outcome{err: fault.New(fault.Transient, "CLOSED", "archive: closed")}
	case err != nil:
		return outcome{err: fault.New(fault.Transient, "BUSY", "archive: too many records are waiting: %w", err)}
	}
	out := n.await(ctx, p)
	out.id = p.id
	if out.err == nil && out.duplicate {
		out.err = n.unsettled()
	}
	if out.err == nil {
		out.err = n.settle(ctx, out.at)
	}
	return out
}

func (n *Node) await(ctx context.Context, p *pending) outcome {
	select {
	case out := <-p.reply:
		return out
	case <-ctx.Done():
		return outcome{err: fault.New(fault.Transient, codeUnknown, "archive: not acknowledged in time: %w", ctx.Err())}
	case <-n.health.dead:
		// The committer may have died with the store. What it did answer counts.
		select {
		case out := <-p.reply:
			return out
		default:
			return outcome{err: n.health.failure()}
		}
	}
}

// prepare does everything for a put that needs no order: checks, hashes, and the
// question where its file is.
func (n *Node) prepare(ctx context.Context, put wire.Put) (*pending, error) {
	if err := put.Check(); err != nil {
		return nil, invalid(err)
	}
	rec := own(put.Record)
	var blocks [][digestLen]byte
	if rec.Kind == wire.KindFile {
		var err error
		if blocks, err = n.blocks(ctx, rec.File); err != nil {
			return nil, err
		}
	}
	body := rec.BodySHA256()
	p := &pending{rec: &rec, id: rec.IDOver(body), reply: make(chan outcome, 1)}
	p.putID, p.hasPutID = parsePutID(put.PutID)
	e := envelope{archive: n.cfg.ID, generation: n.identity.generation, putID: p.putID, hasPutID: p.hasPutID}
	var err error
	if p.frame, err = newDraft(e, &rec, p.id, body); err != nil {
		return nil, err
	}
	p.places, p.tag = placesOf(&rec, p.id, blocks), tagOf(rec.TenantID)
	p.pairs = (&viewing{secret: n.secret.Key}).record(nil, &rec, p.places)
	p.size = len(p.frame.head) + len(rec.Body) + rowBytes*(2+len(p.places))
	return p, nil
}

// own returns r with memory of its own: a caller that gave up may use his again
// while the committer still has the record.
func own(r wire.PutRecord) wire.PutRecord {
	r.Body = bytes.Clone(r.Body)
	r.ShareWith = slices.Clone(r.ShareWith)
	if r.File != nil {
		r.File = new(*r.File)
	}
	return r
}

// blocks returns the digests of the blocks of a file whose bytes are here.
func (n *Node) blocks(ctx context.Context, f *wire.File) ([][digestLen]byte, error) {
	missing := func(why error) error {
		return fault.New(fault.Transient, "FILE_MISSING",
			"archive: the bytes of file %s are not here; send them before the record: %w", f.CID, why).InField("record.file")
	}
	if n.cfg.Files == nil {
		return nil, missing(errors.New("this archive keeps no files"))
	}
	blocks, err := n.cfg.Files.Blocks(ctx, f.SHA256, f.CID)
	if fault.Is(err, fault.NotFound) {
		return nil, missing(err)
	}
	if err != nil {
		return nil, err
	}
	size, err := n.cfg.Files.Size(ctx, f.SHA256, f.CID)
	if err == nil && size != f.Size {
		return nil, fault.New(fault.Invalid, "FILE_SIZE", "archive: the file %s has %d bytes, the record says %d", f.CID, size, f.Size).InField("record.file.size")
	}
	return blocks, err
}

// invalid makes an error of package wire the sender's.
func invalid(err error) error {
	e := fault.New(fault.Invalid, "INVALID", "archive: %w", err)
	if w, ok := errors.AsType[*wire.Error](err); ok {
		return e.InField(w.Field)
	}
	return e
}
