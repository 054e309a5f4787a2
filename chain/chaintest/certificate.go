package chaintest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
)

func certificatesVerify(t *testing.T, f Factory) {
	c := open(t, f)
	h := fill(t, c.Ledger, 0, 12)
	for i, s := range h.seals {
		if err := Verify(h.certs[i], s, c.VerifierKey); err != nil {
			t.Errorf("leaf %d of %d: %v", s.LeafIndex, s.TreeSize, err)
		}
		next := h.seals[(i+1)%len(h.seals)]
		if Verify(h.certs[i], next, c.VerifierKey) == nil {
			t.Errorf("the certificate of leaf %d passes for leaf %d", s.LeafIndex, next.LeafIndex)
		}
		late := s
		late.Time = s.Time.Add(time.Nanosecond)
		if Verify(h.certs[i], late, c.VerifierKey) == nil {
			t.Errorf("the certificate of leaf %d passes for another time", s.LeafIndex)
		}
	}
}

func foreignSeal(t *testing.T, f Factory) {
	c := open(t, f)
	seals := register(t, c.Ledger, Entries(0, 3)...)
	for name, change := range map[string]func(*chain.Seal){
		"another digest":  func(s *chain.Seal) { s.Digest = Digest(77) },
		"another leaf":    func(s *chain.Seal) { s.LeafIndex-- },
		"a leaf to come":  func(s *chain.Seal) { s.LeafIndex = 1000 },
		"a negative leaf": func(s *chain.Seal) { s.LeafIndex = -1 },
		"a block to come": func(s *chain.Seal) { s.BlockIndex = 1000 },
		"negative block":  func(s *chain.Seal) { s.BlockIndex = -1 },
		"another size":    func(s *chain.Seal) { s.TreeSize++ },
		"another time":    func(s *chain.Seal) { s.Time = s.Time.Add(1) },
		"another log":     func(s *chain.Seal) { s.Origin = "example.org/elsewhere" },
		"nothing":         func(s *chain.Seal) { *s = chain.Seal{} },
	} {
		s := seals[1]
		change(&s)
		cert, err := c.Ledger.Certificate(t.Context(), s)
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: certificate of %d bytes, %v; want a NotFound", name, len(cert), err)
		}
	}
}

// checkpointsCover rebuilds the tree with another implementation from the seals
// alone and compares the root of every certificate.
func checkpointsCover(t *testing.T, f Factory) {
	c := open(t, f)
	h := fill(t, c.Ledger, 0, 12)
	slices.SortFunc(h.seals, func(a, b chain.Seal) int { return int(a.LeafIndex - b.LeafIndex) })
	roots := [][]byte{rfc6962.DefaultHasher.EmptyRoot()}
	tree := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	for i, s := range h.seals {
		if s.LeafIndex != int64(i) {
			t.Fatalf("seal %d has leaf %d", i, s.LeafIndex)
		}
		if err := tree.Append(rfc6962.DefaultHasher.HashLeaf(leafOf(s)), nil); err != nil {
			t.Fatal(err)
		}
		root, err := tree.GetRootHash(nil)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, root)
	}
	blocks := map[int64]int64{}
	for _, s := range h.seals {
		head, err := headOf(certificate(t, c.Ledger, s), c.VerifierKey)
		if err != nil {
			t.Fatal(err)
		}
		if head.size != uint64(s.TreeSize) || !bytes.Equal(head.root, roots[s.TreeSize]) {
			t.Errorf("leaf %d: checkpoint of size %d is not over the leaves given out", s.LeafIndex, head.size)
		}
		if size, ok := blocks[s.BlockIndex]; ok && size != s.TreeSize {
			t.Errorf("block %d has the sizes %d and %d", s.BlockIndex, size, s.TreeSize)
		}
		blocks[s.BlockIndex] = s.TreeSize
	}
}
