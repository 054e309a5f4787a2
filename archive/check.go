package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// CheckReport counts what Check has looked at.
type CheckReport struct {
	Records   uint64 // in the log
	IndexRows uint64 // under digests
	PutIDs    uint64
	Lost      uint64 // of Records: stubs of lost records
}

// Check reads the whole archive as it is now and computes it anew: every frame
// has its checksum, its hashes and the one encoding it can have; sequence
// numbers have no gap and times rise; the Merkle tree is that of the log; the
// index is exactly what the log gives, row by row and in number, but for what is
// no longer known of lost records; and the filter denies nothing that is indexed.
// The first thing that is wrong is returned as fault.Corrupt and puts the
// archive in quarantine. Puts and queries go on meanwhile.
func (n *Node) Check(ctx context.Context) (report CheckReport, err error) {
	if err := n.enter(); err != nil {
		return CheckReport{}, err
	}
	defer n.leave()
	// Taken in this order, the snapshot holds all that is durable and perhaps
	// the batch that is being written, which is left out.
	last := n.durable.Load()
	snap := n.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()

	c := checker{n: n, snap: snap, last: last}
	if err := c.log(ctx); err != nil {
		return CheckReport{}, err
	}
	if err := c.tree(ctx); err != nil {
		return CheckReport{}, err
	}
	if err := c.counts(ctx); err != nil {
		return CheckReport{}, err
	}
	return c.want, nil
}

// checker is one run of Check.
type checker struct {
	n    *Node
	snap *pebble.Snapshot
	last uint64      // durable when the check began
	end  uint64      // of the log in snap, which may show what is not durable yet
	want CheckReport // what the log gives

	tenants uint64 // rows under tenants that the log gives
}

// log walks the log and looks up all that must have been derived from it.
func (c *checker) log(ctx context.Context) error {
	storedAt, prev := int64(0), uint64(0)
	log := c.n.identity.lineage
	err := c.each(ctx, prefixLog, func(key, value []byte) error {
		seq, ok := logSeq(key)
		if ok && seq > c.last {
			c.end = seq // being written now
			return nil
		}
		if !ok {
			return c.n.damaged("log key %x", key)
		}
		c.end = seq
		c.want.Records++
		f, err := decodeFrame(value)
		if err != nil {
			return c.n.damaged("seq %d: %w", seq, err)
		}
		if !log.follows(prev, seq) || f.Seq != seq || f.StoredAt <= storedAt || !f.canonical(value) || f.ArchiveID != string(c.n.cfg.ID) {
			return c.n.damaged("log entry %d holds seq %d of %s at %d, after seq %d at %d, or is not in its canonical form",
				c.want.Records, f.Seq, f.ArchiveID, f.StoredAt, prev, storedAt)
		}
		storedAt, prev = f.StoredAt, seq
		rec := f.record()
		if f.lost {
			c.want.Lost++
			return c.equal(lostKey(seq), rec.ID[:])
		}
		if c.n.lost.has(seq) {
			return c.n.damaged("seq %d is not lost, but said to be", seq)
		}
		if err := f.verify(&rec); err != nil {
			return c.n.damaged("%w", err)
		}
		return c.derived(ctx, f, &rec)
	})
	if err == nil && (c.want.Records != log.records(c.last) || c.want.Lost != uint64(len(c.n.lost.ids))) {
		return c.n.damaged("the log has %d records and %d stubs up to seq %d, it should have %d and %d",
			c.want.Records, c.want.Lost, c.last, log.records(c.last), len(c.n.lost.ids))
	}
	return err
}

// derived compares the rows and the put id of a record with the stored ones.
func (c *checker) derived(ctx context.Context, f *frame, rec *wire.Record) error {
	p := rec.Portable()
	var blocks [][digestLen]byte
	if p.File != nil {
		var err error
		if blocks, err = c.n.blocks(ctx, p.File); fault.CodeOf(err) == "FILE_MISSING" {
			return c.n.damaged("seq %d: %w", f.Seq, err)
		} else if err != nil {
			return err
		}
	}
	r := row{shared: len(p.ShareWith) > 0, storedAt: f.StoredAt, id: rec.ID, kind: rec.Kind, tenant: rec.TenantID}
	for _, at := range placesOf(&p, rec.ID, blocks) {
		r.roles = at.roles
		c.want.IndexRows++
		if err := c.equal(indexKey(at.digest, f.Seq), r.encode()); err != nil {
			return err
		}
		if c.n.filter.Test(at.digest) == bloom.Absent {
			return c.n.damaged("the filter denies digest %x of seq %d", at.digest, f.Seq)
		}
	}
	c.tenants++
	if err := c.equal(tenantKey(tagOf(rec.TenantID), f.StoredAt, f.Seq), nil); err != nil {
		return err
	}
	if len(f.PutID) > 0 {
		c.want.PutIDs++
		return c.equal(putIDKey(putKey(f.PutID)), putValue(f.Seq, rec.ID))
	}
	return nil
}

// counts proves that nothing is stored that the log does not give.
func (c *checker) counts(ctx context.Context) error {
	var rows, puts, tenants uint64
	err := c.each(ctx, prefixIndex, func(key, _ []byte) error {
		_, seq, ok := indexKeyParts(key)
		if ok && seq <= c.last && !c.n.lost.has(seq) {
			rows++
		}
		return c.within(ok, seq, key)
	})
	if err != nil {
		return err
	}
	err = c.each(ctx, prefixTenant, func(key, _ []byte) error {
		_, _, seq, ok := tenantKeyParts(key)
		if ok && seq <= c.last && !c.n.lost.has(seq) {
			tenants++
		}
		return c.within(ok, seq, key)
	})
	if err != nil {
		return err
	}
	err = c.each(ctx, prefixPut, func(key, value []byte) error {
		seq, _, ok := parsePutValue(value)
		if ok && seq <= c.last {
			puts++
		}
		return c.within(ok, seq, key)
	})
	if err == nil && (rows != c.want.IndexRows || puts != c.want.PutIDs || tenants != c.tenants) {
		return c.n.damaged("%d index rows, %d put ids and %d rows under tenants are stored, the log gives %d, %d and %d",
			rows, puts, tenants, c.want.IndexRows, c.want.PutIDs, c.tenants)
	}
	return err
}

// within refuses a key of the index that has no entry in the log.
func (c *checker) within(wellFormed bool, seq uint64, key []byte) error {
	if wellFormed && seq <= c.end {
		return nil
	}
	return c.n.damaged("index key %x is of seq %d, the log ends at %d", key, seq, c.end)
}

func (c *checker) equal(key, want []byte) error {
	got, closer, err := c.snap.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return c.n.damaged("key %x is missing from the index", key)
	case err != nil:
		return c.n.readError(err)
	}
	same := bytes.Equal(got, want)
	if err := closer.Close(); err != nil {
		return fmt.Errorf("archive: check: %w", err)
	}
	if !same {
		return c.n.damaged("the index row of key %x is not what the log gives", key)
	}
	return nil
}

// each calls f for every key with a first byte. The slices are valid during the
// call only.
func (c *checker) each(ctx context.Context, prefix byte, f func(key, value []byte) error) (err error) {
	lower, upper := prefixBounds(prefix)
	it, err := c.snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("archive: check: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return c.n.readError(it.Error())
}
