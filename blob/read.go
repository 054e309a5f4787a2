package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/verae/archive/internal/fault"
)

// MaxRead is the most that one Read returns, in bytes.
const MaxRead = 4 << 20

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
		return nil, r.size, fault.New(fault.Invalid, CodeBadRange, "blob: %d bytes from %d of a file of %d bytes; a range begins in the file and has at most %d bytes", length, off, r.size, MaxRead).InField("offset")
	}
	data = make([]byte, min(int64(length), r.size-off))
	for done := 0; done < len(data); {
		if err := ctx.Err(); err != nil {
			return nil, r.size, fmt.Errorf("blob: read: %w", err)
		}
		leaf, begin, err := s.leaf(ctx, r, off+int64(done))
		if err != nil {
			return nil, r.size, s.readError(r.file, err)
		}
		done += copy(data[done:], leaf[off+int64(done)-begin:])
	}
	return data, r.size, nil
}

// leaf returns the verified leaf that holds the byte at off and where it begins.
// Its bytes are shared: see leafAt.
func (s *Store) leaf(ctx context.Context, r rootInfo, off int64) (leaf []byte, begin int64, err error) {
	digest, begin, length, err := s.leafOf(r, off)
	if err != nil {
		return nil, 0, err
	}
	leaf, err = s.leafAt(ctx, leafRef{file: r.file, offset: begin, length: length}, digest)
	return leaf, begin, err
}
