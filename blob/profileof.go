package blob

import (
	"crypto/sha256"
	"fmt"
)

// ProfileOf finds a profile in which a file has the CID root: the first block of
// each level of its tree tells it. It asks block for them, at most maxDepth, and
// believes none that has another digest. An error of block is passed on; any
// other says that no file imported here has such a tree.
//
// The profile may be another than that of the import where both make the same
// tree, as of a file of one chunk.
func ProfileOf(root CID, block func(CID) ([]byte, error)) (Profile, error) {
	if root.Raw {
		return Default, nil
	}
	var p Profile
	c := root
	for level := 0; !c.Raw; level++ {
		if level == maxDepth {
			return Profile{}, fmt.Errorf("blob: the tree of %s is deeper than %d", root, maxDepth)
		}
		v, err := firstNode(c, block)
		if err != nil {
			return Profile{}, err
		}
		p.MaxLinks = len(v.children) // below the root the first of several nodes is full
		if level == 0 {
			p.MaxLinks = max(p.MaxLinks, MinLinks)
		}
		c, p.ChunkSize = v.children[0], int(min(v.ends[0], MaxChunkSize+1))
	}
	return p, p.Check()
}

// firstNode gets and checks an inner node.
func firstNode(c CID, block func(CID) ([]byte, error)) (*nodeView, error) {
	data, err := block(c)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(data) != c.Digest {
		return nil, fmt.Errorf("blob: the block that came is not %s", c)
	}
	v, err := parseNode(data)
	if err != nil {
		return nil, fmt.Errorf("blob: the block %s: %w", c, err)
	}
	return v, nil
}
