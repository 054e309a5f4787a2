package blob

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

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
		return fault.New(fault.Transient, CodeDiskFull, "blob: %d bytes are free and %d are held in reserve: uploads are refused until there is room, reads go on",
			use.AvailBytes, s.cfg.DiskReserve).After(diskRetry)
	}
	return nil
}

// diskRetry is when a sender may try again after DISK_FULL.
const diskRetry = 30 * time.Second

// diskError classifies a failed write: a full disk passes, other errors are ours.
func diskError(err error) error {
	if vfs.IsNoSpaceError(err) {
		return fault.New(fault.Transient, CodeDiskFull, "blob: the disk is full: %w", err).After(diskRetry)
	}
	return fmt.Errorf("blob: write: %w", err)
}
