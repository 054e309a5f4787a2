package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// maxBuildBatch bounds a commit of a store that is built, in records: those of
// them that are missing are fetched together, and are in memory meanwhile.
const maxBuildBatch = 250

// builder writes the store of a repaired archive.
type builder struct {
	*repairer
	db    *pebble.DB
	files repairedFiles
	tree  *forest
}

// store writes everything, the identity last, and returns the end of the log.
func (b *builder) store(ctx context.Context) (treeHead, error) {
	log := b.relic.identity.lineage
	b.tree = &forest{log: log}
	if err := b.begin(0); err != nil {
		return treeHead{}, err
	}
	frames := b.relic.entries()
	defer frames.stop()
	for rest := b.slots; len(rest) > 0; {
		n := 1 // a commit is of one generation
		for n < min(maxBuildBatch, len(rest)) && rest[n].index == rest[0].index {
			n++
		}
		if err := b.commit(ctx, frames, rest[:n]); err != nil {
			return treeHead{}, err
		}
		rest = rest[n:]
	}
	for !b.tree.last() {
		if err := b.begin(b.tree.index + 1); err != nil {
			return treeHead{}, err
		}
	}
	g, size := log.current(), b.tree.edge.Size()
	head := treeHead{seq: g.base() + uint64(size) - 1, size: size, root: b.tree.edge.Root()}
	return head, writeIdentity(b.db, b.Config, g)
}

// begin begins the tree of a generation: its row, unless that is written with the
// identity, and the commit of its genesis.
func (b *builder) begin(index int) error {
	hashes, err := b.tree.begin(index)
	if err != nil {
		return err
	}
	batch, g := b.db.NewBatch(), b.tree.log[index]
	if !b.tree.last() {
		row, encodeErr := g.encode()
		err = errors.Join(encodeErr, batch.Set(generationKey(g.Generation), row, nil))
	}
	if len(hashes) > 0 {
		c := commitRow{first: g.base(), last: g.base(), hashes: hashes}
		err = errors.Join(err, batch.Set(commitKey(c.last), c.encode(), nil))
	}
	return b.apply(batch, err)
}

// apply commits a batch that adds keys and does nothing else.
func (b *builder) apply(batch *pebble.Batch, err error) error {
	if err == nil {
		err = pebblex.AppendOnly(b.db, batch)
	}
	if err == nil {
		err = b.db.Apply(batch, pebble.Sync)
	}
	return errors.Join(err, batch.Close())
}

// commit writes the records of some slots as one commit.
func (b *builder) commit(ctx context.Context, frames *entries, slots []slot) error {
	for b.tree.index < slots[0].index {
		if err := b.begin(b.tree.index + 1); err != nil {
			return err
		}
	}
	var ids []wire.RecordID
	for _, s := range slots {
		if n := b.holes[s.seq]; n != nil && !n.again {
			ids = append(ids, s.id)
		}
	}
	fetched, err := b.fetch(ctx, ids)
	if err != nil {
		return err
	}
	batch := b.db.NewBatch()
	c := commitRow{first: slots[0].seq, last: slots[len(slots)-1].seq}
	for _, s := range slots {
		hashes, err := b.tree.append(s.bone)
		c.hashes = append(c.hashes, hashes...)
		if err == nil {
			_, err = frames.reach(s.seq)
		}
		if err == nil {
			err = b.slot(ctx, batch, s, frames.at(s.seq), fetched[s.id])
		}
		if err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return b.apply(batch, batch.Set(commitKey(c.last), c.encode(), nil))
}

// slot writes what stands in one place of the log.
func (b *builder) slot(ctx context.Context, batch *pebble.Batch, s slot, frames []relicFrame, got found) error {
	n := b.holes[s.seq]
	if n != nil && !n.again && !n.stub && got.rec == nil && b.Unheard != nil {
		return b.unheard()
	}
	if n != nil && (n.again || got.rec == nil) {
		return b.stub(batch, s, n)
	}
	if n != nil {
		e := b.envelope(s, n)
		raw, err := encodeFrame(e, got.rec, s.id, got.rec.BodySHA256())
		if err != nil {
			return err
		}
		b.report.Fetched = append(b.report.Fetched, RepairEntry{Seq: s.seq, ID: s.id, From: got.from})
		return b.record(ctx, batch, s, raw, got.rec, n.putID)
	}
	for _, f := range frames {
		if f.lost || f.bone() != s.bone {
			continue
		}
		b.report.Carried++
		rec := f.record()
		p := rec.Portable()
		var putID *putKey
		if len(f.PutID) > 0 {
			putID = (*putKey)(f.PutID)
		}
		return b.record(ctx, batch, s, f.raw, &p, putID)
	}
	return fault.New(fault.Corrupt, "CORRUPT", "archive: repair %s: seq %d could be read before and can not be now; copy the directory to a disk that works", b.Dir, s.seq)
}

func (b *builder) envelope(s slot, n *hole) envelope {
	e := envelope{archive: b.ID, generation: b.tree.log[s.index].Generation, seq: s.seq, storedAt: s.storedAt}
	if n.putID != nil {
		e.putID, e.hasPutID = *n.putID, true
	}
	return e
}

// stub writes what proves the leaf of a record that is lost. The rows that are
// left of its index tell its owner so; its put id is free for the record to come
// back.
func (b *builder) stub(batch *pebble.Batch, s slot, n *hole) error {
	entry := RepairEntry{Seq: s.seq, ID: s.id}
	if n.again {
		b.report.Carried++
	} else {
		b.report.Lost = append(b.report.Lost, entry)
	}
	raw, err := encodeStub(b.envelope(s, n), s.id)
	if err != nil {
		return err
	}
	err = errors.Join(batch.Set(logKey(s.seq), raw, nil), batch.Set(lostKey(s.seq), s.id[:], nil))
	for i, row := range b.spared[s.seq] {
		err = errors.Join(err, batch.Set(row.key, row.row.encode(), nil))
		if i == 0 {
			err = errors.Join(err, batch.Set(tenantKey(tagOf(row.row.tenant), s.storedAt, s.seq), nil, nil))
		}
	}
	return err
}

// record writes a record with all that is derived from it.
func (b *builder) record(ctx context.Context, batch *pebble.Batch, s slot, raw []byte, rec *wire.PutRecord, putID *putKey) error {
	var blocks [][digestLen]byte
	if rec.File != nil {
		if _, err := b.file(ctx, s.seq, s.id, rec.File); err != nil {
			return err
		}
		var err error
		if blocks, err = b.files.Blocks(ctx, rec.File.SHA256, rec.File.CID); err != nil {
			return fmt.Errorf("archive: repair: the file of seq %d: %w", s.seq, err)
		}
	}
	err := errors.Join(
		batch.Set(logKey(s.seq), raw, nil),
		batch.Set(tenantKey(tagOf(rec.TenantID), s.storedAt, s.seq), nil, nil),
	)
	r := row{shared: len(rec.ShareWith) > 0, storedAt: s.storedAt, id: s.id, kind: rec.Kind, tenant: rec.TenantID}
	for _, at := range placesOf(rec, s.id, blocks) {
		r.roles = at.roles
		err = errors.Join(err, batch.Set(indexKey(at.digest, s.seq), r.encode(), nil))
	}
	if putID != nil {
		err = errors.Join(err, batch.Set(putIDKey(*putID), putValue(s.seq, s.id), nil))
	}
	return err
}
