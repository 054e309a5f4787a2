package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"

	chunk "github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	cidlib "github.com/ipfs/go-cid"
	format "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"
)

// memoryDAG collects what boxo's importer stores.
type memoryDAG struct {
	format.DAGService // nil: the importer only adds
	blocks            map[[32]byte][]byte
}

func (m *memoryDAG) Add(_ context.Context, n format.Node) error {
	m.blocks[sha256.Sum256(n.RawData())] = n.RawData()
	return nil
}

// boxoImport is the reference: boxo's own splitter and balanced layout.
func boxoImport(t testing.TB, data []byte, p Profile) (root cidlib.Cid, dagSize uint64, blocks map[[32]byte][]byte) {
	t.Helper()
	store := &memoryDAG{blocks: map[[32]byte][]byte{}}
	params := helpers.DagBuilderParams{
		Maxlinks: p.MaxLinks, RawLeaves: true, Dagserv: store,
		CidBuilder: cidlib.V1Builder{Codec: cidlib.DagProtobuf, MhType: multihash.SHA2_256},
	}
	b, err := params.New(chunk.NewSizeSplitter(bytes.NewReader(data), int64(p.ChunkSize)))
	if err != nil {
		t.Fatal(err)
	}
	n, err := balanced.Layout(b)
	if err != nil {
		t.Fatal(err)
	}
	size, err := n.Size()
	if err != nil {
		t.Fatal(err)
	}
	return n.Cid(), size, store.blocks
}

// importAll runs our importer and collects its blocks.
func importAll(data []byte, p Profile) (*importer, map[[32]byte][]byte) {
	blocks := map[[32]byte][]byte{}
	m := newImporter(p)
	m.onLeaf = func(d [32]byte, off, n int64) { blocks[d] = data[off : off+n] }
	m.tree.onNode = func(d [32]byte, encoded []byte) { blocks[d] = bytes.Clone(encoded) }
	m.write(data)
	m.finish()
	return m, blocks
}

func checkAgainstBoxo(t *testing.T, data []byte, p Profile) {
	t.Helper()
	root, dagSize, want := boxoImport(t, data, p)
	got, blocks := importAll(data, p)
	if got.root.cid.lib() != root {
		t.Fatalf("%d bytes, %+v: root %s, boxo says %s", len(data), p, got.root.cid, root)
	}
	if uint64(got.root.dagSize) != dagSize || got.root.fileSize != int64(len(data)) {
		t.Fatalf("%d bytes, %+v: DAG %d, file %d; boxo says DAG %d", len(data), p, got.root.dagSize, got.root.fileSize, dagSize)
	}
	if len(blocks) != len(want) {
		t.Fatalf("%d bytes, %+v: %d blocks, boxo has %d", len(data), p, len(blocks), len(want))
	}
	for d, b := range want {
		if !bytes.Equal(blocks[d], b) {
			t.Fatalf("%d bytes, %+v: block %x differs from boxo's", len(data), p, d)
		}
	}
	if got.sha256() != sha256.Sum256(data) {
		t.Fatalf("%d bytes, %+v: wrong SHA-256 of the file", len(data), p)
	}
}

// TestTreeEqualsBoxoLayout builds every tree of few leaves and links, through
// several levels, and compares all of its blocks with those of boxo.
func TestTreeEqualsBoxoLayout(t *testing.T) {
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, chunkSize := range []int{1, 2, 3, 7} {
		for links := 2; links <= 5; links++ {
			for n := range len(data) + 1 {
				if testing.Short() && n > 90 {
					break
				}
				checkAgainstBoxo(t, data[:n], Profile{chunkSize, links})
			}
		}
	}
}

// TestImportEqualsBoxo compares real profiles at sizes around every boundary.
func TestImportEqualsBoxo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 20<<20)
	for i := 0; i+8 <= len(data); i += 8 {
		copy(data[i:], fmt.Sprintf("%08x", rng.Uint32()))
	}
	profiles := []Profile{Default, Legacy, {MinChunkSize, MinLinks}, {MinChunkSize, MaxLinks}, {100_003, 17}}
	for _, p := range profiles {
		sizes := []int{0, 1}
		for _, leaves := range []int{1, 2, p.MaxLinks, p.MaxLinks + 1, p.MaxLinks*p.MaxLinks + 1} {
			for _, d := range []int{-1, 0, 1} {
				sizes = append(sizes, leaves*p.ChunkSize+d)
			}
		}
		sizes = append(sizes, rng.IntN(len(data)), rng.IntN(len(data)))
		for _, n := range sizes {
			if n <= len(data) {
				checkAgainstBoxo(t, data[:n], p)
			}
		}
	}
}

// TestRepeatedBlocks imports a file all of whose full leaves are equal.
func TestRepeatedBlocks(t *testing.T) {
	checkAgainstBoxo(t, make([]byte, 40*MinChunkSize+3), Profile{MinChunkSize, MinLinks})
}
