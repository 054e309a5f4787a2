package pebblex

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// errReadOnly is what a store that was opened read-only meets when it writes
// nevertheless.
var errReadOnly = errors.New("pebblex: the store is open read-only")

// openingSlack is what opening writes beside tables and a manifest: options,
// markers, and what a file system takes for the names.
const openingSlack = 1 << 20 // bytes

// roomToOpen returns the bytes that opening the store in dir may write: what is
// in its logs becomes tables, and a manifest is begun.
func roomToOpen(fs vfs.FS, dir string) (uint64, error) {
	names, err := fs.List(dir)
	if err != nil {
		return 0, fmt.Errorf("pebblex: list %s: %w", dir, err)
	}
	need := uint64(openingSlack)
	for _, name := range names {
		if !isLogFile(name) && !strings.HasPrefix(name, "MANIFEST-") {
			continue
		}
		info, err := fs.Stat(fs.PathJoin(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("pebblex: look at %s: %w", name, err)
		}
		need += uint64(max(info.Size(), 0))
	}
	return need, nil
}

// RoomToOpen returns nil if the disk has the room that opening the store in dir
// for writing takes, or does not tell; else fault.Transient with CodeDiskFull. A
// nil fs is the disk.
func RoomToOpen(fs vfs.FS, dir string) error { return noRoom(Options{FS: fs, Dir: dir}.withDefaults()) }

// noRoom is RoomToOpen. Pebble itself would try the same flush for ever.
func noRoom(o Options) error {
	use, err := o.FS.GetDiskUsage(o.Dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebblex: free space of %s: %w", o.Dir, err)
	}
	need, err := roomToOpen(o.FS, o.Dir)
	if err != nil || use.AvailBytes >= need {
		return err
	}
	return fault.New(fault.Transient, CodeDiskFull,
		"the disk of %s has %s free and opening the store for writing takes %s: it stays as it is; free another %s, or enlarge the disk",
		o.Dir, humanBytes(use.AvailBytes), humanBytes(need), humanBytes(need-use.AvailBytes)).After(fullRetry)
}

// openReadOnly opens a store of which nothing is changed, not even put in order.
// The logs are synced first: what can be read must be durable, and a process
// that was killed may have left bytes of them in memory only.
func openReadOnly(o Options) (*pebble.DB, error) {
	lock, err := pebble.LockDirectory(o.Dir, o.FS)
	if err != nil {
		return nil, explain(o, err)
	}
	if err := syncLogs(o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	p, _ := pebbleOptions(o)
	p.FS = readOnlyFS{p.FS}
	p.ReadOnly, p.Lock = true, lock
	db, err := pebble.Open(o.Dir, p)
	// The store holds the lock now, if it is open.
	closeErr := lock.Close()
	if err != nil {
		return nil, errors.Join(explain(o, err), closeErr)
	}
	if closeErr != nil {
		return nil, errors.Join(closeErr, db.Close())
	}
	return db, nil
}

func syncLogs(o Options) error {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return fmt.Errorf("pebblex: list %s: %w", o.Dir, err)
	}
	for _, name := range names {
		if !isLogFile(name) {
			continue
		}
		f, err := o.FS.OpenReadWrite(o.FS.PathJoin(o.Dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return fmt.Errorf("pebblex: open %s: %w", o.Dir, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("pebblex: sync %s of %s: %w", name, o.Dir, err)
		}
	}
	return syncDir(o.FS, o.Dir)
}

// FlushIfRoom flushes db, whose directory is dir, unless the disk has no room for
// that or the store was opened read-only: a flush that fails is tried for ever.
// What stays in the log is as durable. A nil fs is the disk.
func FlushIfRoom(db *pebble.DB, fs vfs.FS, dir string) error {
	err := RoomToOpen(fs, dir)
	if err == nil {
		err = db.Flush()
	}
	if errors.Is(err, pebble.ErrReadOnly) || fault.CodeOf(err) == CodeDiskFull {
		return nil
	}
	return err
}

func isLogFile(name string) bool { return strings.HasSuffix(name, ".log") }

// readOnlyFS refuses everything that changes a file or a name. Pebble keeps to
// that by itself, as far as is known; a store that is inspected after a disaster
// should not depend on it.
type readOnlyFS struct{ vfs.FS }

// Unwrap returns the file system beneath.
func (r readOnlyFS) Unwrap() vfs.FS { return r.FS }

func noWrite(op, name string) error { return fmt.Errorf("%w: %s %s", errReadOnly, op, name) }

// Create refuses.
func (r readOnlyFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, noWrite("create", name)
}

// ReuseForWrite refuses.
func (r readOnlyFS) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, noWrite("reuse", name)
}

// OpenReadWrite refuses.
func (r readOnlyFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, noWrite("open for writing", name)
}

// Link refuses.
func (r readOnlyFS) Link(_, name string) error { return noWrite("link", name) }

// Rename refuses.
func (r readOnlyFS) Rename(name, _ string) error { return noWrite("rename", name) }

// Remove refuses.
func (r readOnlyFS) Remove(name string) error { return noWrite("remove", name) }

// RemoveAll refuses.
func (r readOnlyFS) RemoveAll(name string) error { return noWrite("remove", name) }

// MkdirAll refuses.
func (r readOnlyFS) MkdirAll(name string, _ os.FileMode) error { return noWrite("make", name) }

// Lock takes the lock, which is no change.
func (r readOnlyFS) Lock(name string) (io.Closer, error) { return r.FS.Lock(name) }
