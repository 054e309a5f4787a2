package blob

import (
	"fmt"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// storesOnDisk is how many Pebble stores share the disk of an archive: the
// records and the index of the files.
const storesOnDisk = 2

// memTable returns the size of memtables that find room below the reserve; 0 is
// pebblex's default.
func (s *Store) memTable() uint64 {
	use := s.disk.Usage()
	if !use.Known {
		return 0
	}
	size, _ := pebblex.MemTableFor(use.Reserve, storesOnDisk)
	return size
}

// checkSpace refuses when the disk has less free space than the reserve, before
// about spaceEvery bytes are written. A file system that cannot tell its space,
// as in memory, is never full.
func (s *Store) checkSpace() error {
	if err := s.Ready(); err != nil {
		return err
	}
	if err := s.disk.Admit(spaceEvery); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return nil
}

// Ready returns nil if the store takes files, else fault.Transient, code
// DISK_FULL, and a text that says what to do. Files can be read in any case.
func (s *Store) Ready() error {
	err := s.shut
	if err == nil {
		err = s.disk.Full()
	}
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return nil
}

// Reopen reports whether the store was opened read-only for want of room and
// there is room now: whoever opened it may close it and open it again.
func (s *Store) Reopen() bool {
	return s.shut != nil && s.disk.Full() == nil && pebblex.RoomToOpen(s.cfg.FS, s.path(dirIndex)) == nil
}

// Disk returns the room of the disk with the files.
func (s *Store) Disk() pebblex.Usage { return s.disk.Usage() }

// diskRetry is when a sender may try again after DISK_FULL.
const diskRetry = 30 * time.Second

// diskError classifies a failed write: a full disk passes, other errors are ours.
func diskError(err error) error {
	if pebblex.IsFull(err) {
		return fault.New(fault.Transient, CodeDiskFull, "blob: the disk is full: %w", err).After(diskRetry)
	}
	return fmt.Errorf("blob: write: %w", err)
}
