package archive

import (
	"context"
	"errors"
	"slices"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// fulfil has one archive pull records, and asks it afterwards whether it has
// them: its word about the pull alone is not believed.
func (b *batch) fulfil(ctx context.Context, target wire.ArchiveID, list []*wish) {
	ids, from := make([]wire.RecordID, len(list)), []wire.ArchiveID(nil)
	for i, w := range list {
		ids[i] = w.id
		for _, h := range w.holders {
			if h != target && !slices.Contains(from, h) && len(from) < wire.MaxPullSources {
				from = append(from, h)
			}
		}
	}
	if i := slices.Index(from, b.self); i > 0 {
		from[0], from[i] = from[i], from[0] // it surely has most of them
	}
	errs := b.pull(ctx, target, ids, from)
	has := make([]bool, len(ids))
	if slices.Contains(errs, nil) {
		var err error
		if target == b.self {
			has, err = b.r.cfg.Node.hasRecords(ctx, ids)
		} else {
			has, err = b.has(ctx, target, ids)
		}
		if err != nil {
			has = make([]bool, len(ids))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range list {
		switch {
		case has[i]:
			w.need--
			w.holders = append(w.holders, target)
			b.copied++
		case errs[i] != nil:
			w.last = errs[i]
		default:
			w.last = wrongAnswer(target, "it said that it pulled record %s and does not have it", w.id)
		}
	}
}

// pull tells an archive to pull, and asks until all is decided. It returns an
// error, or nil, for each record.
func (b *batch) pull(ctx context.Context, target wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) []error {
	errs := make([]error, len(ids))
	open := make([]int, len(ids)) // places in ids
	for i := range open {
		open[i] = i
	}
	for tries := 0; len(open) > 0; {
		ask := make([]wire.RecordID, len(open))
		for i, at := range open {
			ask[i] = ids[at]
		}
		results, err := b.tell(ctx, target, ask, from)
		if err == nil && len(results) != len(ask) {
			err = wrongAnswer(target, "told to pull %d records, answered for %d", len(ask), len(results))
		}
		if err != nil {
			for _, at := range open {
				errs[at] = err
			}
			if tries++; tries >= askTries || !fault.Is(err, fault.Transient) || !b.r.pause(ctx, askPause) {
				return errs
			}
			continue
		}
		tries = 0
		var still []int
		for i, at := range open {
			if errs[at] = results[i]; fault.CodeOf(errs[at]) == CodePullPending {
				still = append(still, at)
			}
		}
		if open = still; len(open) > 0 && !b.r.pause(ctx, askPause) {
			return errs
		}
	}
	return errs
}

// tell tells an archive, this one or another, to pull once.
func (b *batch) tell(ctx context.Context, target wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]error, error) {
	errs := make([]error, 0, len(ids))
	if target == b.self {
		for _, out := range b.r.cfg.Puller.Pull(ctx, ids, from) {
			errs = append(errs, out.Err)
		}
		return errs, nil
	}
	results, err := b.r.cfg.Fleet.Pull(ctx, target, ids, from)
	if err != nil {
		return nil, err
	}
	for i, res := range results {
		switch {
		case i < len(ids) && res.ID != ids[i]:
			return nil, wrongAnswer(target, "told to pull record %s, answered for %s", ids[i], res.ID)
		case res.Problem != nil:
			errs = append(errs, &fault.Error{
				Kind: fault.ParseKind(res.Problem.Kind), Code: res.Problem.Code,
				Err: errors.New("archive " + string(target) + ": " + res.Problem.Message),
			})
		default:
			errs = append(errs, nil)
		}
	}
	return errs, nil
}
