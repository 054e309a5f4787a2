package archive

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

const (
	fetchesAtOnce = 8
	fetchTries    = 3 // of an archive that does not answer
)

// found is a record that came from another archive.
type found struct {
	rec  *wire.PutRecord
	from wire.ArchiveID
}

// holders asks every archive that is alive which of some records it has. An
// archive that does not answer is an error: what it has must not be given up.
func (r *repairer) holders(ctx context.Context, ids []wire.RecordID) ([][]wire.ArchiveID, error) {
	have := make([][]wire.ArchiveID, len(ids))
	if r.Peers == nil || len(ids) == 0 {
		return have, nil
	}
	alive := r.Peers.Alive()
	if len(alive) == 0 {
		return nil, fault.New(fault.Transient, "NO_PEERS",
			"archive: repair %s: %d records are missing and no other archive was heard that could have them; start the others, or give --offline to settle for stubs", r.Dir, len(r.holes))
	}
	for _, peer := range alive {
		for part := range slices.Chunk(indexes(len(ids)), wire.MaxSyncIDs) {
			asked := make([]wire.RecordID, len(part))
			for i, at := range part {
				asked[i] = ids[at]
			}
			answer, err := retry(ctx, func() ([]bool, error) { return r.Peers.Has(ctx, peer, asked) })
			if err != nil || len(answer) != len(asked) {
				return nil, r.silent(peer, err)
			}
			for i, has := range answer {
				if has {
					have[part[i]] = append(have[part[i]], peer)
				}
			}
		}
	}
	return have, nil
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// retry repeats a question that was not answered.
func retry[T any](ctx context.Context, ask func() (T, error)) (answer T, err error) {
	for range fetchTries {
		if answer, err = ask(); err == nil || !fault.Is(err, fault.Transient) || ctx.Err() != nil {
			return answer, err
		}
	}
	return answer, err
}

func (r *repairer) silent(peer wire.ArchiveID, err error) error {
	return fault.New(fault.Transient, "NO_ANSWER",
		"archive: repair %s: archive %s may have what is missing and does not answer; run the repair again when it does, or give --offline to settle for stubs: %w", r.Dir, peer, err)
}

// unheard says why a record is not given up that none of the others has.
func (r *repairer) unheard() error { return fmt.Errorf("archive: repair %s: %w", r.Dir, r.Unheard) }

// fetch gets records by their ids; what nobody has is left out.
func (r *repairer) fetch(ctx context.Context, ids []wire.RecordID) (map[wire.RecordID]found, error) {
	holders, err := r.holders(ctx, ids)
	if err != nil {
		return nil, err
	}
	got := make(map[wire.RecordID]found, len(ids))
	var mu sync.Mutex // guards got and the damages
	var group errgroup.Group
	group.SetLimit(fetchesAtOnce)
	for i, id := range ids {
		group.Go(func() error {
			var silent error // of one that may have it, and could not send it now
			for _, peer := range holders[i] {
				rec, err := retry(ctx, func() (wire.PutRecord, error) { return r.Peers.Record(ctx, peer, id) })
				if err == nil && rec.ID() != id {
					err = fault.New(fault.Corrupt, CodeWrongAnswer, "it sent record %s instead", rec.ID())
				}
				if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Corrupt) {
					silent = r.silent(peer, err)
					continue
				}
				mu.Lock()
				if err == nil {
					got[id] = found{&rec, peer}
				} else {
					r.relic.damage("archive %s said that it has record %s: %v", peer, id, err)
				}
				mu.Unlock()
				if err == nil {
					return nil
				}
			}
			return silent
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return got, ctx.Err()
}

// wanted returns the record ids to ask for, in the order of the log. What was
// stored again is not missing.
func (r *repairer) wanted() (ids []wire.RecordID) {
	for _, s := range r.slots {
		if n := r.holes[s.seq]; n != nil && !n.again {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// ask is what a dry run does instead of fetching: it believes what it is told.
func (r *repairer) ask(ctx context.Context) error {
	holders, err := r.holders(ctx, r.wanted())
	if err != nil {
		return err
	}
	i := 0
	for _, s := range r.slots {
		n := r.holes[s.seq]
		switch {
		case n == nil || n.again:
			r.report.Carried++
			continue
		case len(holders[i]) > 0:
			r.report.Fetched = append(r.report.Fetched, RepairEntry{Seq: s.seq, ID: s.id, From: holders[i][0]})
		case r.Unheard != nil && !n.stub:
			return r.unheard()
		default:
			r.report.Lost = append(r.report.Lost, RepairEntry{Seq: s.seq, ID: s.id})
		}
		i++
	}
	return nil
}
