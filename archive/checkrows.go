package archive

import (
	"bytes"
	"context"

	"github.com/verae/archive/wire"
)

// kv is a row of the store.
type kv struct{ key, value []byte }

// rowsOf returns the rows that are derived from a record: h, t and i. After an
// error, which says why the blocks of its file are not known, those under the
// blocks are not among them.
func (n *Node) rowsOf(ctx context.Context, f *frame, rec *wire.PutRecord) (rows []kv, err error) {
	var blocks [][digestLen]byte
	if rec.File != nil {
		if blocks, err = n.blocks(ctx, rec.File); err != nil {
			blocks = nil
		}
	}
	var w rowWriter
	w.derive(f, rec, blocks, func(row []byte, key int) {
		row = bytes.Clone(row)
		rows = append(rows, kv{row[:key:key], row[key:]})
	})
	return rows, err
}

// rowWriter derives rows from records, one after the other, in memory that it
// uses again.
type rowWriter struct {
	buf    []byte
	places []place
	tenant wire.TenantID
	tag    tenantTag // of tenant
}

// derive calls use with each row that the record in f gives: key is how many of
// its bytes are the key, the others are the value. They are valid until use
// returns.
func (w *rowWriter) derive(f *frame, rec *wire.PutRecord, blocks [][digestLen]byte, use func(row []byte, key int)) {
	id := wire.RecordID(f.RecordID)
	if w.tenant != rec.TenantID || w.tenant == "" {
		w.tenant, w.tag = rec.TenantID, tagOf(rec.TenantID)
	}
	r := row{shared: len(rec.ShareWith) > 0, storedAt: f.StoredAt, id: id, kind: rec.Kind, tenant: rec.TenantID}
	w.places = appendPlaces(w.places[:0], rec, id, blocks)
	for _, at := range w.places {
		r.roles = at.roles
		w.buf = r.append(append(w.buf[:0], indexKey(at.digest, f.Seq)...))
		use(w.buf, indexKeyLen)
	}
	w.buf = append(w.buf[:0], tenantKey(w.tag, f.StoredAt, f.Seq)...)
	use(w.buf, tenantKeyLen)
	if len(f.PutID) > 0 {
		w.buf = append(w.buf[:0], putIDKey(putKey(f.PutID))...)
		key := len(w.buf)
		w.buf = append(w.buf, putValue(f.Seq, id)...)
		use(w.buf, key)
	}
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
