package archive

import (
	"context"

	"github.com/verae/archive/wire"
)

// kv is a row of the store.
type kv struct{ key, value []byte }

// rowsOf returns the rows that are derived from a record: h, t and i.
func (n *Node) rowsOf(ctx context.Context, f *frame, rec *wire.Record) ([]kv, error) {
	p := rec.Portable()
	var blocks [][digestLen]byte
	if p.File != nil {
		var err error
		if blocks, err = n.blocks(ctx, p.File); err != nil {
			return nil, err
		}
	}
	r := row{shared: len(p.ShareWith) > 0, storedAt: f.StoredAt, id: rec.ID, kind: rec.Kind, tenant: rec.TenantID}
	places := placesOf(&p, rec.ID, blocks)
	rows := make([]kv, 0, len(places)+2)
	for _, at := range places {
		r.roles = at.roles
		rows = append(rows, kv{indexKey(at.digest, f.Seq), r.encode()})
	}
	rows = append(rows, kv{tenantKey(tagOf(rec.TenantID), f.StoredAt, f.Seq), nil})
	if len(f.PutID) > 0 {
		rows = append(rows, kv{putIDKey(putKey(f.PutID)), putValue(f.Seq, rec.ID)})
	}
	return rows, nil
}

// of returns the number of the generation that a record belongs to, or 0.
func (l lineage) of(seq uint64) int {
	for i := range l {
		if first, last := l.kept(i, seq); seq >= first && seq <= last {
			return l[i].Generation
		}
	}
	return 0
}
