// Package pebblex opens Pebble the way an append-only store needs it, and holds
// the few parts that every store of this system shares.
//
// Pebble's defaults are not safe enough for records that must never be lost:
// its default format loses fsynced records silently after one flipped bit in
// the log, a crash at the wrong moment leaves a store that does not open, and a
// failed write or a damaged block ends the process without a word. [Open] sets
// all of that right, in one place:
//
//   - the newest format, and one log rotation right after the store is made,
//     because the first log is still written in the oldest format;
//   - [SyncMarkers] around the file system (cockroachdb/pebble#5825);
//   - a logger and hooks of our own, so that nothing exits or goes on behind
//     the back of the program;
//   - a store is made only on request, and a missing one is never taken for an
//     empty one.
//
// [AppendOnly] refuses every batch that does more than add new keys,
// [Committer] turns many small writes into few large ones, and [WriteFile] and
// [Mkdir] make single files and directories durable.
package pebblex

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// Defaults of [Options]. They are small on purpose: several stores share a
// laptop. Twice MemTableSize is what a restart after a crash may have to
// replay.
const (
	DefaultCacheSize    = 32 << 20 // bytes of block cache
	DefaultMemTableSize = 16 << 20 // bytes of a memtable
)

const (
	blockSize        = 16 << 10 // bytes; larger blocks compress better and need a smaller index
	filterBits       = 10       // per key: about 1 % false positives
	liveTables       = 2        // memtables in memory under load: one filling, one being flushed
	stopWritesTables = 4        // memtables that may queue for flushing before writes stall
	maxCompactions   = 2        // compactions at a time; the machine is shared
)

var (
	// ErrExists is returned when a store is to be made where something is.
	ErrExists = errors.New("pebblex: the directory is not empty")
	// ErrMissing is returned when there is no store to open. A volume that is
	// not mounted looks like this, so no store is made in its place.
	ErrMissing = errors.New("pebblex: no store here")
	// ErrInUse is returned when another process, or this one, has the store open.
	ErrInUse = errors.New("pebblex: the store is in use")
)

// Options say where a store is and what happens when it fails.
type Options struct {
	// Dir is the store's own directory. Nothing else may be in it.
	Dir string
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// Create makes the store. Dir must then be absent or empty; otherwise the
	// store must be there.
	Create bool
	// CacheSize is the block cache in bytes; 0 means DefaultCacheSize. Pebble
	// takes the memory of memtables out of its cache, and a cache no larger than
	// two memtables holds nothing under load; they are added here, so that this
	// is what is left for blocks.
	CacheSize int64
	// MemTableSize is the size of a memtable in bytes; 0 means
	// DefaultMemTableSize.
	MemTableSize uint64
	// Log receives the store's events; nil discards them.
	Log *slog.Logger
	// OnFatal is called, on the goroutine at fault, when the store cannot go on:
	// a write to its log or its manifest failed, and what was written may or may
	// not be on disk. It must not return (exit, panic or runtime.Goexit); if it
	// does, the goroutine panics, because a write that went on would show a
	// record that is not durable. Nil means [Exit].
	OnFatal func(reason string)
	// OnCorruption is called when a stored block fails its checksum, and when work
	// in the background meets a disk that fails, then again and again. The read
	// that met it gets an error; the store stays open. It must be quick, since
	// reads wait for it. Nil means that the event is only logged.
	OnCorruption func(what string)
	// OnFull is called, before Open returns, when the disk has no room for what
	// opening the store writes. The store is then open read-only: nothing of it is
	// changed until it is opened anew, every write fails. Nil means that Open
	// returns the error, which says what to do.
	OnFull func(err error)
}

// Open opens the store in o.Dir, or makes it. The caller closes it. A directory
// it makes has mode 0700, and its name is durable when Open returns.
//
// What a crash left in the log is flushed before Open returns, so whatever can be
// read is durable. That takes room: see OnFull. A disk that refuses the flush for
// another reason keeps Open waiting; the log says so.
//
// Errors are ErrExists and ErrInUse (fault.Conflict), ErrMissing (fault.NotFound)
// where they apply, wrapped with the directory; [pebble.IsCorruptionError] tells
// of damaged files (fault.Corrupt), CodeDiskFull (fault.Transient) of a full disk.
func Open(o Options) (*pebble.DB, error) {
	o = o.withDefaults()
	if err := prepare(o); err != nil {
		return nil, err
	}
	if err := noRoom(o); err != nil {
		if o.OnFull == nil || o.Create || !fault.Is(err, fault.Transient) {
			return nil, err
		}
		db, openErr := openReadOnly(o)
		if openErr == nil {
			o.OnFull(err)
		}
		return db, openErr
	}
	p, paced := pebbleOptions(o)
	paced.opening.Store(true)
	db, err := pebble.Open(o.Dir, p)
	if err != nil {
		return nil, explain(o, err)
	}
	paced.opening.Store(false)
	if o.Create {
		// The log that is open now was begun before the format was raised and
		// has no sync offsets: damage in its middle would pass for its end.
		if err := db.Flush(); err != nil {
			return nil, errors.Join(fmt.Errorf("pebblex: first flush of %s: %w", o.Dir, err), db.Close())
		}
	}
	return db, nil
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OnFatal == nil {
		o.OnFatal = Exit
	}
	if o.CacheSize <= 0 {
		o.CacheSize = DefaultCacheSize
	}
	if o.MemTableSize == 0 {
		o.MemTableSize = DefaultMemTableSize
	}
	return o
}

// prepare checks that the directory is in the state the caller expects, and
// makes it if the store is to be made.
func prepare(o Options) error {
	names, err := o.FS.List(o.Dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("pebblex: list %s: %w", o.Dir, err)
	case o.Create && len(names) > 0:
		return errExists(o)
	case o.Create:
		return Mkdir(o.FS, o.Dir)
	}
	for _, name := range names {
		if strings.HasPrefix(name, markerPrefix+"manifest.") {
			return nil
		}
	}
	return errMissing(o)
}

func errExists(o Options) error {
	return fault.New(fault.Conflict, "NOT_EMPTY", "%w: %s; a store is made in a directory of its own", ErrExists, o.Dir)
}

func errMissing(o Options) error {
	return fault.New(fault.NotFound, "STORE_MISSING", "%w: %s (is the volume mounted? is it the right directory?)", ErrMissing, o.Dir)
}

// explain names the usual reasons for a failed open.
func explain(o Options, err error) error {
	switch {
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		return errMissing(o)
	case errors.Is(err, pebble.ErrDBAlreadyExists), errors.Is(err, pebble.ErrDBNotPristine):
		return errExists(o)
	case IsFull(err):
		return fault.New(fault.Transient, CodeDiskFull, "pebblex: open %s: %w", o.Dir, err).After(fullRetry)
	case pebble.IsCorruptionError(err):
		return fault.New(fault.Corrupt, "CORRUPT", "pebblex: open %s: %w", o.Dir, err)
	}
	// Pebble reports a held lock by the bare error of the system call, so the
	// lock is asked once more: if it is free now, it was not the reason.
	lock, lockErr := pebble.LockDirectory(o.Dir, o.FS)
	if lockErr != nil {
		return fault.New(fault.Conflict, "IN_USE", "%w: %s (stop the other process, or give each its own directory): %w", ErrInUse, o.Dir, err)
	}
	if closeErr := lock.Close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	return fmt.Errorf("pebblex: open %s: %w", o.Dir, err)
}

func pebbleOptions(o Options) (*pebble.Options, *pacer) {
	log := &logger{log: o.Log.With("store", o.Dir), fatal: o.OnFatal}
	paced := &pacer{log: log}
	p := &pebble.Options{
		FS:                          SyncMarkers(tellFS{paceFS{o.FS, paced}, log.failed}),
		FormatMajorVersion:          pebble.FormatNewest,
		ErrorIfExists:               o.Create,
		ErrorIfNotExists:            !o.Create,
		CacheSize:                   o.CacheSize + liveTables*int64(o.MemTableSize),
		MemTableSize:                o.MemTableSize,
		MemTableStopWritesThreshold: stopWritesTables,
		CompactionConcurrencyRange:  func() (int, int) { return 1, maxCompactions },
		Logger:                      log,
		EventListener:               listener(log, o.OnCorruption),
	}
	for i := range p.Levels {
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
	}
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	p.WithFSDefaults() // setting FS would otherwise drop the disk-slow check
	return p, paced
}
