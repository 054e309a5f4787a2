package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/verae/archive/internal/fault"
)

// ReadBlock returns up to length bytes, from off, of a block of a file, and the
// size of the block. The block is named by its digest, whatever its codec, and is
// checked against it; with a length of 0 nothing but its size is looked up.
//
// cid is the canonical root of a committed file that has the block. Errors are
// those of Read; a block that the file lacks is damage, since whoever asks knows
// that the file has it.
func (s *Store) ReadBlock(ctx context.Context, cid string, digest [32]byte, off int64, length int) (data []byte, size int64, err error) {
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
	whole, size, err := s.block(ctx, r, digest, length > 0)
	if err != nil {
		return nil, 0, s.readError(r.file, err)
	}
	if off < 0 || off > size || length < 0 {
		return nil, size, fault.New(fault.Invalid, CodeBadRange, "blob: %d bytes from %d of a block of %d bytes; a range begins in the block", length, off, size).InField("offset")
	}
	if length == 0 {
		return nil, size, nil
	}
	part := whole[off:min(off+int64(length), size)]
	return append(make([]byte, 0, len(part)), part...), size, nil
}

// block returns a block and its size; without its bytes, if they are not needed,
// where the size is known without them. The bytes are shared.
func (s *Store) block(ctx context.Context, r rootInfo, digest [32]byte, bytes bool) (data []byte, size int64, err error) {
	key := nodeKey(digest)
	value, ok, err := s.get(key)
	if err != nil {
		return nil, 0, err
	}
	if ok {
		data, err = unseal(key, value)
		if err == nil && sha256.Sum256(data) != digest {
			err = fmt.Errorf("%w: node %x has other bytes", errLost, digest)
		}
		return data, int64(len(data)), err
	}
	ref, err := s.leafRef(ctx, r, digest)
	if err != nil || !bytes {
		return nil, ref.length, err
	}
	data, err = s.leafAt(ctx, ref, digest)
	if err != nil && ref.file != r.file {
		// Another file has the leaf too, and was the first: what is wrong with that
		// one is its own damage.
		if err := s.readError(ref.file, err); !fault.Is(err, fault.Corrupt) {
			return nil, 0, err
		}
		if ref, err = s.leafIn(r, digest); err == nil {
			data, err = s.leafAt(ctx, ref, digest)
		}
	}
	return data, ref.length, err
}

// leafRef finds the bytes of a leaf of the file r, in it or in another.
func (s *Store) leafRef(ctx context.Context, r rootInfo, digest [32]byte) (leafRef, error) {
	key := leafKey(digest)
	value, ok, err := s.get(key)
	if err != nil {
		return leafRef{}, err
	}
	if !ok {
		return leafRef{}, fmt.Errorf("%w: block %x is not in the index", errLost, digest)
	}
	ref, err := parseLeaf(key, value)
	if err != nil {
		return s.leafIn(r, digest) // the tree knows as well
	}
	return ref, s.wait(ctx, ref.file)
}

// leafIn finds a leaf by walking the tree of a file.
func (s *Store) leafIn(r rootInfo, digest [32]byte) (leafRef, error) {
	ref, found, err := s.leafBelow(r.cid, 0, r.size, digest, 0)
	if err == nil && !found {
		err = fmt.Errorf("%w: block %x is not in the tree of %s", errLost, digest, r.cid)
	}
	ref.file = r.file
	return ref, err
}

func (s *Store) leafBelow(c CID, begin, length int64, digest [32]byte, depth int) (ref leafRef, found bool, err error) {
	if c.Raw {
		return leafRef{offset: begin, length: length}, c.Digest == digest, nil
	}
	if depth == maxDepth {
		return leafRef{}, false, fmt.Errorf("%w: the tree of %s is deeper than %d", errLost, c, maxDepth)
	}
	v, err := s.node(c.Digest)
	if err != nil {
		return leafRef{}, false, err
	}
	var at int64
	for i, child := range v.children {
		ref, found, err = s.leafBelow(child, begin+at, v.ends[i]-at, digest, depth+1)
		if found || err != nil {
			return ref, found, err
		}
		at = v.ends[i]
	}
	return leafRef{}, false, nil
}

// leafAt returns a verified leaf. Its bytes are shared: whoever asks for parts of
// it, one after the other or at once, has it hashed once.
func (s *Store) leafAt(ctx context.Context, at leafRef, digest [32]byte) ([]byte, error) {
	known := func() ([]byte, bool) {
		leaf, ok := s.leaves.get(digest)
		if ok = ok && int64(len(leaf)) == at.length; ok {
			s.stats.cached.Add(1)
		}
		return leaf, ok
	}
	if leaf, ok := known(); ok {
		return leaf, nil
	}
	unlock, err := s.reading.lock(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("blob: read: %w", err)
	}
	defer unlock()
	if leaf, ok := known(); ok {
		return leaf, nil
	}
	f, err := s.cfg.FS.Open(s.filePath(at.file))
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	leaf := make([]byte, at.length)
	if err := errors.Join(s.readLeaf(f, leaf, at.file, digest, at.offset), f.Close()); err != nil {
		return nil, err
	}
	s.leaves.put(digest, leaf)
	return leaf, nil
}
