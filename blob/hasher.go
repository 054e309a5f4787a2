package blob

import (
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
)

// Sums is all that is known of a file by its bytes.
type Sums struct {
	Size    int64    // bytes of the file
	SHA256  [32]byte // of the whole file: the key of its records
	SHA1    [20]byte // of the whole file, for neighbours that still ask for it
	CID     string   // canonical CID of the UnixFS root
	DAGSize int64    // bytes of all blocks together, as Kubo's add reports it
}

// Hasher computes the [Sums] of the bytes written to it, in one pass. Its memory
// does not grow with the file, but for the links of at most maxDepth open
// nodes. It is for one goroutine at a time.
type Hasher struct {
	dag  *importer
	sha1 hash.Hash
	sums *Sums
}

// NewHasher returns a Hasher of an empty file. It panics if p does not pass
// [Profile.Check]: check a profile where it comes in.
func NewHasher(p Profile) *Hasher {
	must("profile", p.Check())
	return &Hasher{dag: newImporter(p), sha1: sha1.New()}
}

// errSummed is what Write returns after Sum.
var errSummed = errors.New("blob: write to a Hasher after Sum")

// Write adds p to the file. It keeps nothing of p and fails only after Sum.
func (h *Hasher) Write(p []byte) (int, error) {
	if h.sums != nil {
		return 0, errSummed
	}
	h.dag.write(p, func(p []byte) { h.sha1.Write(p) })
	return len(p), nil
}

// Sum ends the file and returns its sums. Calling it again returns the same.
func (h *Hasher) Sum() Sums {
	if h.sums == nil {
		root := h.dag.finish()
		h.sums = &Sums{
			Size: h.dag.size, SHA256: h.dag.sha256(), SHA1: [20]byte(h.sha1.Sum(nil)),
			CID: root.cid.String(), DAGSize: root.dagSize,
		}
	}
	return *h.sums
}

// SumReader reads r to its end and returns the sums of its bytes. Any error but
// io.EOF is returned, io.ErrUnexpectedEOF among them: a body that was cut is
// never taken for a shorter file.
func SumReader(r io.Reader, p Profile) (Sums, error) {
	if err := p.Check(); err != nil {
		return Sums{}, err
	}
	h := NewHasher(p)
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		return Sums{}, fmt.Errorf("blob: read the file: %w", err)
	}
	return h.Sum(), nil
}

// importer turns the bytes of a file into its digest and its DAG.
type importer struct {
	profile Profile
	onLeaf  func(digest [32]byte, offset, length int64) // each leaf in order; may be nil
	tree    tree
	leaf    hash.Hash // SHA-256 of the open leaf
	fill    int       // bytes in the open leaf
	whole   hash.Hash // SHA-256 of the file; nil inside the first leaf, whose state is the same
	size    int64     // bytes of the file so far
	root    block     // after finish
}

func newImporter(p Profile) *importer {
	return &importer{profile: p, tree: tree{maxLinks: p.MaxLinks}, leaf: sha256.New()}
}

// parallelFrom is the length from which a write is hashed by several goroutines.
// Starting one costs about as much as hashing 1 KiB.
const parallelFrom = 16 << 10

// write adds p to the file. The functions in also get p, once each and perhaps
// concurrently; all are done when write returns.
func (m *importer) write(p []byte, also ...func([]byte)) {
	if len(p) == 0 {
		return
	}
	var wg sync.WaitGroup
	run := func(f func()) { f() }
	if len(p) >= parallelFrom {
		run = wg.Go
		defer wg.Wait()
	}
	for _, f := range also {
		run(func() { f(p) })
	}
	rest := p
	if m.whole == nil {
		rest = m.writeLeaf(rest)
	}
	if len(rest) > 0 {
		pastFirst, whole := rest, m.whole
		run(func() { whole.Write(pastFirst) })
	}
	for len(rest) > 0 {
		rest = m.writeLeaf(rest)
	}
}

// writeLeaf adds as much of p to the open leaf as it takes and returns the rest.
func (m *importer) writeLeaf(p []byte) []byte {
	n := min(len(p), m.profile.ChunkSize-m.fill)
	m.leaf.Write(p[:n])
	m.fill += n
	m.size += int64(n)
	if m.fill == m.profile.ChunkSize {
		m.endLeaf()
	}
	return p[n:]
}

func (m *importer) endLeaf() {
	digest, length := [32]byte(m.leaf.Sum(nil)), int64(m.fill)
	if m.onLeaf != nil {
		m.onLeaf(digest, m.size-length, length)
	}
	m.tree.add(block{cid: CID{Digest: digest, Raw: true}, fileSize: length, dagSize: length})
	if m.whole == nil {
		m.whole, m.leaf = m.leaf, sha256.New()
	} else {
		m.leaf.Reset()
	}
	m.fill = 0
}

// finish ends the file and returns its root. An empty file is one empty leaf.
func (m *importer) finish() block {
	if m.fill > 0 || m.size == 0 {
		m.endLeaf()
	}
	m.root = m.tree.root()
	return m.root
}

// sha256 returns the digest of the whole file; only after finish.
func (m *importer) sha256() [32]byte { return [32]byte(m.whole.Sum(nil)) }
