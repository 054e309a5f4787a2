package blob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sort"

	dag "github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"

	"github.com/verae/archive/internal/fault"
)

// nodeCacheBytes bounds the decoded inner nodes kept in memory. The node of
// 1 GiB of file costs about 72 KiB.
const nodeCacheBytes = 4 << 20

// nodeView is a verified inner node: its children and where each one's part of
// the file ends, counted from the begin of the node's own part.
type nodeView struct {
	children []CID
	ends     []int64
}

func (v *nodeView) cost() int { return 128 + len(v.children)*(33+8) }

// size returns the bytes of the file below the node.
func (v *nodeView) size() int64 { return v.ends[len(v.ends)-1] }

// child returns the child that holds the byte at off and where its part begins.
func (v *nodeView) child(off int64) (c CID, begin, length int64) {
	i := sort.Search(len(v.ends), func(i int) bool { return v.ends[i] > off })
	if i > 0 {
		begin = v.ends[i-1]
	}
	return v.children[i], begin, v.ends[i] - begin
}

// node returns the inner node with a digest, checked against it. An error that
// is errRow or errLost means damage.
func (s *Store) node(digest [32]byte) (*nodeView, error) {
	if v, ok := s.nodes.get(digest); ok {
		return v, nil
	}
	encoded, err := s.nodeBytes(digest)
	if err != nil {
		return nil, err
	}
	v, err := parseNode(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: node %x: %w", errLost, digest, err)
	}
	s.nodes.put(digest, v)
	return v, nil
}

func (s *Store) nodeBytes(digest [32]byte) ([]byte, error) {
	key := nodeKey(digest)
	value, ok, err := s.get(key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: node %x is not in the index", errLost, digest)
	}
	encoded, err := unseal(key, value)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(encoded) != digest {
		return nil, fmt.Errorf("%w: node %x has other bytes", errLost, digest)
	}
	return encoded, nil
}

// parseNode decodes an inner node. Only nodes made here are ever stored, but
// sizes and link counts are checked all the same before they are believed.
func parseNode(encoded []byte) (*nodeView, error) {
	n, err := dag.DecodeProtobuf(encoded)
	if err != nil {
		return nil, err
	}
	meta, err := unixfs.FSNodeFromBytes(n.Data())
	if err != nil {
		return nil, err
	}
	links, sizes := n.Links(), meta.BlockSizes()
	if meta.Type() != unixfs.TFile || len(meta.Data()) > 0 {
		return nil, fmt.Errorf("not an inner node of a file")
	}
	if len(links) == 0 || len(links) > MaxLinks || len(links) != len(sizes) {
		return nil, fmt.Errorf("%d links and %d sizes", len(links), len(sizes))
	}
	v := &nodeView{children: make([]CID, len(links)), ends: make([]int64, len(links))}
	var sum int64
	for i, l := range links {
		if v.children[i], err = fromLib(l.Cid); err != nil {
			return nil, fmt.Errorf("link %d %w", i, err)
		}
		if sizes[i] == 0 || sizes[i] > 1<<62-uint64(sum) {
			return nil, fmt.Errorf("link %d has %d bytes", i, sizes[i])
		}
		sum += int64(sizes[i])
		v.ends[i] = sum
	}
	if uint64(sum) != meta.FileSize() {
		return nil, fmt.Errorf("%d bytes in the links, %d in the node", sum, meta.FileSize())
	}
	return v, nil
}

// leafOf returns the leaf that holds the byte at off of a file, and the leaf's
// place in the file. off must lie in the file, or be 0 if that is empty.
func (s *Store) leafOf(r rootInfo, off int64) (digest [32]byte, begin, length int64, err error) {
	c, length := r.cid, r.size
	for depth := 0; !c.Raw; depth++ {
		if depth == maxDepth {
			return digest, 0, 0, fmt.Errorf("%w: the tree of %s is deeper than %d", errLost, r.cid, maxDepth)
		}
		v, err := s.node(c.Digest)
		if err != nil {
			return digest, 0, 0, err
		}
		if v.size() != length {
			return digest, 0, 0, fmt.Errorf("%w: node %s has %d bytes, not %d", errLost, c, v.size(), length)
		}
		var at int64
		c, at, length = v.child(off - begin)
		begin += at
	}
	if length > int64(r.profile.ChunkSize) {
		return digest, 0, 0, fmt.Errorf("%w: leaf %s has %d bytes in a profile of %d", errLost, c, length, r.profile.ChunkSize)
	}
	return c.Digest, begin, length, nil
}

// Blocks returns the multihash digests of all blocks of a committed file, each
// once: the root first, then in the order of the file. A record of the file is
// found by any of them. When the file is not here under this SHA-256 and root,
// the error is NotFound, code UNKNOWN_CID; when it was damaged, Corrupt.
func (s *Store) Blocks(ctx context.Context, sha256 [32]byte, cid string) ([][32]byte, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := s.rootOf(ctx, sha256, cid)
	if err != nil {
		return nil, err
	}
	w := walk{store: s, seen: make(map[CID]bool)}
	if err := w.visit(ctx, r.cid, 0); err != nil {
		return nil, s.readError(r.file, err)
	}
	return w.digests, nil
}

// Size returns the size in bytes of a committed file. The errors are those of
// Blocks.
func (s *Store) Size(ctx context.Context, sha256 [32]byte, cid string) (int64, error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	r, err := s.rootOf(ctx, sha256, cid)
	return r.size, err
}

// rootOf finds the root of a committed file whose bytes are here in full
// length.
func (s *Store) rootOf(ctx context.Context, sha256 [32]byte, cid string) (rootInfo, error) {
	c, err := ParseCID(cid)
	if err != nil {
		return rootInfo{}, err
	}
	r, err := s.root(ctx, c)
	if err != nil {
		return rootInfo{}, err
	}
	if r.file != sha256 {
		return rootInfo{}, fault.New(fault.NotFound, CodeUnknownCID, "blob: the file %s here has another SHA-256 than %x", c, sha256)
	}
	if err := s.present(r); err != nil {
		return rootInfo{}, s.readError(r.file, err)
	}
	return r, nil
}

// walk lists the blocks below a root.
type walk struct {
	store   *Store
	seen    map[CID]bool
	digests [][32]byte
}

func (w *walk) visit(ctx context.Context, c CID, depth int) error {
	if w.seen[c] {
		return nil
	}
	w.seen[c] = true
	w.digests = append(w.digests, c.Digest)
	if c.Raw {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("%w: the tree of %s is deeper than %d", errLost, c, maxDepth)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("blob: list blocks: %w", err)
	}
	v, err := w.store.node(c.Digest)
	if err != nil {
		return err
	}
	for _, child := range v.children {
		if err := w.visit(ctx, child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
