package bus

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"

	sumnote "golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// A book is the Merkle log of an archive with a key: what it signs.
type book struct {
	t          testing.TB
	id         wire.ArchiveID
	generation int
	key        ed25519.PrivateKey
	hashes     []tlog.Hash
	roots      []tlog.Hash // by size
}

func newBook(t testing.TB, id string, generation int) *book {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", id, generation))
	b := &book{t: t, id: wire.ArchiveID(id), generation: generation, key: ed25519.NewKeyFromSeed(seed[:])}
	b.roots = []tlog.Hash{(&tlogx.Edge{}).Root()}
	return b
}

// grow appends leaves until there are size; kind makes the logs of one archive
// differ.
func (b *book) grow(size int, kind string) *book {
	for n := len(b.roots) - 1; n < size; n++ {
		hashes, err := tlog.StoredHashes(int64(n), fmt.Appendf(nil, "%s %d", kind, n), b.reader())
		if err != nil {
			b.t.Fatal(err)
		}
		b.hashes = append(b.hashes, hashes...)
		root, err := tlog.TreeHash(int64(n)+1, b.reader())
		if err != nil {
			b.t.Fatal(err)
		}
		b.roots = append(b.roots, root)
	}
	return b
}

func (b *book) reader() tlog.HashReader {
	return tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, x := range at {
			out[i] = b.hashes[x]
		}
		return out, nil
	})
}

func (b *book) public() string {
	return base64.StdEncoding.EncodeToString(b.key.Public().(ed25519.PublicKey))
}

// note is the signed checkpoint of the first size leaves.
func (b *book) note(size int) string {
	b.t.Helper()
	c := tlogx.Checkpoint{Origin: originOf(b.id, b.generation), Size: int64(size), Root: b.roots[size]}
	v, err := tlogx.NewVerifier(c.Origin, b.key.Public().(ed25519.PublicKey))
	if err != nil {
		b.t.Fatal(err)
	}
	signed, err := c.Sign(bookSigner{v, b.key})
	if err != nil {
		b.t.Fatal(err)
	}
	return string(signed)
}

type bookSigner struct {
	sumnote.Verifier
	key ed25519.PrivateKey
}

func (s bookSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// proof answers as an archive with this log of size leaves does.
func (b *book) proof(from uint64, size int) (wire.CtlProof, error) {
	out := wire.CtlProof{Checkpoint: b.note(size), Proof: [][]byte{}}
	if from == 0 || int(from) >= size {
		return out, nil
	}
	hashes, err := tlog.ProveTree(int64(size), int64(from), b.reader())
	for _, h := range hashes {
		out.Proof = append(out.Proof, h[:])
	}
	return out, err
}

// hello is what a process of the archive says with size records in its log.
func (b *book) hello(boot string, size int) wire.Hello {
	h := helloOf(string(b.id), boot)
	h.Key, h.Generation, h.Seq, h.Records, h.Checkpoint = b.public(), b.generation, uint64(size), uint64(size), b.note(size)
	return h
}
