package archive

import (
	"context"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/wire"
)

// FileOf returns a file whose DAG has the block with a multihash digest, if there
// is a record of one that viewer may read: his own, or shared with him in mode C;
// or with everybody, which is all that wire.Public sees. If several are, one whose
// root is cid is preferred; an empty cid takes the first. False means that there
// is none for this viewer.
func (n *Node) FileOf(ctx context.Context, viewer wire.TenantID, cid string, digest [32]byte) (wire.File, bool, error) {
	ready := n.keys.set.Ready()
	s, ok := n.mayShow(viewer, digest) // also where keys knows it alone: see Answer
	absent := n.keys.set.Test(digest) == bloom.Absent
	if absent && ok {
		n.confirm(s, false)
	}
	if absent || !ok {
		return wire.File{}, false, nil
	}
	if err := n.enter(); err != nil {
		return wire.File{}, false, err
	}
	defer n.leave()
	s.keys = ready
	hits, rows, err := n.blockHits(ctx, digest, viewer, &s)
	if err != nil {
		return wire.File{}, false, err
	}
	file, found, err := n.firstFile(ctx, hits, viewer, cid, &s)
	if err != nil {
		return wire.File{}, false, err
	}
	n.confirm(s, rows > 0)
	return file, found, nil
}

// blockHit is an index row of a file record that has a block.
type blockHit struct {
	seq uint64
	id  wire.RecordID
}

// blockHits returns the rows of file records with a block that viewer might see,
// in log order, and how many rows are under its digest.
func (n *Node) blockHits(ctx context.Context, digest [32]byte, viewer wire.TenantID, s *sight) (hits []blockHit, rows int, err error) {
	err = n.scanAll(digest, n.durable.Load(), func(seq uint64, r row) bool {
		rows++
		wanted, there := r.kind == wire.KindFile && r.roles&roleBlock != 0 && r.mayShow(viewer), !n.lost.has(seq)
		s.row(r, there, wanted)
		if wanted && there {
			hits = append(hits, blockHit{seq, r.id})
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	return hits, rows, err
}

// firstFile reads records until one is of the file that is looked for: every range
// of a file asks, and a tenant may have recorded it a thousand times.
func (n *Node) firstFile(ctx context.Context, hits []blockHit, viewer wire.TenantID, cid string, s *sight) (file wire.File, found bool, err error) {
	for i, h := range hits {
		if err := ctx.Err(); err != nil {
			return wire.File{}, false, err
		}
		rec, err := n.read(h.seq, h.id)
		if err != nil {
			return wire.File{}, false, err
		}
		s.record(&rec)
		seen, ok := rec.For(viewer)
		if !ok {
			continue
		}
		if enough := cid == "" || seen.File.CID == cid; enough || !found {
			file, found = *seen.File, true
			if enough {
				s.unsure = s.unsure || i+1 < len(hits)
				break
			}
		}
	}
	return file, found, nil
}
