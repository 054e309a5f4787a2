package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/jobs"
)

// aggregatorBackup is `aggregator backup`.
type aggregatorBackup struct {
	To          string `required:"" help:"Directory for the backup of ledger, job store, roster and API keys; absent or empty."`
	VaultTo     string `help:"Directory for a backup of the tenants' keys, of its own: who has both reads private metadata, and a key that was forgotten lives on in it. Empty: the vault is left out."`
	VaultBeside bool   `help:"Allow VAULT-TO to be below or above TO."`
}

// Run makes a backup: of a running aggregator by asking it for copies, else of
// its directory.
func (c *aggregatorBackup) Run(ctx context.Context, env Env[Aggregator]) error {
	cfg := env.Config
	if err := mustExist(cfg.DataDir, dirJobs, "aggregator"); err != nil {
		return err
	}
	to, vaultTo, err := c.targets(cfg)
	if err != nil {
		return err
	}
	b, running, err := startBackup(ctx, cfg.Common, to, func() (*pebblex.Backup, error) { return cfg.copyStopped(ctx, to, env.Log) })
	if err != nil {
		return err
	}
	m, err := b.Finish(ctx, func(dir string) (*pebblex.BackupLog, error) { return checkCopy(ctx, dir, env.Log) })
	if err != nil {
		return err
	}
	fmt.Fprintln(env.Stdout, told(place(to), m, running))
	if vaultTo == "" {
		fmt.Fprintln(env.Stdout, "the vault is not in it; --vault-to makes a backup of it")
		return nil
	}
	// After the job store: the keys of all that is sealed in its copy are there.
	v, err := backupVault(ctx, cfg.vaultDir(), vaultTo)
	if err != nil {
		return err
	}
	fmt.Fprintln(env.Stdout, told(place(vaultTo), v, running))
	return nil
}

// targets are the directories for the backups. That of the vault may share
// neither directory nor fate with the other by mistake.
func (c *aggregatorBackup) targets(cfg Aggregator) (to, vaultTo string, err error) {
	if to, err = target("--to", c.To, cfg.DataDir); err != nil || c.VaultTo == "" {
		return to, "", err
	}
	if vaultTo, err = target("--vault-to", c.VaultTo, cfg.DataDir); err != nil {
		return "", "", err
	}
	if vaultTo == to || (within(vaultTo, to) || within(to, vaultTo)) && !c.VaultBeside {
		return "", "", fault.New(fault.Invalid, "VAULT_APART", "--vault-to: %s and %s are one place: whoever has both can read private metadata, and a forgotten key would come back with the rest; name another, or say --vault-beside", vaultTo, to).InField("--vault-to")
	}
	return to, vaultTo, nil
}

// copyStopped copies the stores of an aggregator that does not run.
func (c *Aggregator) copyStopped(ctx context.Context, to string, log *slog.Logger) (b *pebblex.Backup, err error) {
	store, err := jobs.OpenStopped(nil, c.path(dirJobs), log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	sealed, err := ledger.Open(c.ledgerConfig(log))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sealed.Close()) }()
	if b, err = pebblex.NewBackup(nil, to, kindAggregator, sealed.Origin(), time.Now()); err != nil {
		return nil, err
	}
	return b, c.copyTo(ctx, b, store.Backup, sealed.Backup)
}

// copyTo copies the parts of an aggregator in the one order that makes the copy
// sound. Every seal that the job store knows of must be in the ledger, or it
// would be made a second time: so the ledger comes later. An archive that the
// memory knows of must be in the roster, and one that holds copies as well, or
// answers would look complete without it: so the roster comes after both. What a
// later part knows and an earlier one does not is found again: a seal by asking
// the ledger, a copy by putting once more.
func (c *Aggregator) copyTo(ctx context.Context, b *pebblex.Backup, copyJobs, copyLedger func(context.Context, *pebblex.Backup, string) error) error {
	if err := copyJobs(ctx, b, dirJobs); err != nil {
		return err
	}
	if err := copyLedger(ctx, b, dirLedger); err != nil {
		return err
	}
	roster := c.path(fileRoster)
	if err := addFile(ctx, b, filepath.Base(bus.MemoryPath(roster)), bus.MemoryPath(roster)); err != nil {
		return err
	}
	if err := b.AddFile(ctx, fileRoster, roster); err != nil {
		return err
	}
	return addFile(ctx, b, fileKeys, c.KeysFile())
}

// backupOrders are the orders that a running aggregator takes.
func (a *aggregator) backupOrders() map[string]order {
	return map[string]order{
		orderBackup: takeBackup(kindAggregator, a.ledger.Origin(), func(ctx context.Context, b *pebblex.Backup) error {
			if err := a.roster.SaveMemory(); err != nil {
				return err
			}
			return a.copyTo(ctx, b, a.engine.Backup, a.ledger.Backup)
		}),
	}
}

// checkCopy opens and checks everything in a copy of an aggregator's directory
// that nobody works with.
func checkCopy(ctx context.Context, dir string, log *slog.Logger) (end *pebblex.BackupLog, err error) {
	cfg := ledger.Config{Dir: filepath.Join(dir, dirLedger), Log: log}
	if end, err = ledger.CheckCopy(ctx, cfg); err != nil {
		return nil, err
	}
	return end, checkRest(ctx, dir, cfg, log)
}

// checkRest checks what is beside the ledger, and that the two agree.
func checkRest(ctx context.Context, dir string, cfg ledger.Config, log *slog.Logger) (err error) {
	sealed, err := ledger.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sealed.Close()) }()
	store, err := jobs.OpenStopped(nil, filepath.Join(dir, dirJobs), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	_, found, err := store.Check(ctx, sealed)
	if err := errors.Join(append(found, err)...); err != nil {
		return err
	}
	roster, err := bus.OpenRoster(bus.RosterConfig{Path: filepath.Join(dir, fileRoster), Log: log})
	if err != nil {
		return err
	}
	if err := roster.Close(); err != nil {
		return err
	}
	_, err = edge.ListKeys(filepath.Join(dir, fileKeys))
	if fault.Is(err, fault.NotFound) {
		return nil // a directory may do without: API_KEYS_FILE names another
	}
	return err
}
