package daemon

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// aggregatorRestore is `aggregator restore`.
type aggregatorRestore struct {
	From      string   `required:"" help:"Directory of the backup."`
	VaultFrom string   `help:"Directory of the vault's backup, restored to VAULT_DIR. Empty: the vault is left alone."`
	Guard     []string `sep:"," help:"Files with the newest checkpoints of the ledger that anybody has: ledger.checkpoint of the old directory, what archives have witnessed (records/witness/), the checkpoint of a certificate. A backup that is behind one is refused."`
	Newest    bool     `help:"Your word that nothing was sealed after the backup was made. Without it, or a GUARD, nothing is restored."`
}

// Run makes the data directory from a backup. Until all of it was opened and
// checked nothing has the name of the data directory.
func (c *aggregatorRestore) Run(ctx context.Context, env Env[Aggregator]) error {
	cfg := env.Config
	m, err := pebblex.ReadManifest(nil, c.From, kindAggregator)
	if err != nil {
		return err
	}
	var keys *pebblex.Manifest
	if c.VaultFrom != "" {
		v, err := pebblex.ReadManifest(nil, c.VaultFrom, kindVault)
		if err != nil {
			return err
		}
		keys = &v
	}
	remembered, err := readNotes(c.Guard)
	if err != nil {
		return err
	}
	inside := within(filepath.Clean(cfg.vaultDir()), filepath.Clean(cfg.DataDir))
	if keys != nil && !inside {
		if err := c.restoreVault(ctx, *keys, cfg.vaultDir()); err != nil {
			return err
		}
	}
	err = pebblex.Restore(ctx, nil, c.From, m, filepath.Clean(cfg.DataDir), func(dir string) error {
		half := cfg
		half.DataDir = dir
		end, err := ledger.Adopt(ctx, half.ledgerConfig(env.Log), remembered, c.Newest)
		if err != nil {
			return err
		}
		if m.Log == nil || *end != *m.Log {
			return fault.New(fault.Corrupt, "BACKUP_BROKEN", "daemon: the ledger in %s is not the one that its manifest names", c.From)
		}
		if err := checkRest(ctx, dir, half.ledgerConfig(env.Log), env.Log); err != nil || keys == nil || !inside {
			return err
		}
		return c.restoreVault(ctx, *keys, half.vaultDir())
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "%s: restored from the backup of %s; the ledger %s has %d leaves\n", cfg.DataDir, m.Created, m.Log.Origin, m.Log.Size)
	return c.hints(env)
}

func (c *aggregatorRestore) restoreVault(ctx context.Context, m pebblex.Manifest, to string) error {
	return pebblex.Restore(ctx, nil, c.VaultFrom, m, to, func(dir string) error {
		_, err := checkVault(dir)
		return err
	})
}

// hints says what is left to do.
func (c *aggregatorRestore) hints(env Env[Aggregator]) error {
	cfg := env.Config
	there, err := exists(cfg.vaultDir())
	if err != nil {
		return err
	}
	if !there {
		fmt.Fprintf(env.Stdout, "the vault is not restored: put it at %s, or restore it with --vault-from, before the start\n", cfg.vaultDir())
	}
	if cfg.KeysFile() != cfg.path(fileKeys) {
		fmt.Fprintf(env.Stdout, "API_KEYS_FILE is %s; the keys of the backup are in %s\n", cfg.KeysFile(), cfg.path(fileKeys))
	}
	fmt.Fprintln(env.Stdout, "API keys that were revoked after the backup are valid again: revoke them before the start (verae keys list, verae keys revoke)")
	return nil
}

// readNotes reads files with signed checkpoints.
func readNotes(files []string) (notes [][]byte, err error) {
	for _, name := range files {
		data, err := pebblex.ReadFile(nil, name, maxNote)
		if err != nil {
			return nil, fault.New(fault.Invalid, "LEDGER_CHECKPOINT", "--guard: %w", err).InField("--guard")
		}
		if _, seen, ok := bytes.Cut(data, []byte("\n\n")); ok && bytes.HasPrefix(data, []byte("verae-witness/")) {
			data = seen // behind what a witness says of the log
		}
		notes = append(notes, data)
	}
	return notes, nil
}

// maxNote bounds the file of a checkpoint, with cosignatures, in bytes.
const maxNote = 64 << 10
