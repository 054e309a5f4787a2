package blob

import (
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// Reader reads a stored file, or a section of it, a verified leaf at a time. It
// is for one goroutine and must be closed.
type Reader struct {
	store  *Store
	root   rootInfo
	file   vfs.File
	buf    []byte // verified leaf
	rest   []byte // of buf, not yet read
	offset int64  // of the next byte behind rest
	end    int64  // where the section ends in the file
	err    error  // sticky
}

// NewReader opens a file for reading; errors are those of Read. Its own errors
// are Corrupt and internal ones, and io.EOF only after the last byte.
func (s *Store) NewReader(ctx context.Context, cid string) (*Reader, error) {
	return s.newReader(ctx, cid, 0, -1)
}

// NewSection is NewReader of length bytes from off. Only the leaves that have
// some of them are read. A section that is not in the file is Invalid, code
// BAD_RANGE.
func (s *Store) NewSection(ctx context.Context, cid string, off, length int64) (*Reader, error) {
	return s.newReader(ctx, cid, off, max(0, length))
}

// newReader opens a section of a file; a length of -1 means all of it.
func (s *Store) newReader(ctx context.Context, cid string, off, length int64) (*Reader, error) {
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
	if length < 0 {
		length = r.size
	}
	if off < 0 || off > r.size || length > r.size-off {
		return nil, fault.New(fault.Invalid, CodeBadRange, "blob: %d bytes from %d of a file of %d bytes", length, off, r.size).InField("offset")
	}
	if err := s.present(r); err != nil {
		return nil, s.readError(r.file, err)
	}
	f, err := s.cfg.FS.Open(s.filePath(r.file), vfs.SequentialReadsOption)
	if err != nil {
		return nil, s.readError(r.file, err)
	}
	return &Reader{store: s, root: r, file: f, offset: off, end: off + length}, nil
}

// Size returns the size of the whole file in bytes.
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
	if r.offset >= r.end {
		r.err = io.EOF
		return r.err
	}
	leave, err := r.store.enter()
	if err != nil {
		return err
	}
	defer leave()
	digest, begin, length, err := r.store.leafOf(r.root, r.offset)
	if err == nil {
		if r.buf == nil {
			r.buf = make([]byte, length) // no later leaf is longer
		}
		err = r.store.readLeaf(r.file, r.buf[:length], r.root.file, digest, begin)
	}
	if err != nil {
		r.err = r.store.readError(r.root.file, err)
		return r.err
	}
	next := min(begin+length, r.end)
	r.rest = r.buf[r.offset-begin : next-begin]
	r.offset = next
	return nil
}

// Close releases the file.
func (r *Reader) Close() error { return r.file.Close() }
