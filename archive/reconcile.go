package archive

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// reconcileBatch is how many records are looked at together: one question to
// every live archive, and one step of the cursor.
const reconcileBatch = wire.MaxPullIDs

// saveEvery is how often the cursor is written while a reconciliation runs.
const saveEvery = time.Second

// ReconcilerConfig says what a reconciler works on.
type ReconcilerConfig struct {
	Node   *Node
	Puller *Puller
	Fleet  Fleet
	// Copies is PUT_COPIES: how many live copies a record should have, or as many
	// as there are enrolled archives. Control records should be on every live
	// one. Less than 1 counts as 1.
	Copies int
	// Every is how long after the end of one reconciliation the next begins by
	// itself; 0 means never. Those that were asked for, or cut short, run anyway.
	Every time.Duration
	// PerSecond is how many records a reconciliation that nobody asked for goes
	// through in a second; 0 means as many as it can.
	PerSecond int
	// Log gets what is copied and what can not be; nil discards.
	Log *slog.Logger
}

// Reconciler finds the records of this archive, and the files they name, that
// have too few live copies in the fleet, and has them copied: it walks its own
// log, asks every live enrolled archive which of the records it has, and tells
// the best-ranked that lacks one to pull it. A copy on an archive that is silent
// does not count, once it has been silent for an hour or somebody asked; should
// it come back, there is one more, and nothing is ever removed for it. It also gets
// back what was lost here and is there elsewhere.
//
// Every archive looks after what it holds: a record whose other copy is gone is
// found where the one that is left rests. Of several holders the first-ranked
// sees to it, unless a reconciliation was asked for: then all is seen to.
//
// The cursor is kept on disk, so that a reconciliation that was cut short goes
// on where it was.
type Reconciler struct {
	cfg    ReconcilerConfig
	fs     vfs.FS
	log    *slog.Logger
	opened time.Time
	wake   chan struct{}
	pause  func(context.Context, time.Duration) bool
	silent map[wire.ArchiveID]time.Time // since when; of the goroutine of Reconcile

	mu    sync.Mutex // guards all below
	state reconcileState
	saved time.Time
}

// NewReconciler returns a reconciler that goes on where the last one of this
// archive stopped, once Run is called.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Copies = max(cfg.Copies, 1)
	n := cfg.Node.cfg
	r := &Reconciler{
		cfg: cfg, fs: n.FS, log: cfg.Log.With("archive", string(n.ID)),
		opened: n.Now(), wake: make(chan struct{}, 1), pause: pause,
		silent: map[wire.ArchiveID]time.Time{},
	}
	r.state = r.load()
	return r
}

// Start begins a reconciliation of everything, unless one is under way, and
// returns the state of it. One under way that saw only to its own share sees to
// everything from where it is.
func (r *Reconciler) Start() wire.ReconcileProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.Progress.Running {
		r.begin()
	}
	r.state.All = true
	r.save()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return r.state.Progress
}

// begin sets the state to that of a new reconciliation. mu is held.
func (r *Reconciler) begin() {
	r.state = reconcileState{Version: reconcileVersion, Progress: wire.ReconcileProgress{
		ArchiveID: r.cfg.Node.cfg.ID, Running: true, End: r.cfg.Node.Seq(), StartedAt: wire.At(r.cfg.Node.cfg.Now()),
	}}
}

// Progress returns how far the reconciliation is, or how the last one ended.
func (r *Reconciler) Progress() wire.ReconcileProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Progress
}

// Healthy returns an error if the last reconciliation left records with too few
// copies, or ended early.
func (r *Reconciler) Healthy() error {
	switch p := r.Progress(); {
	case p.Failed > 0:
		return fault.New(fault.Transient, "COPIES", "archive: %d copies of records could not be made: %s", p.Failed, text(p.Problem))
	case !p.Running && p.Problem != nil:
		return fault.New(fault.Transient, "COPIES", "archive: the reconciliation ended early: %s", text(p.Problem))
	}
	return nil
}

func text(p *wire.Problem) string {
	if p == nil {
		return "no reason is known"
	}
	return p.Message
}

// Reconcile goes on with the reconciliation under way, or begins one, and
// returns when it has ended. Copies that can not be made are counted and do not
// end it. An error says why it stopped: after one of kind fault.Transient, and
// when ctx ended, the next call goes on with it, also that of another process.
// Only one call may run at a time.
func (r *Reconciler) Reconcile(ctx context.Context) error {
	r.mu.Lock()
	if !r.state.Progress.Running {
		r.begin()
		r.save()
	}
	r.mu.Unlock()
	if err := r.cfg.Fleet.Settle(ctx); err != nil {
		return err
	}
	r.log.Info("reconciliation", "from", r.Progress().Seq, "to", r.Progress().End)
	err, more := r.regain(ctx), true
	for {
		if err == nil {
			more, err = r.step(ctx)
		}
		switch {
		case ctx.Err() != nil:
			r.keep(nil)
			return ctx.Err()
		case fault.Is(err, fault.Transient):
			r.keep(err)
			return err
		case err == nil && more:
			r.spread(ctx)
			continue
		}
		r.end(err)
		return err
	}
}

// spread waits for as long as the records of a step may take, unless somebody has
// asked for the reconciliation.
func (r *Reconciler) spread(ctx context.Context) {
	if r.cfg.PerSecond <= 0 {
		return
	}
	for left := reconcileBatch * time.Second / time.Duration(r.cfg.PerSecond); left > 0; left -= askPause {
		r.mu.Lock()
		asked := r.state.All
		r.mu.Unlock()
		if asked || !r.pause(ctx, min(left, askPause)) {
			return
		}
	}
}

// step looks at the next records and sees to those with too few copies.
func (r *Reconciler) step(ctx context.Context) (more bool, err error) {
	r.mu.Lock()
	from, all := r.state.Progress, r.state.All
	r.mu.Unlock()
	entries, next, err := r.page(ctx, from.Seq, from.End)
	if err != nil {
		return false, err
	}
	b := batch{r: r, all: all}
	if len(entries) > 0 {
		if err := b.run(ctx, entries); err != nil {
			return false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.state.Progress
	p.Seq, p.Missing, p.Copied, p.Failed = next, p.Missing+b.missing, p.Copied+b.copied, p.Failed+b.failed
	if b.last != nil {
		p.Problem = problemOf(b.last)
	} else if p.Failed == 0 {
		p.Problem = nil // of a pause
	}
	if r.cfg.Node.cfg.Now().Sub(r.saved) >= saveEvery {
		r.save()
	}
	return p.Seq < p.End, nil
}

// entry is a record that should have copies.
type entry struct {
	id      wire.RecordID
	control bool
	key     [32]byte // placement key
	whole   bool     // the file it names, if any, is here
}

// page lists the next records of this archive.
//
// The placement key of a submission is its digest where that was known in time,
// else its submissionId, and a record does not tell which. The digest is taken
// for all: it is the right one for most, and a record that ranks differently
// here than where it was placed loses nothing. Queries find records by filter,
// so that any archive is a valid holder; what matters is that all archives rank
// a record alike here.
func (r *Reconciler) page(ctx context.Context, after, end uint64) (entries []entry, next uint64, err error) {
	n := r.cfg.Node
	if err := n.enter(); err != nil {
		return nil, after, err
	}
	defer n.leave()
	var files error
	next, err = n.walk(ctx, after, end, reconcileBatch, func(rec wire.Record) {
		whole, err := n.hasFile(ctx, rec.File)
		files = errors.Join(files, err)
		entries = append(entries, entry{id: rec.ID, control: rec.Kind.Control(), key: rec.SHA256, whole: whole})
	})
	return entries, next, errors.Join(err, files)
}

// keep writes the cursor of a reconciliation that will go on later, and why it
// can not now.
func (r *Reconciler) keep(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why != nil {
		r.state.Progress.Problem = problemOf(why)
	}
	r.save()
}

// end ends the reconciliation.
func (r *Reconciler) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.state.Progress
	p.Running = false
	if err != nil {
		p.Problem = problemOf(err)
	} else {
		p.DoneAt = wire.At(r.cfg.Node.cfg.Now())
		r.log.Info("reconciled", "records", p.Seq, "missing", p.Missing, "copied", p.Copied, "failed", p.Failed)
	}
	r.save()
}
