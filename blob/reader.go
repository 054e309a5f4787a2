package blob

import (
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

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
