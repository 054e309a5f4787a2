package jobs

import (
	"context"
	"slices"

	"github.com/verae/archive/wire"
)

// facts are what archives said of records: has[record][archive]. An archive that
// could not be asked about a record is not in it.
type facts map[wire.RecordID]map[wire.ArchiveID]bool

func (f facts) note(id wire.RecordID, archive wire.ArchiveID, has bool) {
	if f[id] == nil {
		f[id] = map[wire.ArchiveID]bool{}
	}
	f[id][archive] = has
}

// concerns reports whether a part has to be looked for: the archive acknowledged
// it, or it was found to be nowhere before.
func (p *part) concerns(id wire.ArchiveID) bool { return p.Lost != "" || slices.Contains(p.Acks, id) }

// ask finds out who has the records that an archive acknowledged. First the
// archive itself is asked, and all others about what it lacks. The error is that
// of the archive: without its word nothing is known. Others that can not be
// asked are left out.
func (e *Engine) ask(ctx context.Context, l Loss, list []*submission) (facts, error) {
	found := facts{}
	var ids, absent []wire.RecordID
	for _, s := range list {
		for i := range s.Parts {
			if s.Parts[i].concerns(l.Archive) && s.Status != wire.StatusFailed {
				ids = append(ids, s.Parts[i].RecordID)
			}
		}
	}
	for chunk := range slices.Chunk(ids, wire.MaxSyncIDs) {
		have := make([]bool, len(chunk))
		if !l.Gone {
			var err error
			if have, err = e.has(ctx, l.Archive, chunk); err != nil {
				return nil, err
			}
		}
		for i, id := range chunk {
			found.note(id, l.Archive, have[i])
			if !have[i] {
				absent = append(absent, id)
			}
		}
	}
	for _, other := range e.cfg.Archives.Enrolled() {
		if other == l.Archive {
			continue
		}
		for chunk := range slices.Chunk(absent, wire.MaxSyncIDs) {
			have, err := e.has(ctx, other, chunk)
			if err != nil {
				e.cfg.Log.DebugContext(ctx, "an archive can not be asked what it has", "archive", other, "err", err)
				break
			}
			for i, id := range chunk {
				found.note(id, other, have[i])
			}
		}
	}
	return found, ctx.Err()
}

func (e *Engine) has(ctx context.Context, id wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	ctx, stop := context.WithTimeout(ctx, putTimeout)
	defer stop()
	return e.cfg.Copies.Has(ctx, id, ids)
}

// holdAll keeps the healer from the ended submissions that have to be corrected,
// until free is called. One that is being healed at this moment is not held.
func (e *Engine) holdAll(list []*submission, found facts) (held map[ref]bool, free func()) {
	held = map[ref]bool{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range list {
		if id := s.ref(); s.ended() && e.mending[id] == 0 && s.inDoubt(found) {
			e.mending[id], held[id] = e.begin(), true
		}
	}
	return held, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for id := range held {
			delete(e.mending, id)
		}
	}
}

// inDoubt reports whether somebody said something else of a record than what is
// known of it.
func (s *submission) inDoubt(found facts) bool {
	return slices.ContainsFunc(s.Parts, func(p part) bool {
		for id, has := range found[p.RecordID] {
			if has != slices.Contains(p.Acks, id) {
				return true
			}
		}
		return false
	})
}
