package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// Kinds of backups.
const (
	kindArchive    = "archive"
	kindAggregator = "aggregator"
	kindVault      = "vault"
)

// orderBackup is the name of the order to copy what is open.
const orderBackup = "backup"

// backupOrder asks a running program to copy its stores to a directory.
type backupOrder struct {
	To string `json:"to"`
}

// takeBackup is the order to a running program: copy what only this process can.
// The command that gave it opens the copy and makes it a backup.
func takeBackup(kind, id string, copyTo func(context.Context, *pebblex.Backup) error) order {
	return func(ctx context.Context, in []byte) (any, error) {
		o, err := wire.Decode[backupOrder](in)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err)
		}
		b, err := pebblex.NewBackup(nil, o.To, kind, id, time.Now())
		if err != nil {
			return nil, err
		}
		if err := copyTo(ctx, b); err != nil {
			return nil, err
		}
		return b.Draft(), nil
	}
}

// startBackup copies the stores of a program to a new backup: by itself when no
// process has them open, else by an order to the one that has. alone returns
// pebblex.ErrInUse, or a fault with one of the codes for it, if there is one.
func startBackup(ctx context.Context, c Common, to string, alone func() (*pebblex.Backup, error)) (b *pebblex.Backup, running bool, err error) {
	b, err = alone()
	if !inUse(err) {
		return b, false, err
	}
	draft, err := give[pebblex.Manifest](ctx, c.DataDir, orderBackup, backupOrder{To: to})
	if err != nil {
		return nil, true, err
	}
	b, err = pebblex.Resume(nil, to, draft)
	return b, true, err
}

// inUse reports whether a store could not be opened because a process has it.
func inUse(err error) bool {
	code := fault.CodeOf(err)
	return errors.Is(err, pebblex.ErrInUse) || code == "IN_USE" || code == "LEDGER_IN_USE" || code == "VAULT_LOCKED"
}

// target returns the absolute path of a directory that a backup may be made in.
// One inside the data directory would be lost with it.
func target(name, dir, dataDir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fault.New(fault.Invalid, "OUT_OF_RANGE", "%s: %w", name, err).InField(name)
	}
	data, err := filepath.Abs(dataDir)
	if err != nil {
		return "", fault.New(fault.Invalid, "OUT_OF_RANGE", "DATA_DIR: %w", err).InField("DATA_DIR")
	}
	if within(dir, data) {
		return "", fault.New(fault.Conflict, "BACKUP_TARGET", "%s: %s is inside the data directory %s; a backup belongs on another disk", name, dir, data).InField(name)
	}
	return dir, nil
}

// within reports whether a clean path is dir or inside it.
func within(p, dir string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// addFile copies a file of the data directory if it is there.
func addFile(ctx context.Context, b *pebblex.Backup, rel, source string) error {
	err := b.AddFile(ctx, rel, source)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// told is what a command says of a backup that is good.
func told(env fmt.Stringer, m pebblex.Manifest, running bool) string {
	how := "nothing had it open"
	if running {
		how = "copied by the running program"
	}
	var size int64
	for _, f := range m.Files {
		size += f.Size
	}
	line := fmt.Sprintf("%s: backup of %s %s: %d files, %d bytes; %s, opened and checked", env, m.Kind, m.ID, len(m.Files), size, how)
	if m.Log != nil {
		line += fmt.Sprintf("; log %s has %d leaves, root %s", m.Log.Origin, m.Log.Size, m.Log.Root)
	}
	return line
}

// place is a path as a Stringer.
type place string

func (p place) String() string { return string(p) }

// backupVault copies a vault to a backup of its own.
func backupVault(ctx context.Context, dir, to string) (pebblex.Manifest, error) {
	files, err := vault.Files(dir)
	if err != nil {
		return pebblex.Manifest{}, err
	}
	b, err := pebblex.NewBackup(nil, to, kindVault, kindVault, time.Now())
	if err != nil {
		return pebblex.Manifest{}, err
	}
	if err := b.AddDir("tenants"); err != nil {
		return pebblex.Manifest{}, err
	}
	for _, rel := range files {
		if err := b.AddFile(ctx, path.Clean(rel), filepath.Join(dir, filepath.FromSlash(rel))); err != nil {
			return pebblex.Manifest{}, err
		}
	}
	return b.Finish(ctx, func(dir string) (*pebblex.BackupLog, error) {
		_, err := checkVault(dir)
		return nil, err
	})
}

// checkVault opens a vault that no process uses and reads all its keys.
func checkVault(dir string) (tenants int, err error) {
	v, err := vault.Open(vault.Config{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return v.Check()
}
