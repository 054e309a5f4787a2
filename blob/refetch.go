package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// CopySource is where a copy of a file may be had: it calls write with the bytes of
// the file in order. What it sends is not believed.
type CopySource func(ctx context.Context, ref FileRef, write func([]byte) error) error

var errSuspect = errors.New("it is being repaired")

// Refetch makes a file whole again: from the bytes in the store if they are the
// right ones and only rows are missing, else from the first source that sends
// them. The bytes pass Commit like those of any upload. A damaged file in whose
// place they come is kept in the directory evidence, which is made when it is
// needed. adopted says that no source was needed.
//
// Errors are NotFound with code CodeNoCopy, wrapping what the sources said: none of
// them has the file. What fails here, in Open, Write or Commit, ends it at once
// with that error, which is never NotFound; Corrupt is a wrong row of the index
// about the file, which only RepairIndex mends.
func (s *Store) Refetch(ctx context.Context, ref FileRef, evidence string, sources []CopySource) (adopted bool, err error) {
	if _, err := ParseCID(ref.CID); err != nil {
		return false, err
	}
	// So that the commit is not taken for the repetition of an earlier one, but
	// looks at bytes and rows.
	_ = s.damaged(ref.SHA256, errSuspect)
	own := func(ctx context.Context, ref FileRef, write func([]byte) error) error {
		return s.sendFile(ctx, ref.SHA256, write)
	}
	profiles := []Profile{ref.Profile}
	if ref.Profile == (Profile{}) {
		profiles = Usual()
	}
	var refusals []error
	for i, source := range append([]CopySource{own}, sources...) {
		for _, p := range profiles {
			refused, err := s.take(ctx, ref, p, evidence, source)
			if fault.Is(err, fault.NotFound) {
				err = fault.Wrap(fault.Internal, err)
			}
			if err == nil && refused != nil {
				err = ctx.Err()
			}
			if err != nil {
				return false, err
			}
			if refused == nil {
				return i == 0, nil
			}
			if i > 0 {
				refusals = append(refusals, refused)
			}
			if fault.CodeOf(refused) != CodeCIDMismatch {
				break
			}
		}
	}
	return false, fault.New(fault.NotFound, CodeNoCopy, "blob: no copy of file %x could be had: %w", ref.SHA256, errors.Join(refusals...))
}

// take uploads the file from one source. refused says why the source has no copy,
// err what went wrong here.
func (s *Store) take(ctx context.Context, ref FileRef, p Profile, evidence string, source CopySource) (refused, err error) {
	id := "repair-" + rand.Text()
	if err := s.Open(id, p); err != nil {
		return nil, err
	}
	if u := s.lookup(id); u != nil {
		u.mu.Lock()
		u.evidence = evidence
		u.mu.Unlock()
	}
	off := int64(0)
	refused = source(ctx, ref, func(b []byte) error {
		if off+int64(len(b)) > ref.Size {
			return fault.New(fault.Invalid, CodeSizeMismatch, "blob: more than the %d bytes of file %x were sent", ref.Size, ref.SHA256)
		}
		if err == nil {
			_, err = s.Write(id, off, b)
		}
		off += int64(len(b))
		return err
	})
	if err != nil || refused != nil {
		return refused, errors.Join(err, s.Abort(id))
	}
	_, err = s.Commit(ctx, id, ref.Size, ref.SHA256, ref.CID)
	switch fault.CodeOf(err) {
	case CodeSizeMismatch, CodeDigestMismatch, CodeCIDMismatch:
		return err, nil
	}
	return nil, err
}

// sendFile reads a stored file as it is.
func (s *Store) sendFile(ctx context.Context, sha256 [32]byte, write func([]byte) error) (err error) {
	f, err := s.cfg.FS.Open(s.filePath(sha256), vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return eachChunk(ctx, f, write)
}

// keep moves a damaged file to the directory evidence, if there is to be any.
func (s *Store) keep(path, evidence string) error {
	if evidence == "" {
		return nil
	}
	fs := s.cfg.FS
	if err := pebblex.Mkdir(fs, evidence); err != nil {
		return err
	}
	if err := fs.Rename(path, fs.PathJoin(evidence, fs.PathBase(path))); err != nil {
		return err
	}
	return pebblex.SyncDir(fs, evidence)
}
