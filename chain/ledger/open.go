package ledger

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// Open opens the ledger in cfg.Dir. It refuses one that is not there, whose key
// or origin differ from what the store was made with, that another process has
// open, or that is behind or beside a checkpoint it signed: each with an error
// that says what to do. It reads the newest block and a few hashes; Check reads
// everything.
func Open(cfg Config) (_ *Ledger, err error) {
	cfg = cfg.withDefaults()
	key, err := openKey(cfg)
	if err != nil {
		return nil, err
	}
	if name := key.signer.Name(); cfg.Origin != "" && cfg.Origin != name {
		return nil, fault.New(fault.Conflict, "LEDGER_ORIGIN", "ledger: the log in %s is %s, not %s; an origin can not be changed: configure the stored one, or another directory", cfg.Dir, name, cfg.Origin).InField("origin")
	}
	cfg.Origin = key.signer.Name()

	l := &Ledger{cfg: cfg, key: key, stopped: make(chan struct{}), metrics: newMetrics()}
	onFatal := cfg.OnFatal
	if onFatal == nil {
		onFatal = pebblex.Exit
	}
	cfg.OnFatal = func(reason string) {
		l.stop(fmt.Errorf("the store failed: %s", reason))
		onFatal(reason)
	}
	if l.db, err = openStore(cfg, false); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.db.Close())
		}
	}()
	if err := checkMeta(l.db, key); err != nil {
		return nil, err
	}
	h, err := l.recover()
	if err != nil {
		return nil, err
	}
	stale, err := checkGuard(cfg, key, h.size, hashReader(l.db))
	if err != nil {
		return nil, err
	}
	if ahead := h.time.Sub(cfg.Now()); ahead > clockWarning {
		cfg.Log.Warn("the clock is behind the newest seal; seals keep the time of that one until it has caught up", "dur", ahead)
	}
	if err := l.beginProbation(); err != nil {
		return nil, err
	}
	l.start(h, stale)
	return l, nil
}

// start begins to take calls.
func (l *Ledger) start(h *head, guardIsStale bool) {
	l.apply = func(b *pebble.Batch) error { return b.Commit(pebble.Sync) }
	l.head.Store(h)
	l.metrics.size.Set(float64(h.size))
	l.guard = newGuard(l.cfg.GuardEvery,
		func(signed []byte) error { return pebblex.WriteFile(l.cfg.FS, l.cfg.Guard, signed, 0o644) },
		func(err error) {
			l.metrics.guardErrors.Inc()
			l.cfg.Log.Error("the newest checkpoint could not be kept; a rollback might go unnoticed", "err", err)
		})
	if guardIsStale {
		l.guard.offer(h.checkpoint)
	}
	l.committer = pebblex.NewCommitter(pebblex.CommitterConfig[*call]{
		Queue:    maxQueue,
		MaxItems: maxCalls,
		MaxBytes: maxBlock,
		Size:     func(c *call) int { return len(c.entries) },
		Commit:   l.commit,
	})
	l.cfg.Log.Info("ledger open", "origin", l.cfg.Origin, "leaves", h.size, "blocks", h.blocks)
}
