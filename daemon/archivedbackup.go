package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// archivedBackup is `archived backup`.
type archivedBackup struct {
	To string `required:"" help:"Directory for the backup of records and files; absent or empty."`
}

// Run makes a backup: of a running archive by asking it for copies, else of its
// directory.
func (c *archivedBackup) Run(ctx context.Context, env Env[Archived]) error {
	cfg := env.Config
	if err := cfg.Check(); err != nil {
		return err
	}
	if err := mustExist(cfg.DataDir, dirRecords, "archived"); err != nil {
		return err
	}
	to, err := target("--to", c.To, cfg.DataDir)
	if err != nil {
		return err
	}
	b, running, err := startBackup(ctx, cfg.Common, to, func() (*pebblex.Backup, error) { return cfg.copyStopped(ctx, to, env.Log) })
	if err != nil {
		return err
	}
	m, err := b.Finish(ctx, func(dir string) (end *pebblex.BackupLog, err error) {
		copied := cfg
		copied.DataDir = dir
		err = copied.withFiles(env.Log, func(files *blob.Store) error {
			end, err = archive.CheckCopy(ctx, copied.recordConfig(env.Log, files), files)
			return err
		})
		return end, err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(env.Stdout, told(place(to), m, running))
	return nil
}

// withFiles opens the file store for the time of fn.
func (c *Archived) withFiles(log *slog.Logger, fn func(*blob.Store) error) (err error) {
	files, err := blob.OpenStore(c.fileConfig(log, false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	return fn(files)
}

// copyStopped copies the stores of an archive that does not run.
func (c *Archived) copyStopped(ctx context.Context, to string, log *slog.Logger) (b *pebblex.Backup, err error) {
	err = c.withFiles(log, func(files *blob.Store) (err error) {
		node, err := archive.Open(c.recordConfig(log, files))
		if fault.CodeOf(err) == archive.CodeKeyLost {
			log.Warn("the archive's key is lost: all else is copied, and `archived restore` makes a new generation of it", "err", err)
			b, err = c.copyKeyless(ctx, to, log, files)
			return err
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, node.Close()) }()
		if b, err = pebblex.NewBackup(nil, to, kindArchive, c.ArchiveID, time.Now()); err != nil {
			return err
		}
		return copyArchive(ctx, b, node, files)
	})
	return b, err
}

// copyKeyless is copyStopped for an archive whose key is lost.
func (c *Archived) copyKeyless(ctx context.Context, to string, log *slog.Logger, files *blob.Store) (*pebblex.Backup, error) {
	b, err := pebblex.NewBackup(nil, to, kindArchive, c.ArchiveID, time.Now())
	if err != nil {
		return nil, err
	}
	if err := archive.BackupWithoutKey(ctx, c.recordConfig(log, files), b, dirRecords); err != nil {
		return nil, err
	}
	return b, files.Backup(ctx, b, dirFiles)
}

// copyArchive copies records before files: every file that a record in the copy
// names is in the copy.
func copyArchive(ctx context.Context, b *pebblex.Backup, node *archive.Node, files *blob.Store) error {
	if err := node.Backup(ctx, b, dirRecords); err != nil {
		return err
	}
	return files.Backup(ctx, b, dirFiles)
}

// backupOrders are the orders that a running archive takes for its backups.
func (c *Archived) backupOrders(node *archive.Node, files *blob.Store) map[string]order {
	return map[string]order{
		orderBackup: takeBackup(kindArchive, c.ArchiveID, func(ctx context.Context, b *pebblex.Backup) error {
			return copyArchive(ctx, b, node, files)
		}),
	}
}

// half is the configuration of an archive that is being restored in dir.
func (c Archived) half(dir string, id wire.ArchiveID) Archived {
	c.DataDir, c.ArchiveID = filepath.Clean(dir), string(id)
	return c
}
