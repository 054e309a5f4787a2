package bloom

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/verae/archive/internal/fault"
)

// Store is what Load has to know of the store whose snapshots it reads.
type Store struct {
	Identity [16]byte
	Last     uint64 // number of the last record; what is there after a crash, not what was promised
	// HeadAt returns the head of the store's history at a number up to Last. It is
	// nil where there is none: then Mark.Head is not looked at.
	HeadAt func(seq uint64) ([32]byte, error)
}

// Report is what Load found.
type Report struct {
	// Seq is the number up to which the set has every key: 0 if no snapshot could
	// be used. The owner adds the keys of every record after it, and then calls
	// Complete.
	Seq  uint64
	File string // that was used; empty: none

	Rejected []error // why other files could not be; each is a fault with a code

	// Clamped is the number that the snapshot claimed, if the store ends before it;
	// else 0. The store lost records, or is an older copy of itself.
	Clamped uint64
	// CorruptChunks were set to ones: the set denies nothing, is wrong more often,
	// and wants a rebuild.
	CorruptChunks int
}

// Load reads the newest snapshot in dir that can be used for the store. It is
// called before the store takes any write. The set is not complete: add the keys
// of all records after Report.Seq, and call Complete. Where there is no snapshot,
// or none that can be used, it is a new one.
//
// A snapshot that claims more than the store has is not believed beyond the
// store's end, and is made to say so on disk: else it would be believed again
// when other records have taken those numbers, and deny them. Where the store has
// heads, which could not be compared then, it is not used. For the same reason
// Load removes what it does not use: a file that is doubted today must not be
// believed tomorrow.
//
// An error means that this could not be done, and no more: the set is good, but
// the store must not take any write until Discard, or another Load, succeeded.
func Load(fsys FS, dir string, p Params, store Store) (*Set, Report, error) {
	p = p.clamped()
	l := loader{fsys: fsys, dir: dir, params: p, store: store}
	s, h := l.first(fileCurrent, filePrevious)
	if s == nil {
		return New(p), l.report, l.remove(fileCurrent, filePrevious, fileTemp)
	}
	l.report.Seq = min(h.mark.Seq, store.Last)
	unused := []string{fileTemp}
	switch {
	case l.report.File == filePrevious:
		unused = append(unused, fileCurrent)
	case l.judge(filePrevious) != nil:
		unused = append(unused, filePrevious)
	}
	if h.mark.Seq > store.Last {
		l.report.Clamped = h.mark.Seq
		h.mark.Seq = store.Last
		unused = []string{fileTemp, filePrevious}
		if s.clamp(fsys, dir, h.mark) != nil {
			unused = append(unused, fileCurrent) // no room on the disk, perhaps: removing needs none
		}
	}
	return s, l.report, l.remove(unused...)
}

// clamp saves the set, which is not complete, in place of what it came from: it
// has what that had, and claims less.
func (s *Set) clamp(fsys FS, dir string, at Mark) error {
	whole := newSet(s.params, s.state.Load().gens)
	whole.padded.Store(s.padded.Load())
	whole.Complete()
	return whole.Save(fsys, dir, at)
}

// Discard removes every snapshot in dir, durably.
func Discard(fsys FS, dir string) error {
	return loader{fsys: fsys, dir: dir}.remove(fileCurrent, filePrevious, fileTemp)
}

type loader struct {
	fsys   FS
	dir    string
	params Params
	store  Store
	report Report
}

// first reads the first of the files that can be used; nil if none can.
func (l *loader) first(names ...string) (*Set, header) {
	for _, name := range names {
		var s *Set
		var h header
		bad := 0
		err := l.open(name, func(read readAt, size uint64) (err error) {
			if h, err = l.header(read, size); err == nil {
				s, bad = h.readSet(read, l.params)
			}
			return err
		})
		if s != nil && err == nil {
			l.report.File, l.report.CorruptChunks = name, bad
			return s, h
		}
		if unlessMissing(err) != nil {
			l.report.Rejected = append(l.report.Rejected, fmt.Errorf("%s: %w", filepath.Join(l.dir, name), err))
		}
	}
	return nil, header{}
}

// judge returns why a file could not be used; nil if it could, or is not there.
func (l *loader) judge(name string) error {
	return unlessMissing(l.open(name, func(read readAt, size uint64) error {
		h, err := l.header(read, size)
		if err == nil && h.mark.Seq > l.store.Last {
			err = l.ahead(h)
		}
		return err
	}))
}

func (l *loader) open(name string, f func(read readAt, size uint64) error) (err error) {
	file, err := l.fsys.Open(filepath.Join(l.dir, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return err
	}
	return f(func(p []byte, off int64) error {
		n, err := file.ReadAt(p, off)
		if n == len(p) {
			return nil
		}
		return errors.Join(err, io.ErrUnexpectedEOF)
	}, uint64(max(size, 0)))
}

// header reads a header and compares it with the store.
func (l *loader) header(read readAt, size uint64) (header, error) {
	h, err := readHeader(read, size)
	switch {
	case err != nil:
		return h, err
	case h.mark.Identity != l.store.Identity:
		return h, fault.New(fault.Conflict, "SNAPSHOT_FOREIGN", "bloom: snapshot: it is of the store %x, not %x; the filter is built from the store", h.mark.Identity, l.store.Identity)
	}
	if err := errors.Join(h.checkSecret(l.params), h.checkMemory(l.params)); err != nil {
		return h, err
	}
	return h, l.history(h)
}

// history compares the head of a snapshot with that of the store at its number.
func (l *loader) history(h header) error {
	if l.store.HeadAt == nil || h.mark.Seq == 0 {
		return nil
	}
	if h.mark.Seq > l.store.Last {
		return l.ahead(h)
	}
	head, err := l.store.HeadAt(h.mark.Seq)
	if err == nil && head != h.mark.Head {
		err = fmt.Errorf("its head is %x, that of the store %x", h.mark.Head, head)
	}
	if err != nil {
		return fault.New(fault.Conflict, "SNAPSHOT_HISTORY", "bloom: snapshot: the store has another history up to seq %d: %w; the filter is built from the store", h.mark.Seq, err)
	}
	return nil
}

func (l *loader) ahead(h header) error {
	return fault.New(fault.Conflict, "SNAPSHOT_AHEAD", "bloom: snapshot: it has records up to seq %d, the store up to %d; the filter is built from the store", h.mark.Seq, l.store.Last)
}

// remove removes files, whether they are there or not, durably.
func (l loader) remove(names ...string) (err error) {
	for _, name := range names {
		err = errors.Join(err, unlessMissing(l.fsys.Remove(filepath.Join(l.dir, name))))
	}
	// Also if nothing was there: the one who removed it may have failed to sync.
	err = errors.Join(err, unlessMissing(l.fsys.SyncDir(l.dir)))
	if err != nil {
		return fault.New(fault.Transient, "SNAPSHOT_STAYS", "bloom: remove snapshots that are not to be believed from %s: %w", l.dir, err)
	}
	return nil
}
