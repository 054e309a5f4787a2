package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// MaxRead is the most that one Read returns, in bytes.
const MaxRead = 4 << 20

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
		return rootInfo{}, fault.New(fault.NotFound, codeUnknownCID, "blob: no file %s is here", c)
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

// hashStep is the piece in which stored bytes are read and hashed: small enough
// to be hashed out of the processor's cache.
const hashStep = 128 << 10

// readLeaf fills buf with the leaf at an offset of a file and checks it against
// its digest. Nothing in buf may be used after an error, which is os.ErrNotExist
// or errLost for damage.
func (s *Store) readLeaf(f io.ReaderAt, buf []byte, file, digest [32]byte, offset int64) error {
	h := sha256.New()
	for done := 0; done < len(buf); {
		piece := buf[done:min(done+hashStep, len(buf))]
		n, err := f.ReadAt(piece, offset+int64(done))
		if n < len(piece) {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("%w: %x ends at %d", errLost, file, offset+int64(done+n))
			}
			return fmt.Errorf("blob: read %x: %w", file, err)
		}
		h.Write(piece)
		done += n
	}
	s.stats.verified.Add(1)
	if [32]byte(h.Sum(nil)) != digest {
		return fmt.Errorf("%w: %x has other bytes from %d to %d", errLost, file, offset, offset+int64(len(buf)))
	}
	return nil
}

// Read returns up to length bytes of a file from offset off, and the size of
// the file. Fewer come only at the end of the file, none at offset size. Every
// leaf that is touched is checked against the tree of the CID before its first
// byte is returned.
//
// cid must be canonical (see [ParseCID]). A range that does not begin in the
// file, or is longer than MaxRead, is Invalid, code BAD_RANGE; an unknown root
// NotFound, code UNKNOWN_CID. Bytes that are lost or changed are Corrupt, code
// BLOB_CORRUPT, and are remembered (see [Store.Damages]).
func (s *Store) Read(ctx context.Context, cid string, off int64, length int) (data []byte, size int64, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	c, err := ParseCID(cid)
	if err != nil {
		return nil, 0, err
	}
	r, err := s.root(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	if off < 0 || off > r.size || length < 0 || length > MaxRead {
		return nil, r.size, fault.New(fault.Invalid, codeRange, "blob: %d bytes from %d of a file of %d bytes; a range begins in the file and has at most %d bytes", length, off, r.size, MaxRead).InField("offset")
	}
	data = make([]byte, min(int64(length), r.size-off))
	for done := 0; done < len(data); {
		if err := ctx.Err(); err != nil {
			return nil, r.size, fmt.Errorf("blob: read: %w", err)
		}
		leaf, begin, err := s.leaf(r, off+int64(done))
		if err != nil {
			return nil, r.size, s.readError(r.file, err)
		}
		done += copy(data[done:], leaf[off+int64(done)-begin:])
	}
	return data, r.size, nil
}

// leaf returns the verified leaf that holds the byte at off and where it begins.
// Its bytes are shared: sequential reads of a quarter leaf each hash it once.
func (s *Store) leaf(r rootInfo, off int64) (leaf []byte, begin int64, err error) {
	digest, begin, length, err := s.leafOf(r, off)
	if err != nil {
		return nil, 0, err
	}
	if leaf, ok := s.leaves.get(digest); ok && int64(len(leaf)) == length {
		s.stats.cached.Add(1)
		return leaf, begin, nil
	}
	f, err := s.cfg.FS.Open(s.filePath(r.file))
	if err != nil {
		return nil, 0, fmt.Errorf("blob: %w", err)
	}
	leaf = make([]byte, length)
	if err := errors.Join(s.readLeaf(f, leaf, r.file, digest, begin), f.Close()); err != nil {
		return nil, 0, err
	}
	s.leaves.put(digest, leaf)
	return leaf, begin, nil
}

// Reader reads a stored file from its begin to its end, a verified leaf at a
// time. It is for one goroutine and must be closed.
type Reader struct {
	store  *Store
	root   rootInfo
	file   vfs.File
	buf    []byte // verified leaf
	rest   []byte // of buf, not yet read
	offset int64  // of the next leaf
	err    error  // sticky
}

// NewReader opens a file for reading; errors are those of Read. Its own errors
// are Corrupt and internal ones, and io.EOF only after the last byte.
func (s *Store) NewReader(ctx context.Context, cid string) (*Reader, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := ParseCID(cid)
	if err != nil {
		return nil, err
	}
	r, err := s.root(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.present(r); err != nil {
		return nil, s.readError(r.file, err)
	}
	f, err := s.cfg.FS.Open(s.filePath(r.file), vfs.SequentialReadsOption)
	if err != nil {
		return nil, s.readError(r.file, err)
	}
	return &Reader{store: s, root: r, file: f}, nil
}

// Size returns the size of the file in bytes.
func (r *Reader) Size() int64 { return r.root.size }

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo: it hands out whole leaves without a copy.
func (r *Reader) WriteTo(w io.Writer) (sum int64, err error) {
	for {
		if err := r.fill(); errors.Is(err, io.EOF) {
			return sum, nil
		} else if err != nil {
			return sum, err
		}
		n, err := w.Write(r.rest)
		sum += int64(n)
		r.rest = r.rest[n:]
		if err != nil {
			return sum, err
		}
	}
}

// fill verifies the next leaf if there is nothing left of the last one.
func (r *Reader) fill() error {
	if len(r.rest) > 0 || r.err != nil {
		return r.err
	}
	if r.offset == r.root.size {
		r.err = io.EOF
		return r.err
	}
	leave, err := r.store.enter()
	if err != nil {
		return err
	}
	defer leave()
	digest, _, length, err := r.store.leafOf(r.root, r.offset)
	if err == nil {
		if r.buf == nil {
			r.buf = make([]byte, length) // no later leaf is longer
		}
		err = r.store.readLeaf(r.file, r.buf[:length], r.root.file, digest, r.offset)
	}
	if err != nil {
		r.err = r.store.readError(r.root.file, err)
		return r.err
	}
	r.rest = r.buf[:length]
	r.offset += length
	return nil
}

// Close releases the file.
func (r *Reader) Close() error { return r.file.Close() }
