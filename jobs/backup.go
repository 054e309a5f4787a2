package jobs

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// Backup adds a copy of the job store to a backup, under rel, as it is at one
// instant. Work goes on. The ledger must be copied later, not before: every seal
// that the copy knows of has to be in the copy of the ledger.
func (e *Engine) Backup(ctx context.Context, b *pebblex.Backup, rel string) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return errClosed
	}
	e.wg.Add(1) // Close waits
	e.mu.Unlock()
	defer e.wg.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(e.ctx, stop)()
	return b.AddStore(ctx, rel, e.store.db, e.cfg.Dir)
}

// Seals tells whether and how a digest is sealed.
type Seals interface {
	Lookup(ctx context.Context, digest wire.Digest) (chain.Seal, bool, error)
}

// A Stopped is a job store whose engine does not run.
type Stopped struct {
	store *store
	dir   string
}

// OpenStopped opens the job store in dir without working on it. It is refused
// while an engine has it open. Nil fs is the disk. The caller closes it.
func OpenStopped(fs vfs.FS, dir string, log *slog.Logger) (*Stopped, error) {
	s, err := openStore(pebblex.Options{Dir: dir, FS: fs, Log: log})
	if err != nil {
		return nil, err
	}
	return &Stopped{s, dir}, nil
}

// Backup is [Engine.Backup].
func (s *Stopped) Backup(ctx context.Context, b *pebblex.Backup, rel string) error {
	return b.AddStore(ctx, rel, s.store.db, s.dir)
}

// Close closes the store.
func (s *Stopped) Close() error { return s.store.close() }

// CheckReport counts what Check has read.
type CheckReport struct {
	Submissions, Unfinished, Outbox, Events, Jobs uint64
}

// maxFindings ends a check: what is that broken needs no longer list.
const maxFindings = 100

// errEnough ends a walk.
var errEnough = errors.New("jobs: too much is wrong")

// Check reads every row of the store, what it refers to, and the seals that it
// knows of. It returns what is wrong, at most some 100 findings, each a
// fault.Corrupt; the error says that it could not go on. A nil seals leaves the
// ledger out.
func (s *Stopped) Check(ctx context.Context, seals Seals) (report CheckReport, found []error, err error) {
	err = s.store.view(func(r pebble.Reader) error {
		c := &checker{r: r, seals: seals}
		err := c.run(ctx)
		report, found = c.report, c.found
		return err
	})
	switch {
	case errors.Is(err, errEnough):
		err = nil
	case pebble.IsCorruptionError(err):
		err = fault.Wrap(fault.Corrupt, err)
	}
	return report, found, err
}
