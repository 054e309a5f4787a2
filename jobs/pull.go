package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/verae/archive/wire"
)

// pullTimeout bounds one pull. What takes longer goes on, and is asked for again.
const pullTimeout = 30 * time.Second

// pullAll makes the missing copies of records whose bytes left the outbox: the
// archives that shall have them fetch them from those that do, best rank first.
func (e *Engine) pullAll(ctx context.Context, s *submission, puts map[int]wire.Put) (err error) {
	if e.cfg.Copies == nil || !s.Reopened {
		return nil
	}
	for _, to := range e.cfg.Archives.Rank(s.Placement) {
		var parts []int
		var ids []wire.RecordID
		var from []wire.ArchiveID
		for n := range s.Parts {
			p := &s.Parts[n]
			_, here := puts[n]
			if here || len(p.Acks) == 0 || slices.Contains(p.Acks, to) || e.lacks(s, p) <= 0 {
				continue
			}
			parts, ids = append(parts, n), append(ids, p.RecordID)
			for _, id := range p.Acks {
				from = addArchive(from, id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		if failure := e.pullTo(ctx, s, to, parts, ids, from); failure != nil {
			err = failure
		}
	}
	return err
}

// pullTo has one archive fetch records, and notes in s which it has then.
func (e *Engine) pullTo(ctx context.Context, s *submission, to wire.ArchiveID, parts []int, ids []wire.RecordID, from []wire.ArchiveID) error {
	ctx, stop := context.WithTimeout(ctx, pullTimeout)
	defer stop()
	outcome, err := e.cfg.Copies.Pull(ctx, to, ids, from)
	if err != nil {
		return err
	}
	for i, n := range parts {
		if outcome[i] != nil {
			err = outcome[i]
			continue
		}
		p := &s.Parts[n]
		p.Acks = addArchive(p.Acks, to)
		if p.File > 0 {
			f := &s.Files[p.File-1]
			f.Committed = addArchive(f.Committed, to)
		}
	}
	return err
}
