package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

const (
	readBacks    = 2               // uploads that are read back at once
	resumeAnswer = 2 * time.Second // what Resume waits for at most
)

// reading is what a dormant upload has on its way through the importer again.
type reading struct {
	profile Profile
	offset  int64
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // once done
}

func (u *upload) dormant() bool { return !u.gone && u.file == nil }

// Resume goes on with an upload of which its sender still has the bytes from
// offset on, and returns how many are here: the next fragment begins there. An
// upload that is open keeps all it has. Of one that a restart has left what is
// beyond offset does not count, since only what was acknowledged as durable is
// surely right; the rest is read back, and hashed, before it goes on. While that
// takes long the answer is Transient, code UPLOAD_RESUMING: ask again.
//
// An upload with fewer bytes than offset is none: NotFound, UNKNOWN_UPLOAD; one
// that is not there at all begins if offset is 0. Other errors are those of Open.
func (s *Store) Resume(id string, p Profile, offset int64) (received int64, err error) {
	if offset < 0 {
		return 0, fault.New(fault.Invalid, CodeBadOffset, "blob: resume upload %.64q at %d", id, offset).InField("offset")
	}
	if s.lookup(id) == nil && offset == 0 {
		return 0, s.Open(id, p)
	}
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := errors.Join(p.Check(), s.checkSpace()); err != nil {
		return 0, err
	}
	u := s.lookup(id)
	if u == nil {
		return 0, unknownUpload(id)
	}
	run, received, err := s.resumed(u, p, offset)
	if err != nil || run == nil {
		return received, err
	}
	late := time.NewTimer(resumeAnswer)
	defer late.Stop()
	select {
	case <-run.done:
		return offset, run.err
	case <-late.C:
		return 0, stillReading(id)
	}
}

// resumed returns how much of u is here, or the reading that has to end before.
func (s *Store) resumed(u *upload, p Profile, offset int64) (run *reading, received int64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	other := fault.New(fault.Conflict, CodeUploadExists, "blob: upload %s is not the one that is to be resumed; take a new id for every upload", u.id)
	switch {
	case u.gone:
		return nil, 0, unknownUpload(u.id)
	case u.reading != nil && (u.reading.profile != p || u.reading.offset != offset):
		return nil, 0, other
	case u.reading != nil:
		return u.reading, 0, nil
	case u.file == nil:
		if err := s.startReading(u, p, offset); err != nil {
			return nil, 0, err
		}
		return u.reading, 0, nil
	case u.dag.profile != p:
		return nil, 0, other
	case u.dag.size < offset:
		return nil, 0, unknownUpload(u.id)
	}
	u.last = s.cfg.Now()
	return nil, u.dag.size, nil
}

// startReading reads the first bytes of a dormant upload back, beside. The
// caller holds u.mu.
func (s *Store) startReading(u *upload, p Profile, offset int64) error {
	file, size, err := s.openTemp(u.id)
	if err == nil && size < offset {
		err = errors.Join(unknownUpload(u.id), file.Close())
	}
	if err != nil {
		s.drop(u)
		return err
	}
	ctx, cancel := context.WithCancel(s.closing)
	run := &reading{profile: p, offset: offset, cancel: cancel, done: make(chan struct{})}
	u.reading = run
	s.readers.Go(func() {
		defer cancel()
		defer close(run.done)
		in, err := s.readBack(ctx, file, p, offset)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.reading, u.last = nil, s.cfg.Now()
		switch {
		case u.gone:
			run.err = errors.Join(unknownUpload(u.id), file.Close())
		case ctx.Err() != nil:
			run.err = errors.Join(errClosed(), file.Close())
		case err != nil:
			run.err = errors.Join(err, file.Close())
			s.drop(u)
		default:
			u.live(file, in)
		}
	})
	return nil
}

// openTemp opens what is left of an upload.
func (s *Store) openTemp(id string) (file vfs.File, size int64, err error) {
	path := s.path(dirTemp, id)
	info, err := s.cfg.FS.Stat(path) // the next would make one
	if err == nil {
		file, err = s.cfg.FS.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, 0, diskError(err)
	}
	return file, info.Size(), nil
}

// live makes a dormant upload one that goes on. The caller holds u.mu.
func (u *upload) live(file vfs.File, in *intake) {
	u.file, u.intake = writtenBack(file), in
	u.durable.Store(in.dag.size)
}

// readBack sends the first bytes of a temporary file through an importer, so that
// the next write to the file comes behind them.
func (s *Store) readBack(ctx context.Context, file vfs.File, p Profile, size int64) (*intake, error) {
	select {
	case s.readBacks <- struct{}{}:
		defer func() { <-s.readBacks }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	in := newIntake(p)
	buf := piecePool.Get().(*[]byte)
	defer piecePool.Put(buf)
	for left := size; left > 0; {
		n, err := io.ReadFull(file, (*buf)[:min(left, int64(len(*buf)))])
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("blob: read an upload back: %w", err)
		}
		in.dag.write((*buf)[:n])
		left -= int64(n)
	}
	return in, nil
}

var piecePool = sync.Pool{New: func() any { return new(make([]byte, 256<<10)) }}

// adopt makes a dormant upload, which has received all, ready for its commit:
// a restart came between its last byte and that. The caller holds u.mu. Without
// an end of ctx or of the store, an error ends the upload.
func (s *Store) adopt(ctx context.Context, u *upload, want rootInfo) error {
	file, size, err := s.openTemp(u.id)
	if err != nil {
		s.drop(u)
		return err
	}
	if size != want.size {
		s.drop(u)
		return errors.Join(unknownUpload(u.id), file.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	in, err := s.readBack(ctx, file, want.profile, want.size)
	switch {
	case err != nil && s.closing.Err() != nil:
		return errors.Join(errClosed(), file.Close())
	case err != nil && ctx.Err() != nil:
		return errors.Join(fault.Wrap(fault.Transient, err), file.Close())
	case err == nil:
		if in.dag.finish(); in.dag.sha256() != want.file { // a power cut took what was not synced
			err = unknownUpload(u.id)
		}
	}
	if err != nil {
		s.drop(u)
		return errors.Join(err, file.Close())
	}
	u.live(file, in)
	return nil
}

// whole makes sure that the file holds what went through the importer, and no
// more: a resumed upload may not have written over all that it had before.
func (u *upload) whole() error {
	if err := u.synced(); err != nil {
		return err
	}
	info, err := u.file.Stat()
	if err != nil {
		return diskError(err)
	}
	if info.Size() != u.dag.size {
		return fault.New(fault.Invalid, CodeSizeMismatch, "blob: upload %s had %d bytes before it was resumed, the commit names %d", u.id, info.Size(), u.dag.size).InField("size")
	}
	return nil
}

// takeUp makes what a restart has left of uploads dormant, up to as many as may
// be open, and removes the rest.
func (s *Store) takeUp() error {
	left, err := s.cfg.FS.List(s.path(dirTemp))
	if err != nil {
		return err
	}
	slices.Sort(left)
	for _, name := range left {
		if checkUploadID(name) != nil || len(s.uploads) >= s.cfg.MaxUploads {
			if err := s.removeTemp(name); err != nil {
				return err
			}
			continue
		}
		s.uploads[name] = &upload{id: name, last: s.cfg.Now()}
	}
	if len(left) > 0 {
		s.cfg.Log.Info("uploads were under way when the store was closed; they wait for their senders", "uploads", len(s.uploads), "removed", len(left)-len(s.uploads))
	}
	return nil
}
