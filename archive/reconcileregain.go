package archive

import (
	"context"
	"maps"
	"slices"

	"github.com/verae/archive/wire"
)

// regain gets back the records and files that are lost here and that a live
// archive has. A repair could not find them; perhaps who has them was silent then.
// Records are stored anew, with sequence numbers of their own; the stubs stay. What
// nobody has is not a copy that failed: the archive's hello counts it as lost.
func (r *Reconciler) regain(ctx context.Context) error {
	n := r.cfg.Node
	if n.lost.count.Load() == 0 || n.Hello().State != wire.StateUp {
		return nil
	}
	ids := slices.Collect(maps.Values(n.lost.ids))
	for _, f := range n.stillLost() {
		ids = append(ids, f.record)
	}
	slices.SortFunc(ids, func(a, b wire.RecordID) int { return slices.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	for chunk := range slices.Chunk(ids, reconcileBatch) {
		have, err := n.hasRecords(ctx, chunk)
		if err != nil {
			return err
		}
		var entries []entry
		for i, id := range chunk {
			if !have[i] {
				entries = append(entries, entry{id: id})
			}
		}
		if len(entries) == 0 {
			continue
		}
		b := batch{r: r, self: n.cfg.ID, all: true}
		if err := b.regain(ctx, entries); err != nil {
			return err
		}
		r.mu.Lock()
		r.state.Progress.Missing += b.missing
		r.state.Progress.Copied += b.copied
		r.state.Progress.Failed += b.failed
		if b.last != nil {
			r.state.Progress.Problem = problemOf(b.last)
		}
		r.mu.Unlock()
	}
	return nil
}

// regain pulls those of the records that a live archive has.
func (b *batch) regain(ctx context.Context, entries []entry) error {
	have, err := b.ask(ctx, entries)
	if err != nil {
		return err
	}
	var wishes []*wish
	for i, e := range entries {
		if len(have[i]) > 0 {
			wishes = append(wishes, &wish{entry: e, holders: have[i], need: 1})
		}
	}
	if b.missing = uint64(len(wishes)); len(wishes) == 0 {
		return nil
	}
	b.fulfil(ctx, b.self, wishes)
	for _, w := range wishes {
		if w.need > 0 {
			b.failed++
			b.last = w.reason()
			b.r.log.Warn("a lost record could not be got back", "record", w.id, "from", w.holders, "err", b.last)
		}
	}
	return ctx.Err()
}
