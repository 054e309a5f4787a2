package archive

import (
	"context"

	"github.com/verae/archive/wire"
)

// steers reports whether the row is of a control record that may say how long
// records of viewer under the row's digest are retained, or that they are held.
func (r row) steers(viewer wire.TenantID) bool {
	return r.tenant == viewer && r.roles&roleSubject != 0 && r.kind.Steers()
}

// addRetention notes on the caller's own records what the control records here
// say of them. Those are found under a record's subject, which is not always what
// was asked for: a file is also found by its own digest. steered says whether
// there are any under q.SHA256; it spares the look.
func (n *Node) addRetention(ctx context.Context, q wire.Query, records []wire.Record, steered bool) error {
	var known map[wire.Digest]*wire.Controls // by subject; made only if there is anything to know
	for i := range records {
		r := &records[i]
		if r.TenantID != q.TenantID || r.SHA256 == q.SHA256 && !steered {
			continue
		}
		controls, ok := known[r.SHA256]
		if !ok {
			var err error
			if controls, err = n.controls(ctx, r.SHA256, q.TenantID); err != nil {
				return err
			}
			if known == nil {
				known = map[wire.Digest]*wire.Controls{}
			}
			known[r.SHA256] = controls
		}
		r.Retention = controls.Of(r.ID)
	}
	return nil
}

// controls collects the durable control records of a tenant under a subject.
func (n *Node) controls(ctx context.Context, subject wire.Digest, tenant wire.TenantID) (*wire.Controls, error) {
	type hit struct {
		seq uint64
		id  wire.RecordID
	}
	var hits []hit
	err := n.scan(subject, n.durable.Load(), func(seq uint64, r row) bool {
		if r.steers(tenant) {
			hits = append(hits, hit{seq, r.id})
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	var controls wire.Controls
	for _, h := range hits {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rec, err := n.read(h.seq, h.id)
		if err != nil {
			return nil, err
		}
		if err := controls.Add(&rec); err != nil {
			return nil, n.damaged("seq %d: control record %s: %w", h.seq, h.id, err)
		}
	}
	return &controls, ctx.Err()
}
