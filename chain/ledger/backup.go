package ledger

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

// Backup adds a copy of the ledger to a backup, under rel: its store as it is at
// one instant, with every block that was answered before the call, and its key.
// Sealing goes on. The fork guard is left out: what a backup remembers is as old
// as the backup, and can guard nothing.
func (l *Ledger) Backup(ctx context.Context, b *pebblex.Backup, rel string) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.mu.RUnlock()
	if err := b.AddStore(ctx, path.Join(rel, "ledger.db"), l.db, l.cfg.store()); err != nil {
		return err
	}
	return b.AddBytes(path.Join(rel, "ledger.key"), []byte(l.key.text))
}

// CheckCopy opens a copy of a ledger that nothing is sealed with, checks all of
// it, and returns the end of its log. It makes a guard in cfg.Dir.
func CheckCopy(ctx context.Context, cfg Config) (end *pebblex.BackupLog, err error) {
	cfg.Guard, cfg.AdoptStore = "", true
	l, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Check(ctx); err != nil {
		return nil, err
	}
	return l.end(), nil
}

// end is the end of the log, as a manifest has it.
func (l *Ledger) end() *pebblex.BackupLog {
	h := l.head.Load()
	return &pebblex.BackupLog{Origin: l.cfg.Origin, Size: h.size, Root: h.root.String(), Checkpoint: string(h.checkpoint)}
}

// Adopt makes a copy that was restored to cfg.Dir a ledger that may seal on. It
// checks all of it, and writes its fork guard from what it holds.
//
// A log must never sign two checkpoints of which neither continues the other.
// So the copy has to contain every checkpoint in remembered, signed notes of
// this log that somebody kept: the old fork guard, what archives have witnessed,
// certificates. A copy that is behind one (fault.Corrupt, LEDGER_ROLLED_BACK) or
// beside it (LEDGER_FORKED) is refused. With none it is refused as well
// (LEDGER_UNGUARDED), unless newest is set: the operator's word that nothing was
// sealed after the copy was made. Without that word the ledger seals nothing new
// before witnesses have cosigned what it holds: they may know more than was given.
func Adopt(ctx context.Context, cfg Config, remembered [][]byte, newest bool) (end *pebblex.BackupLog, err error) {
	cfg = cfg.withDefaults()
	guarded, err := cfg.exists(cfg.Guard) // on another disk it may have survived what the ledger did not
	if err != nil {
		return nil, err
	}
	if len(remembered) == 0 && !newest && !guarded {
		return nil, fault.New(fault.Invalid, "LEDGER_UNGUARDED", "ledger: nobody can tell whether seals were made after this copy, and sealing on without them would fork the log: give the newest checkpoint that is known (the old ledger.checkpoint, or what an archive has witnessed), or say that the copy is the newest there is")
	}
	cfg.AdoptStore = true
	l, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Check(ctx); err != nil {
		return nil, err
	}
	for _, signed := range remembered {
		if err := l.contains(signed); err != nil {
			return nil, err
		}
	}
	if !newest {
		if err := pebblex.WriteFile(cfg.FS, cfg.restoredFile(), []byte(restoredText), 0o600); err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
	}
	return l.end(), nil
}

// contains refuses a checkpoint that the log does not continue.
func (l *Ledger) contains(signed []byte) error {
	seen, err := tlogx.OpenCheckpoint(signed, l.key.verifier)
	if err != nil {
		return fault.New(fault.Invalid, "LEDGER_CHECKPOINT", "ledger: not a checkpoint of %s: %w", l.key.vkey, err)
	}
	head := l.head.Load()
	if seen.Size > head.size {
		return fault.New(fault.Corrupt, "LEDGER_ROLLED_BACK", "ledger: the copy has %d leaves, but a checkpoint over %d was signed: %d seals are missing, and a log that seals on without them forks; restore a newer copy", head.size, seen.Size, seen.Size-head.size)
	}
	root, err := tlog.TreeHash(seen.Size, hashReader(l.db))
	if err != nil {
		return fault.Wrap(kindOf(err), err)
	}
	if root != seen.Root {
		return fault.New(fault.Corrupt, "LEDGER_FORKED", "ledger: the copy does not continue the checkpoint over %d leaves that was signed: it belongs to another history; restore the right one", seen.Size)
	}
	return nil
}
