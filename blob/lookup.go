package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// findRoot looks a root up. An error that is errRow is a damage.
func (s *Store) findRoot(c CID) (r rootInfo, ok bool, err error) {
	key := rootKey(c)
	value, ok, err := s.get(key)
	if err != nil || !ok {
		return rootInfo{}, false, err
	}
	r, err = parseRoot(key, value)
	return r, err == nil, err
}

// root returns a committed root: one that is durable, not only visible.
func (s *Store) root(ctx context.Context, c CID) (rootInfo, error) {
	r, ok, err := s.findRoot(c)
	if errors.Is(err, errRow) {
		return rootInfo{}, s.damaged([32]byte{}, err)
	}
	if err != nil {
		return rootInfo{}, err
	}
	if !ok {
		return rootInfo{}, fault.New(fault.NotFound, CodeUnknownCID, "blob: no file %s is here", c)
	}
	return r, s.wait(ctx, r.file)
}

// Has reports whether a file is here, committed and as far as known undamaged,
// under this SHA-256 and canonical CID.
func (s *Store) Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error) {
	leave, err := s.enter()
	if err != nil {
		return false, err
	}
	defer leave()
	c, err := ParseCID(cid)
	if err != nil {
		return false, err
	}
	if err := s.wait(ctx, sha256); err != nil {
		return false, err
	}
	return s.holds(rootInfo{cid: c, file: sha256, size: -1})
}

// Holds reports whether a file with this SHA-256 is here, committed and in full
// length, under any of its roots. It reads rows of the index and asks for the
// length of one file, some ten microseconds when the disk need not be read, and
// does not read the file. Lost bytes are remembered as a damage; an error of kind
// Corrupt says that the rows of the file are damaged.
func (s *Store) Holds(ctx context.Context, sha256 [32]byte) (bool, error) {
	leave, err := s.enter()
	if err != nil {
		return false, err
	}
	defer leave()
	if err := s.wait(ctx, sha256); err != nil {
		return false, err
	}
	r, ok, err := s.anyRoot(sha256)
	if errors.Is(err, errRow) {
		return false, s.damaged(sha256, err)
	}
	if err != nil || !ok {
		return false, err
	}
	if err := s.present(r); err != nil {
		if err = s.readError(sha256, err); fault.Is(err, fault.Corrupt) {
			return false, nil
		}
		return false, err
	}
	return true, nil
}

// anyRoot finds a root of a file. An error that is errRow is a damage.
func (s *Store) anyRoot(sha256 [32]byte) (r rootInfo, ok bool, err error) {
	key := append([]byte{rowFile}, sha256[:]...)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key, UpperBound: append(key[:len(key):len(key)], 0xff)})
	if err != nil {
		return rootInfo{}, false, indexError(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		_, root, size, err := parseFile(it.Key(), it.Value())
		if err != nil {
			return rootInfo{}, false, err
		}
		r, ok, err := s.findRoot(root)
		if err != nil || ok && r.file == sha256 && r.size == size {
			return r, ok, err
		}
	}
	return rootInfo{}, false, indexErrorOrNil(it.Error())
}

// holds reports whether exactly this file is here and undamaged. A size of -1
// stands for any.
func (s *Store) holds(want rootInfo) (bool, error) {
	r, ok, err := s.findRoot(want.cid)
	if errors.Is(err, errRow) {
		return false, s.damaged([32]byte{}, err)
	}
	if err != nil || !ok || r.file != want.file || want.size >= 0 && r.size != want.size {
		return false, err
	}
	if err := s.present(r); err != nil {
		err = s.readError(r.file, err)
		if fault.Is(err, fault.Corrupt) {
			return false, nil // remembered as a damage; the bytes are welcome again
		}
		return false, err
	}
	return !s.isDamaged(r.file), nil
}

// present checks that the bytes of a file are there in full length. It does not
// read them.
func (s *Store) present(r rootInfo) error {
	info, err := s.cfg.FS.Stat(s.filePath(r.file))
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	if info.Size() != r.size {
		return fmt.Errorf("%w: %x has %d bytes, not %d", errLost, r.file, info.Size(), r.size)
	}
	return nil
}

// verifyFile reads a stored file and compares it with its SHA-256. The error is
// os.ErrNotExist, errLost, or a failed read.
func (s *Store) verifyFile(digest [32]byte, size int64) (err error) {
	if err := s.present(rootInfo{file: digest, size: size}); err != nil {
		return err
	}
	f, err := s.cfg.FS.Open(s.filePath(digest), vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, hashStep)); err != nil {
		return fmt.Errorf("blob: read %x: %w", digest, err)
	}
	if got := [32]byte(h.Sum(nil)); got != digest {
		return fmt.Errorf("%w: %x has the SHA-256 %x", errLost, digest, got)
	}
	return nil
}

// wait returns when the file with a SHA-256 is not being committed.
func (s *Store) wait(ctx context.Context, sha256 [32]byte) error {
	if err := s.commits.wait(ctx, sha256); err != nil {
		return fmt.Errorf("blob: wait for a commit: %w", err)
	}
	return nil
}
