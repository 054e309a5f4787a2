package blob

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	DefaultDiskReserve = 2 << 30  // bytes
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
	// DiskReserve is the free space, in bytes, below which uploads are refused as
	// Transient, code DISK_FULL; reads go on. 0 means DefaultDiskReserve. The
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
	if c.DiskReserve == 0 {
		c.DiskReserve = DefaultDiskReserve
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
	health  health
	leaves  *cache[[32]byte, []byte]    // verified bytes by digest
	nodes   *cache[[32]byte, *nodeView] // verified inner nodes by digest
	stats   counters

	mu      sync.Mutex // guards uploads
	uploads map[string]*upload
}

// The parts of a store's directory.
const (
	dirIndex = "index" // a Pebble store
	dirFiles = "files" // files/<first two hex digits>/<64 hex digits of the SHA-256>
	dirTemp  = "tmp"   // tmp/<upload id>: uploads under way
)

// OpenStore opens the store in cfg.Dir, or makes it. Uploads that were under way
// when the store was last open are gone; their senders learn it from
// UNKNOWN_UPLOAD. Errors are those of pebblex.Open where they apply, and Corrupt
// when a part of the store is missing.
func OpenStore(cfg StoreConfig) (*Store, error) {
	cfg = cfg.withDefaults()
	s := &Store{
		cfg: cfg, uploads: make(map[string]*upload),
		leaves: newCache[[32]byte](cfg.CacheBytes, func(b []byte) int { return len(b) }),
		nodes:  newCache[[32]byte](nodeCacheBytes, (*nodeView).cost),
	}
	if err := s.openIndex(); err != nil {
		return nil, fmt.Errorf("blob: open %s: %w", cfg.Dir, err)
	}
	s.index = pebblex.NewCommitter(pebblex.CommitterConfig[*indexing]{
		Queue: cfg.MaxUploads, MaxItems: 256, MaxBytes: 4 << 20, Size: (*indexing).size, Commit: s.commitRows,
	})
	return s, nil
}

func (s *Store) openIndex() error {
	if s.cfg.Create {
		names, err := s.cfg.FS.List(s.cfg.Dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if len(names) > 0 {
			return pebblex.ErrExists
		}
	}
	db, err := pebblex.Open(pebblex.Options{
		Dir: s.path(dirIndex), FS: s.cfg.FS, Create: s.cfg.Create, Log: s.cfg.Log,
		OnFatal: s.cfg.OnFatal, OnCorruption: s.noteIndexDamage,
	})
	if err != nil {
		return err
	}
	s.db = db
	// From here on the index's lock keeps other processes out of tmp as well.
	if s.cfg.Create {
		err = s.create()
	} else {
		err = s.resume()
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// create makes the directories, all of them now so that no commit has to. The
// layout version comes last: a store that has it is whole.
func (s *Store) create() error {
	fs := s.cfg.FS
	for i := range 256 {
		if err := fs.MkdirAll(s.path(dirFiles, fmt.Sprintf("%02x", i)), 0o700); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(s.path(dirTemp), 0o700); err != nil {
		return err
	}
	for _, dir := range []string{s.path(dirFiles), s.cfg.Dir} {
		if err := pebblex.SyncDir(fs, dir); err != nil {
			return err
		}
	}
	r := seal(layoutKey, binary.BigEndian.AppendUint32(nil, layoutVersion))
	return s.db.Set(r.key, r.value, pebble.Sync)
}

// resume checks that an existing store is whole and empties tmp.
func (s *Store) resume() error {
	value, ok, err := s.get(layoutKey)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.Corrupt, codeCorrupt, "the index has no layout version: it was cut back, or its creation never ended; restore it, or remove the directory if it never held a file")
	}
	p, err := unseal(layoutKey, value)
	if err != nil {
		return fault.New(fault.Corrupt, codeCorrupt, "%w", err)
	}
	if len(p) != 4 || binary.BigEndian.Uint32(p) != layoutVersion {
		return fmt.Errorf("layout version %x; this program reads %d", p, layoutVersion)
	}
	dirs, err := s.cfg.FS.List(s.path(dirFiles))
	if err != nil || len(dirs) < 256 {
		return fault.New(fault.Corrupt, codeCorrupt, "%d of 256 directories are left in %s (%v): restore them, or make those that were empty again", len(dirs), s.path(dirFiles), err)
	}
	return s.emptyTemp()
}

func (s *Store) emptyTemp() error {
	left, err := s.cfg.FS.List(s.path(dirTemp))
	if errors.Is(err, os.ErrNotExist) { // a backup may leave it out
		return s.cfg.FS.MkdirAll(s.path(dirTemp), 0o700)
	}
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := s.removeTemp(name); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		s.cfg.Log.Info("removed unfinished uploads", "uploads", len(left))
	}
	return nil
}

// Close aborts the open uploads, commits what is queued and closes the index.
// It waits for calls under way.
func (s *Store) Close() error {
	s.open.Lock()
	defer s.open.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, u := range s.allUploads() {
		u.mu.Lock()
		s.drop(u)
		u.mu.Unlock()
	}
	s.index.Close()
	// The end of Pebble's log is the one place where damage can pass for a
	// shorter log; a closed store keeps nothing there.
	if err := errors.Join(s.db.Flush(), s.db.Close()); err != nil {
		return fmt.Errorf("blob: close %s: %w", s.cfg.Dir, err)
	}
	return nil
}

// enter begins a call; its caller defers the returned function.
func (s *Store) enter() (leave func(), err error) {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return nil, fault.New(fault.Transient, codeClosed, "blob: the store is closed")
	}
	return s.open.RUnlock, nil
}

func (s *Store) path(elem ...string) string {
	return s.cfg.FS.PathJoin(append([]string{s.cfg.Dir}, elem...)...)
}

// filePath returns where the file with a SHA-256 rests.
func (s *Store) filePath(sha256 [32]byte) string {
	name := hex.EncodeToString(sha256[:])
	return s.path(dirFiles, name[:2], name)
}

// checkSpace refuses when the disk has less free space than the reserve. A file
// system that cannot tell its space, as in memory, is never full.
func (s *Store) checkSpace() error {
	use, err := s.cfg.FS.GetDiskUsage(s.cfg.Dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("blob: free space of %s: %w", s.cfg.Dir, err)
	}
	if use.AvailBytes < s.cfg.DiskReserve {
		return fault.New(fault.Transient, codeDiskFull, "blob: %d bytes are free and %d are held in reserve: uploads are refused until there is room, reads go on",
			use.AvailBytes, s.cfg.DiskReserve).After(diskRetry)
	}
	return nil
}

// diskRetry is when a sender may try again after DISK_FULL.
const diskRetry = 30 * time.Second

// diskError classifies a failed write: a full disk passes, other errors are ours.
func diskError(err error) error {
	if vfs.IsNoSpaceError(err) {
		return fault.New(fault.Transient, codeDiskFull, "blob: the disk is full: %w", err).After(diskRetry)
	}
	return fmt.Errorf("blob: write: %w", err)
}

// wait returns when the file with a SHA-256 is not being committed.
func (s *Store) wait(ctx context.Context, sha256 [32]byte) error {
	if err := s.commits.wait(ctx, sha256); err != nil {
		return fmt.Errorf("blob: wait for a commit: %w", err)
	}
	return nil
}
