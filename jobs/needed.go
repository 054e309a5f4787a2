package jobs

import (
	"context"
	"slices"

	"github.com/verae/archive/wire"
)

// suspect is a record that would have too few copies without an archive, as far
// as acknowledgements to this aggregator tell.
type suspect struct {
	record     wire.RecordID
	submission wire.SubmissionID
	others     []wire.ArchiveID // that acknowledged it
}

// neededOf returns the first record of the submissions that an archive is needed
// for. Archives copy records among themselves, so whoever may have one is asked.
func (e *Engine) neededOf(ctx context.Context, archive wire.ArchiveID, enrolled []wire.ArchiveID, list []*submission) (*suspect, error) {
	var suspects []*suspect
	for _, s := range list {
		for i := range s.Parts {
			if p := &s.Parts[i]; s.Status != wire.StatusFailed && e.isNeeded(p, archive, enrolled) {
				suspects = append(suspects, &suspect{p.RecordID, s.ID, e.others(p, archive, enrolled)})
			}
		}
	}
	for _, id := range enrolled {
		if id == archive || e.cfg.Copies == nil {
			continue
		}
		lacking := slices.Collect(func(yield func(*suspect) bool) {
			for _, s := range suspects {
				if !slices.Contains(s.others, id) && len(s.others) < e.cfg.PutCopies && !yield(s) {
					return
				}
			}
		})
		for chunk := range slices.Chunk(lacking, wire.MaxSyncIDs) {
			ids := make([]wire.RecordID, len(chunk))
			for i, s := range chunk {
				ids[i] = s.record
			}
			have, err := e.has(ctx, id, ids)
			if err != nil {
				e.cfg.Log.DebugContext(ctx, "an archive can not be asked what it has", "archive", id, "err", err)
				break // what it has does not count
			}
			for i, s := range chunk {
				if have[i] {
					s.others = append(s.others, id)
				}
			}
		}
	}
	for _, s := range suspects {
		if len(s.others) < e.cfg.PutCopies {
			return s, ctx.Err()
		}
	}
	return nil, ctx.Err()
}

// others returns the enrolled archives but one that acknowledged a part.
func (e *Engine) others(p *part, archive wire.ArchiveID, enrolled []wire.ArchiveID) (list []wire.ArchiveID) {
	for _, id := range p.Acks {
		if id != archive && slices.Contains(enrolled, id) {
			list = append(list, id)
		}
	}
	return list
}

func (e *Engine) isNeeded(p *part, archive wire.ArchiveID, enrolled []wire.ArchiveID) bool {
	return slices.Contains(p.Acks, archive) && len(e.others(p, archive, enrolled)) < e.cfg.PutCopies
}
