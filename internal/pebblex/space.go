package pebblex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// CodeDiskFull is the code of everything that is refused for want of room. It is
// always fault.Transient.
const CodeDiskFull = "DISK_FULL"

// Bounds of a reserve that nobody has set: a twentieth of the disk, between
// these, and never more than a fifth of a small one.
const (
	MinReserve = 2 << 30 // bytes
	MaxReserve = 8 << 30 // bytes
)

// roomTables is the room, in memtables, that a store needs below the reserve: it
// was acknowledged before the disk got full, and the store must be able to put it
// in order. stopWritesTables wait to be flushed, the tables they become are
// merged once into the next level, one new log is begun, and a manifest.
const roomTables = 2*stopWritesTables + 2

// RoomOf returns the bytes that a store with memtables of the given size may
// still write when no more puts are admitted: 160 MiB with the default size.
func RoomOf(memTable uint64) uint64 { return roomTables * memTable }

// Bounds of a memtable that is chosen for a reserve.
const minMemTable = 2 << 20 // bytes; smaller ones flush all the time

// MemTableFor returns the size of memtables of which the given number of stores
// find room below the reserve: DefaultMemTableSize, or less on a small disk. ok
// is false if even the smallest does not fit.
func MemTableFor(reserve uint64, stores int) (size uint64, ok bool) {
	size = reserve / uint64(roomTables*max(stores, 1))
	return min(max(size, minMemTable), DefaultMemTableSize), size >= minMemTable
}

const (
	lookEvery = time.Second      // between two looks at a disk whose room is not scarce
	fullRetry = 30 * time.Second // when who was refused may try again
)

// SpaceConfig says which disk is watched.
type SpaceConfig struct {
	// Dir is a directory on the disk.
	Dir string
	// FS is the file system; nil means the disk. One that can not tell its room,
	// as in memory, is never full.
	FS vfs.FS
	// Reserve is the free space, in bytes, below which the disk counts as full.
	// 0 means a twentieth of it, at least MinReserve and at most MaxReserve, but
	// never more than a fifth.
	Reserve uint64
	// Log hears when the disk becomes full and when there is room again; nil
	// discards it.
	Log *slog.Logger
}

// Space watches the room of the disk that a directory is on, so that puts are
// refused long before the store itself meets a full disk, of which Pebble dies.
// Its methods may be called from many goroutines.
type Space struct {
	cfg   SpaceConfig
	files func(dir vfs.File) (free, total uint64) // inodesOf; another in tests

	mu     sync.Mutex
	looked time.Time // zero: never
	usage  Usage
	spent  uint64 // admitted since the last look
	full   bool
	blind  error // why the last look failed
}

// Usage is what was seen of a disk.
type Usage struct {
	Free       uint64 // bytes that this process may use
	Total      uint64 // bytes of the disk
	Reserve    uint64 // bytes that are kept free
	Known      bool   // false: the file system does not tell, and all is zero
	Inodes     uint64 // files that can still be made; only if there is a bound
	MostInodes uint64 // files of an empty disk; 0: there is no bound
}

// keepInodes is how many files a disk can still take when it counts as full: a
// fiftieth of all, at most this. Every stored file is one, and a store that can
// make none does not go on.
const keepInodes = 10_000

// inodeReserve returns how many are kept free.
func (u Usage) inodeReserve() uint64 { return min(keepInodes, u.MostInodes/50) }

// NewSpace returns a watch on a disk. It looks when it is asked.
func NewSpace(c SpaceConfig) *Space {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Space{cfg: c, files: inodesOf}
}

// Admit returns nil if there is room for about cost more bytes, else the error
// of [Space.Full]. It looks at the disk when its last look is a second old, or
// when what was admitted since then may have used the room above the reserve.
func (s *Space) Admit(cost uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent += min(cost, math.MaxUint64-s.spent)
	margin := s.usage.Free - min(s.usage.Free, s.usage.Reserve)
	if s.usage.Known && !s.full && s.spent > margin {
		s.look()
	}
	return s.check()
}

// Full returns nil while more than the reserve is free, else fault.Transient with
// CodeDiskFull and a text that says what to do. A disk that got full is full
// until a twentieth of the reserve more is free.
func (s *Space) Full() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.check()
}

// Usage returns what is free, no older than a second.
func (s *Space) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	return s.usage
}

// Look looks at the disk at once, however old the last look is.
func (s *Space) Look() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.usage
}

func (s *Space) refresh() {
	if s.looked.IsZero() || time.Since(s.looked) >= lookEvery {
		s.look()
	}
}

func (s *Space) check() error {
	s.refresh()
	if !s.full {
		return nil
	}
	if s.usage.Free >= s.usage.Reserve && s.usage.MostInodes > 0 && s.usage.Inodes < s.usage.inodeReserve()*21/20 {
		return fault.New(fault.Transient, CodeDiskFull,
			"the disk of %s can take %d more files and keeps %d free (inodes): nothing more is stored until there is room, what is stored can be read; remove other files from it, or make a file system with more inodes",
			s.cfg.Dir, s.usage.Inodes, s.usage.inodeReserve()).After(fullRetry)
	}
	return fault.New(fault.Transient, CodeDiskFull,
		"the disk of %s has %s free and a reserve of %s (DISK_RESERVE): nothing more is stored until there is room, what is stored can be read; free another %s, or enlarge the disk",
		s.cfg.Dir, humanBytes(s.usage.Free), humanBytes(s.usage.Reserve), humanBytes(s.usage.Reserve+s.usage.Reserve/20-s.usage.Free)).After(fullRetry)
}

// diskUsage asks about the directory, or about the nearest one above it that is
// there: a directory that is still to be made will be on that disk.
func (s *Space) diskUsage() (use vfs.DiskUsage, free, total uint64, err error) {
	for dir := s.cfg.Dir; ; {
		use, err := s.cfg.FS.GetDiskUsage(dir)
		above := s.cfg.FS.PathDir(dir)
		if !errors.Is(err, os.ErrNotExist) || above == dir {
			free, total = s.inodes(dir)
			return use, free, total, err
		}
		dir = above
	}
}

// inodes asks for the files that a disk can take; zeros if it does not tell.
func (s *Space) inodes(dir string) (free, total uint64) {
	d, err := s.cfg.FS.OpenDir(dir)
	if err != nil {
		return 0, 0
	}
	free, total = s.files(d)
	if err := d.Close(); err != nil {
		s.cfg.Log.Debug("a directory could not be closed", "path", dir, "err", err)
	}
	return free, total
}

// look asks the file system. While it does not answer, the last answer holds.
func (s *Space) look() {
	s.looked, s.spent = time.Now(), 0
	use, inodes, most, err := s.diskUsage()
	switch {
	case errors.Is(err, vfs.ErrUnsupported):
		s.usage = Usage{}
		return
	case err != nil:
		if s.blind == nil {
			s.cfg.Log.Warn("the disk does not tell its free space", "path", s.cfg.Dir, "err", err)
		}
		s.blind = err
		return
	}
	s.blind = nil
	s.usage = Usage{Free: use.AvailBytes, Total: use.TotalBytes, Reserve: reserveOf(s.cfg.Reserve, use.TotalBytes), Known: true, Inodes: inodes, MostInodes: most}
	was, need, files := s.full, s.usage.Reserve, s.usage.inodeReserve()
	if was {
		need += need / 20
		files += files / 20
	}
	s.full = s.usage.Free < need || s.usage.MostInodes > 0 && s.usage.Inodes < files
	if s.full != was {
		level, msg := slog.LevelInfo, "there is room on the disk again"
		if s.full {
			level, msg = slog.LevelError, "the disk is full: nothing more is stored until there is room"
		}
		s.cfg.Log.Log(context.Background(), level, msg, "path", s.cfg.Dir, "free", s.usage.Free, "reserve", s.usage.Reserve, "inodes", s.usage.Inodes)
	}
}

func reserveOf(set, total uint64) uint64 {
	if set > 0 {
		return set
	}
	return min(min(max(total/20, MinReserve), MaxReserve), total/5)
}

// humanBytes writes a number of bytes for people.
func humanBytes(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 2<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// IsUnreadable reports whether err is that of a disk, or of a file system on it,
// that has lost what was stored: trying again gives the same.
func IsUnreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG)
}

// IsFull reports whether err says that the disk, or a quota on it, is used up.
func IsFull(err error) bool {
	return vfs.IsNoSpaceError(err) || errors.Is(err, syscall.EDQUOT)
}
