package archive

import (
	"context"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// Bounds of the committer. A commit takes as many records as fit; a record that
// is larger than a batch is one by itself.
const (
	maxBatchRecords = 1000
	maxBatchBytes   = 1 << 20
	// maxQueued is how many puts may wait for the committer. With the largest
	// bodies they hold maxQueued times wire.MaxSealedBody of memory.
	maxQueued = 512
	// maxPairs is how many pairs of a batch keep their memory.
	maxPairs = 1 << 16
)

// Config says where an archive is and what it stands on.
type Config struct {
	// Dir is the archive's directory. Nothing but the archive may be in it.
	Dir string
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// ID is the archive's id. It is stored by Init; Open refuses another.
	ID wire.ArchiveID
	// Files knows the bytes of files. Nil means that the archive takes no file
	// records.
	Files Files
	// Bloom sizes the filters, each of which gets half of MaxBytes. A Capacity below
	// what the store holds is raised.
	Bloom bloom.Params
	// FilterKeyFile is a file on the disk, whatever FS is, with the key that all
	// filters of a fleet share, see NewFilterKey; nobody but its owner may read it.
	// It decides Bloom.Secret. Without both the archive has a key of its own, and
	// its filters are for nobody else.
	FilterKeyFile string
	// CacheSize and MemTableSize are Pebble's, in bytes; 0 means the defaults of
	// package pebblex.
	CacheSize    int64
	MemTableSize uint64
	// DiskReserve is the free space, in bytes, below which records are refused as
	// Transient, code DISK_FULL; queries go on. 0 is what pebblex.SpaceConfig
	// makes of it. Below it the store still writes what it needs to put in order
	// what was acknowledged, see pebblex.RoomOf.
	DiskReserve uint64
	// Lease is how long who mirrors the filter of viewers may rely on his copy before
	// he has to ask again, see Feed, and how long no records are taken after a start
	// if there may be such copies of an earlier life: after a crash, or a restore. 0
	// means DefaultLease, less than 0 that the archive is not served now.
	Lease time.Duration
	// Log receives state changes and failures; nil discards them.
	Log *slog.Logger
	// Now is the clock, of which only the time of storing is taken; nil means
	// time.Now.
	Now func() time.Time
	// OnFatal is called when a write to the store failed and its outcome is
	// unknown. It must not return: see pebblex.Options. The puts under way get an
	// error, and if the process lives on the node refuses all others and answers
	// queries from what was durable before. Nil means pebblex.Exit.
	OnFatal func(reason string)

	markEvery, flushWait time.Duration // shorter in tests
	clock                mirror.Clock  // of leases; other than the machine's in tests
}

// Files tells an archive what it must know of the files that records name.
type Files interface {
	// Blocks returns the SHA-256 multihash digests of all blocks, the root
	// included, of the file with the given SHA-256 and CID, once its bytes are
	// complete and durable here. An error of kind fault.NotFound says that they
	// are not.
	Blocks(ctx context.Context, sha256 [32]byte, cid string) ([][32]byte, error)
	// Size returns the size in bytes of that file, with the errors of Blocks.
	Size(ctx context.Context, sha256 [32]byte, cid string) (int64, error)
	// Holds reports whether a file with the given SHA-256 is here in its full
	// length, under any CID. Its bytes are not read: an archive asks for each of
	// its files when it opens. An error says that this can not be told.
	Holds(ctx context.Context, sha256 [32]byte) (bool, error)
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, fault.New(fault.Invalid, "NO_DIR", "archive: no directory is given")
	}
	if _, err := wire.ParseArchiveID(string(c.ID)); err != nil {
		return c, fault.New(fault.Invalid, "ARCHIVE_ID", "archive: id %q: %w", c.ID, err)
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("archive", string(c.ID))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnFatal == nil {
		c.OnFatal = pebblex.Exit
	}
	if c.markEvery == 0 {
		c.markEvery = markEvery
	}
	if c.flushWait == 0 {
		c.flushWait = flushWait
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	return c.withFilterKey()
}

func (c Config) storeDir() string { return c.FS.PathJoin(c.Dir, "records") }
func (c Config) keyPath() string  { return c.FS.PathJoin(c.Dir, "key.pem") }

// storeOptions returns how the store is opened; the hooks may be nil.
func (c Config) storeOptions(create bool, onFatal, onCorruption func(string)) pebblex.Options {
	return pebblex.Options{
		Dir: c.storeDir(), FS: c.FS, Create: create, CacheSize: c.CacheSize, MemTableSize: c.MemTableSize,
		Log: c.Log, OnFatal: onFatal, OnCorruption: onCorruption,
	}
}
