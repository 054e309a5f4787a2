package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// Defaults of [StoreConfig].
const (
	DefaultMaxUploads  = 256
	DefaultMaxFileSize = 16 << 30 // bytes
	DefaultCacheBytes  = 16 << 20 // bytes
)

// StoreConfig says where a store is and what it may use.
type StoreConfig struct {
	// Dir is the store's own directory.
	Dir string
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// Create makes the store; the directory must be absent or empty. Without it
	// the store must be there, so that a missing mount is not taken for an empty
	// store.
	Create bool
	// MaxUploads bounds the uploads that are open at once; 0 means
	// DefaultMaxUploads. Beyond it Open answers Transient, code TOO_MANY_UPLOADS.
	MaxUploads int
	// MaxFileSize bounds a file, in bytes; 0 means DefaultMaxFileSize. Beyond it
	// Write answers Invalid, code FILE_TOO_LARGE, and the upload is gone.
	MaxFileSize int64
	// Owner is whose files these are, such as an archive's id. It is stored when
	// the store is made; one of another owner is refused as Conflict, code
	// FILES_FOREIGN. Empty means that nobody asks.
	Owner string
	// DiskReserve is the free space, in bytes, below which uploads are refused as
	// Transient, code DISK_FULL; reads go on. 0 is what pebblex.SpaceConfig makes
	// of it. The
	// space is looked at when an upload opens and about every 8 MiB after that,
	// so all open uploads together may overrun it by that much each.
	DiskReserve uint64
	// CacheBytes bounds the verified leaves kept in memory for repeated reads; 0
	// means DefaultCacheBytes.
	CacheBytes int
	// Log receives state changes and damages; nil discards them.
	Log *slog.Logger
	// Now is the clock for idle uploads and damages; nil means time.Now.
	Now func() time.Time
	// OnFatal is called when the index cannot go on, see pebblex.Options.
	OnFatal func(reason string)

	// aside is set by Repair, for a store whose index is not the one in use: its
	// directory, in Dir.
	aside string
}

func (c StoreConfig) withDefaults() StoreConfig {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.MaxUploads <= 0 {
		c.MaxUploads = DefaultMaxUploads
	}
	if c.MaxFileSize <= 0 {
		c.MaxFileSize = DefaultMaxFileSize
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Store keeps files on disk by their content. It never deletes or changes a
// committed file. All methods may be called from many goroutines; after Close
// they answer Transient, code STORE_CLOSED.
type Store struct {
	cfg   StoreConfig
	db    *pebble.DB
	index *pebblex.Committer[*indexing]

	open   sync.RWMutex // held for reading by every call, for writing by Close
	closed bool

	commits keyLock // by the SHA-256 of the file
	reading keyLock // by the digest of a leaf, while it is read and hashed
	health  health
	leaves  *cache[[32]byte, []byte]    // verified bytes by digest
	nodes   *cache[[32]byte, *nodeView] // verified inner nodes by digest
	stats   counters
	disk    *pebblex.Space
	shut    error // why the index was opened read-only; nil if it was not

	closing   context.Context // ended when Close begins
	close     context.CancelFunc
	readBacks chan struct{}  // a place for every upload that is being read back
	readers   sync.WaitGroup // of them

	mu      sync.Mutex // guards uploads
	uploads map[string]*upload
}

// OpenStore opens the store in cfg.Dir, or makes it. Uploads that were under way
// when the store was last open wait for Resume or Commit until they are swept; as
// long as they are not resumed Write answers UNKNOWN_UPLOAD. Errors are those of pebblex.Open where they apply, and Corrupt
// when a part of the store is missing.
func OpenStore(cfg StoreConfig) (*Store, error) {
	cfg = cfg.withDefaults()
	s := newStore(cfg)
	if err := s.openIndex(); err != nil {
		return nil, fmt.Errorf("blob: open %s: %w", cfg.Dir, err)
	}
	s.startIndexing()
	return s, nil
}

// newStore returns a store without its index.
func newStore(cfg StoreConfig) *Store {
	closing, end := context.WithCancel(context.Background())
	return &Store{
		cfg: cfg, uploads: make(map[string]*upload),
		closing: closing, close: end, readBacks: make(chan struct{}, readBacks),
		disk:   pebblex.NewSpace(pebblex.SpaceConfig{Dir: cfg.Dir, FS: cfg.FS, Reserve: cfg.DiskReserve, Log: cfg.Log}),
		leaves: newCache[[32]byte](cfg.CacheBytes, func(b []byte) int { return len(b) }),
		nodes:  newCache[[32]byte](nodeCacheBytes, (*nodeView).cost),
	}
}

func (s *Store) startIndexing() {
	s.index = pebblex.NewCommitter(pebblex.CommitterConfig[*indexing]{
		Queue: s.cfg.MaxUploads, MaxItems: 256, MaxBytes: maxIndexing, Size: (*indexing).size, Commit: s.commitRows,
	})
}

// maxIndexing is about how many bytes of rows are written at once.
const maxIndexing = 4 << 20

// Close ends the open uploads, which the next OpenStore finds again, commits what
// is queued and closes the index. It waits for calls under way.
func (s *Store) Close() error {
	s.close()
	s.open.Lock()
	defer s.open.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, u := range s.allUploads() {
		u.mu.Lock()
		errs = append(errs, u.shelve())
		u.mu.Unlock()
	}
	s.readers.Wait()
	s.index.Close()
	// The end of Pebble's log is the one place where damage can pass for a
	// shorter log; a closed store keeps nothing there.
	errs = append(errs, pebblex.FlushIfRoom(s.db, s.cfg.FS, s.path(cmp.Or(s.cfg.aside, dirIndex))), s.db.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("blob: close %s: %w", s.cfg.Dir, err)
	}
	return nil
}

// enter begins a call; its caller defers the returned function.
func (s *Store) enter() (leave func(), err error) {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return nil, errClosed()
	}
	return s.open.RUnlock, nil
}

func errClosed() error { return fault.New(fault.Transient, CodeClosed, "blob: the store is closed") }
