package blob

import (
	"fmt"

	dag "github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	cidlib "github.com/ipfs/go-cid"
	format "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"
)

// block is a finished block of a file's DAG, as its parent sees it.
type block struct {
	cid      CID
	fileSize int64 // bytes of the file below the block
	dagSize  int64 // bytes of the block and of all blocks below it (Tsize)
}

// tree grows the DAG of one file leaf by leaf. It keeps the links of the open
// inner nodes and nothing else.
//
// boxo encodes the nodes. The shape is that of its balanced layout, which pulls
// whole chunks out of a reader and so would cost every upload a goroutine and a
// chunk of memory; TestTreeEqualsBoxoLayout holds the two together.
type tree struct {
	maxLinks int
	onNode   func(digest [32]byte, encoded []byte) // each inner node, children first; may be nil
	first    block                                 // the first leaf, which is the root while it is alone
	leaves   int64
	open     []*inner // unfinished inner nodes, lowest level first
}

// inner is an unfinished inner node.
type inner struct {
	node    *dag.ProtoNode
	meta    *unixfs.FSNode
	below   int64 // dagSize of the children
	content int64 // fileSize of the children
}

// add appends the next leaf.
func (t *tree) add(leaf block) {
	t.leaves++
	switch t.leaves {
	case 1:
		t.first = leaf
		return
	case 2:
		t.link(0, t.first)
	}
	t.link(0, leaf)
}

// link appends b to the open node of a level. A node that is full already is
// finished first and linked one level up: finishing it no earlier keeps a tree
// whose last node is just full free of a level with a single link.
func (t *tree) link(level int, b block) {
	if level == len(t.open) {
		t.open = append(t.open, newInner())
	}
	if len(t.open[level].node.Links()) == t.maxLinks {
		done := t.finish(t.open[level])
		t.open[level] = newInner()
		t.link(level+1, done)
	}
	t.open[level].add(b)
}

// root finishes all open nodes and returns the root. The tree must hold a leaf
// and cannot be used afterwards.
func (t *tree) root() block {
	if t.leaves == 1 {
		return t.first
	}
	// The top may move while the levels below it are closed.
	for level := 0; level < len(t.open)-1; level++ {
		t.link(level+1, t.finish(t.open[level]))
	}
	return t.finish(t.open[len(t.open)-1])
}

func newInner() *inner {
	n := &inner{node: new(dag.ProtoNode), meta: unixfs.NewFSNode(unixfs.TFile)}
	must("choose the CID form of a node", n.node.SetCidBuilder(cidlib.V1Builder{Codec: cidlib.DagProtobuf, MhType: multihash.SHA2_256}))
	return n
}

func (n *inner) add(b block) {
	must("link a block", n.node.AddRawLink("", &format.Link{Size: uint64(b.dagSize), Cid: b.cid.lib()}))
	n.meta.AddBlockSize(uint64(b.fileSize))
	n.below += b.dagSize
	n.content += b.fileSize
}

// finish encodes n, reports it, and returns what its parent needs.
func (t *tree) finish(n *inner) block {
	meta, err := n.meta.GetBytes()
	must("encode UnixFS data", err)
	n.node.SetData(meta)
	encoded, err := n.node.EncodeProtobuf(false)
	must("encode a node", err)
	c, err := fromLib(n.node.Cid())
	must("read the CID of a node", err)
	if t.onNode != nil {
		t.onNode(c.Digest, encoded)
	}
	return block{cid: c, fileSize: n.content, dagSize: n.below + int64(len(encoded))}
}

// must stops on an error that only a programming error can cause: the nodes are
// made here, of valid links and sizes.
func must(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("blob: %s: %v", what, err))
	}
}
