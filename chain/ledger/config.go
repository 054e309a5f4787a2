package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

// DefaultOrigin names a ledger whose operator gave no name. It is under a
// reserved domain: nobody else's certificates carry it by right.
const DefaultOrigin = "verae.local/ledger"

// DefaultGuardEvery is the default of Config.GuardEvery.
const DefaultGuardEvery = time.Second

// Limits of the committer. A block has at most maxBlock leaves, or those of one
// call; maxQueue calls may wait for the next block before Register blocks.
const (
	maxQueue = 4096
	maxCalls = 1024
	maxBlock = 2048
)

// clockWarning is how far ahead of the clock the last block may be before Open
// logs it.
const clockWarning = time.Minute

// Config says where a ledger is and who it is.
type Config struct {
	// Dir is the ledger's directory. It is made by Init.
	Dir string
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// Origin names the log in every checkpoint and is the name of its key, like
	// example.com/ledger; tlogx.CheckOrigin says what is allowed. It can not be
	// changed later. Init: empty means DefaultOrigin. Open: empty means the one
	// that is stored, any other must be equal to it.
	Origin string
	// Guard is the path of the fork guard; empty means ledger.checkpoint in Dir.
	// On another disk than Dir it also catches a restored snapshot of the disk.
	Guard string
	// GuardEvery is the shortest time between two writes of the guard; 0 means
	// DefaultGuardEvery. A rollback by less than this goes unnoticed.
	GuardEvery time.Duration
	// AdoptStore makes Open write a missing guard anew from what the store holds.
	// It is the operator's word that the store is the newest there ever was.
	AdoptStore bool
	// CacheSize is the block cache in bytes; 0 means the default of pebblex.
	CacheSize int64
	// Now is the clock; nil means time.Now. A clock that steps back never takes
	// the time of a block back, one that was ahead holds later blocks at its
	// highest reading.
	Now func() time.Time
	// Log receives the ledger's events; nil discards them.
	Log *slog.Logger
	// OnFatal is called when the store failed a write and can not go on. It must
	// not return; nil ends the process (pebblex.Exit).
	OnFatal func(reason string)
}

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Guard == "" {
		c.Guard = c.path("ledger.checkpoint")
	}
	if c.GuardEvery <= 0 {
		c.GuardEvery = DefaultGuardEvery
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) path(name string) string { return c.FS.PathJoin(c.Dir, name) }

func (c Config) keyFile() string { return c.path("ledger.key") }

// newKeyFile holds the key until Init is done.
func (c Config) newKeyFile() string { return c.path("ledger.key.new") }

func (c Config) store() string { return c.path("ledger.db") }

// exists reports whether there is something at path.
func (c Config) exists(path string) (bool, error) {
	_, err := c.FS.Stat(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("ledger: %w", err)
}

func checkOrigin(origin string) error {
	if err := tlogx.CheckOrigin(origin); err != nil {
		return fault.New(fault.Invalid, "BAD_ORIGIN", "ledger: %w", err).InField("origin")
	}
	return nil
}
