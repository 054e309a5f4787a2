package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// A lateGatherer is a Gatherer that goes on listening beyond its deadline.
type lateGatherer interface {
	GatherLate(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind, extra time.Duration) (receipts.Gathered, receipts.Late, error)
}

// gatherLate is gather for a submission that ends. late is nil where nothing more
// is waited for, else the caller gives it to follow.
func (e *Engine) gatherLate(ctx context.Context, s *submission) (found receipts.Gathered, late receipts.Late, err error) {
	g, ok := e.cfg.Gatherer.(lateGatherer)
	if !ok || e.cfg.Late <= 0 {
		found, err = e.gather(ctx, s.Digest, s.Tenant, nil)
		return found, nil, err
	}
	found, late, err = g.GatherLate(ctx, s.Digest, s.Tenant, nil, e.cfg.Late)
	if err != nil {
		return found, nil, err
	}
	if found, err = e.amend(s.Digest, s.Tenant, found); err != nil {
		dismiss(late)
		return found, nil, err
	}
	return found, late, nil
}

// dismiss gives up on late replies.
func dismiss(late receipts.Late) {
	if late == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late(ctx)
}

// follow waits, behind the end of a submission, for what archives still answer,
// and announces one event job.updated if that added records. A submission that
// has not ended asks again, and is not followed. What a stop interrupts is not
// told: a lookup shows it.
func (e *Engine) follow(s *submission, seal *chain.Seal, late receipts.Late) {
	if late == nil {
		return
	}
	if s.Status != wire.StatusCompleted {
		dismiss(late)
		return
	}
	s = s.clone()
	e.wg.Go(func() {
		found, more := late(e.ctx)
		if !more {
			return
		}
		if err := e.updated(e.ctx, s, seal, found); err != nil && e.ctx.Err() == nil {
			e.cfg.Log.Warn("late replies were not announced", "submission", s.ID, "err", err)
		}
	})
}

// updated stores the bytes of the one event that tells of late replies, and
// announces them.
func (e *Engine) updated(ctx context.Context, s *submission, seal *chain.Seal, found receipts.Gathered) error {
	found, err := e.amend(s.Digest, s.Tenant, found)
	if err != nil {
		return err
	}
	view, err := e.completed(ctx, s, seal, s.IncludeAttached, found)
	if err != nil {
		return err
	}
	job, err := receipts.Assemble(view)
	if err != nil {
		return err
	}
	event, err := wire.Encode(wire.Event{ID: wire.NewEventID(), Event: wire.EventUpdated, TenantID: s.Tenant, Job: job})
	if err != nil {
		return fmt.Errorf("jobs: encode event: %w", err)
	}
	key, told := eventKey(s.ref(), 1), false
	err = e.store.update(ctx, func(t *tx) (err error) {
		if _, told, err = t.get(rowKey(rowEvent, key)); err != nil || told {
			return err
		}
		t.set(rowKey(rowEvent, key), frameRow(event))
		t.set(rowKey(rowUnannounced, key), nil)
		return nil
	})
	if err != nil || told {
		return err
	}
	e.metrics.updated.Inc()
	if err := e.at("late.committed"); err != nil {
		return err
	}
	e.announce(key)
	return nil
}
