package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

// Init makes an empty ledger with a key of its own in cfg.Dir. It refuses a
// directory that holds one (fault.Conflict, code LEDGER_EXISTS).
//
// The key is on disk before the store and gets its final name last: that name
// is what makes it a ledger. An Init that was interrupted before can be repeated,
// since nothing was signed for anybody.
func Init(cfg Config) error {
	cfg = cfg.withDefaults()
	origin := cmp.Or(cfg.Origin, DefaultOrigin)
	if err := checkOrigin(origin); err != nil {
		return err
	}
	begun, err := mayInit(cfg)
	if err != nil {
		return err
	}
	if begun {
		if err := clearRest(cfg); err != nil {
			return fmt.Errorf("ledger: remove the rest of an interrupted start: %w", err)
		}
	}
	for _, dir := range []string{cfg.Dir, cfg.FS.PathDir(cfg.Guard)} {
		if err := pebblex.Mkdir(cfg.FS, dir); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	key, err := generateKey(origin)
	if err != nil {
		return err
	}
	if err := pebblex.WriteFile(cfg.FS, cfg.newKeyFile(), []byte(key.text), 0o600); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := makeStore(cfg, key); err != nil {
		return err
	}
	empty, err := tlogx.Checkpoint{Origin: origin, Root: new(tlogx.Edge).Root()}.Sign(key.signer)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := pebblex.WriteFile(cfg.FS, cfg.Guard, empty, 0o644); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := cfg.FS.Rename(cfg.newKeyFile(), cfg.keyFile()); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := pebblex.SyncDir(cfg.FS, cfg.Dir); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	cfg.Log.Info("ledger made", "origin", origin, "verifier", key.vkey)
	return nil
}

// mayInit refuses to touch what may be a ledger; begun says that an earlier Init
// did not get to its end.
func mayInit(cfg Config) (begun bool, err error) {
	ready, err := cfg.exists(cfg.keyFile())
	if err != nil {
		return false, err
	}
	if ready {
		return false, fault.New(fault.Conflict, "LEDGER_EXISTS", "ledger: there is a ledger in %s", cfg.Dir)
	}
	begun, err = cfg.exists(cfg.newKeyFile())
	if err != nil {
		return false, err
	}
	store, err := cfg.exists(cfg.store())
	if err != nil {
		return false, err
	}
	if store && !begun {
		return false, fault.New(fault.Conflict, "LEDGER_EXISTS", "ledger: %s is there, but %s is missing; put the key file back", cfg.store(), cfg.keyFile())
	}
	return begun, guardIsFree(cfg, begun)
}

// guardIsFree refuses a guard file that remembers another log. After an
// interrupted Init it may be there with the empty checkpoint of the key at hand.
func guardIsFree(cfg Config, begun bool) error {
	signed, err := pebblex.ReadFile(cfg.FS, cfg.Guard, maxGuardFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if begun {
		key, err := readKey(cfg, cfg.newKeyFile())
		if err != nil {
			return err
		}
		if c, err := tlogx.OpenCheckpoint(signed, key.verifier); err == nil && c.Size == 0 {
			return nil
		}
	}
	return fault.New(fault.Conflict, "LEDGER_EXISTS", "ledger: %s remembers a log whose store is not here; restore that ledger, or name another guard file", cfg.Guard)
}

// clearRest removes what an interrupted Init left. No Open has ever used it. The
// guard goes for good before a new key is written, or the next try would find it
// signed by nobody.
func clearRest(cfg Config) error {
	if err := cfg.FS.RemoveAll(cfg.store()); err != nil {
		return err
	}
	guarded, err := cfg.exists(cfg.Guard)
	if err != nil || !guarded {
		return err
	}
	if err := cfg.FS.Remove(cfg.Guard); err != nil {
		return err
	}
	return pebblex.SyncDir(cfg.FS, cfg.FS.PathDir(cfg.Guard))
}

func makeStore(cfg Config, key signingKey) (err error) {
	db, err := openStore(cfg, true)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("ledger: close the new store: %w", cerr)
		}
	}()
	row := meta{created: cfg.Now(), vkey: key.vkey}.encode()
	if err := db.Set(metaKey(), row, pebble.Sync); err != nil {
		return fmt.Errorf("ledger: write the meta row: %w", err)
	}
	return nil
}

func openStore(cfg Config, create bool) (*pebble.DB, error) {
	db, err := pebblex.Open(pebblex.Options{
		Dir:       cfg.store(),
		FS:        cfg.FS,
		Create:    create,
		CacheSize: cfg.CacheSize,
		Log:       cfg.Log,
		OnFatal:   cfg.OnFatal,
	})
	switch {
	case errors.Is(err, pebblex.ErrInUse):
		return nil, fault.New(fault.Conflict, "LEDGER_IN_USE", "ledger: %w", err)
	case errors.Is(err, pebblex.ErrMissing):
		return nil, fault.New(fault.Corrupt, "LEDGER_LOST", "ledger: %s is there, but its store is not; restore the store: %w", cfg.keyFile(), err)
	case pebble.IsCorruptionError(err):
		return nil, fault.New(fault.Corrupt, "LEDGER_DAMAGED", "ledger: %w", err)
	case err != nil:
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return db, nil
}
