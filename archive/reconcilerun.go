package archive

import (
	"context"
	"slices"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Run reconciles when it is asked to, when a reconciliation was cut short, and
// at intervals, until ctx ends. It returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	for {
		wait, scheduled := r.next()
		if wait <= 0 {
			err := r.Reconcile(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case fault.Is(err, fault.Transient):
				r.log.Warn("the reconciliation pauses", "err", err)
				select {
				case <-time.After(retryReconcile):
				case <-r.wake:
				case <-ctx.Done():
					return nil
				}
			case err != nil:
				r.log.Error("the reconciliation ended early; start it again when the cause is gone", "err", err)
			}
			continue
		}
		var timer <-chan time.Time
		if scheduled {
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-r.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// next returns how long to wait for the next reconciliation; scheduled is false
// if only a request begins one. One that is under way waits for nothing.
func (r *Reconciler) next() (wait time.Duration, scheduled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Progress.Running {
		return 0, true
	}
	if r.cfg.Every <= 0 {
		return time.Hour, false
	}
	last := r.cfg.Node.identity.created
	for _, t := range []wire.Time{r.state.Progress.StartedAt, r.state.Progress.DoneAt} {
		if at, ok := t.Instant(); ok && at.After(last) {
			last = at
		}
	}
	now := r.cfg.Node.cfg.Now()
	if wait = last.Add(r.cfg.Every).Sub(now); wait > r.cfg.Every {
		wait = r.cfg.Every // the clock was set back
	}
	return max(wait, settleTime-max(now.Sub(r.opened), 0)), true
}

// retryReconcile is how long a reconciliation pauses that can not go on now.
const retryReconcile = time.Minute

// silentGrace is how long an archive may be silent before a reconciliation that
// nobody asked for makes new copies of what it holds. Copies stay for ever: one
// that is restarted, or moved, must not cause them.
const silentGrace = time.Hour

// patient returns an error of kind fault.Transient if an archive whose copies
// would count has been silent for less than silentGrace. It is called by one
// goroutine.
func (r *Reconciler) patient(counted, live []wire.ArchiveID) error {
	now := r.cfg.Node.cfg.Now()
	for _, id := range counted {
		if slices.Contains(live, id) {
			delete(r.silent, id)
			continue
		}
		since, known := r.silent[id]
		if !known {
			since = now
			r.silent[id] = now
		}
		if left := silentGrace - now.Sub(since); left > 0 {
			return fault.New(fault.Transient, "NO_ARCHIVE", "archive: %s is silent; its copies count as lost in %s, or when a reconciliation is asked for", id, left.Round(time.Second))
		}
	}
	return nil
}

// settleTime is how long after its start an archive begins nothing by itself.
const settleTime = time.Minute
