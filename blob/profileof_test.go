package blob

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

// The profile that is found makes the same tree, whatever the one of the import
// was.
func TestProfileOfMakesTheSameTree(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	data := make([]byte, MinChunkSize*MinLinks*MinLinks+1)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	narrow := Profile{MinChunkSize, MinLinks}
	profiles := []Profile{Default, Legacy, narrow, {MinChunkSize, MaxLinks}, {100_003, 17}}
	for _, p := range profiles {
		sizes := []int{0, 1, rng.IntN(len(data))}
		for _, leaves := range []int{1, 2, p.MaxLinks, p.MaxLinks + 1, MinLinks * MinLinks} {
			for d := -1; d <= 1; d++ {
				sizes = append(sizes, leaves*p.ChunkSize+d)
			}
		}
		for _, size := range sizes {
			if size > len(data) {
				continue
			}
			m, blocks := importAll(data[:size], p)
			got, err := ProfileOf(m.root.cid, func(c CID) ([]byte, error) { return blocks[c.Digest], nil })
			if err != nil {
				t.Fatalf("%d bytes, %+v: %v", size, p, err)
			}
			if again, _ := importAll(data[:size], got); again.root != m.root {
				t.Errorf("%d bytes, %+v: %+v makes another tree", size, p, got)
			}
		}
	}
}

// What can not be found out is an error, and no profile.
func TestProfileOfBelievesNoBlock(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 40*MinChunkSize)
	m, blocks := importAll(data, Profile{MinChunkSize, MinLinks})
	own := func(c CID) ([]byte, error) { return blocks[c.Digest], nil }
	gone := errors.New("gone")
	foreign := func(p Profile, size int) CID {
		m, more := importAll(data[:size], p)
		maps.Copy(blocks, more)
		return m.root.cid
	}
	text := CID{Digest: [32]byte{1}}
	for name, tc := range map[string]struct {
		root  CID
		block func(CID) ([]byte, error)
		says  string
	}{
		"no block":      {m.root.cid, func(CID) ([]byte, error) { return nil, gone }, "gone"},
		"another block": {m.root.cid, func(CID) ([]byte, error) { return []byte("other"), nil }, "is not"},
		"foreign chunk": {foreign(Profile{10, 20}, 100), own, "chunkSize"},
		"foreign links": {foreign(Profile{MinChunkSize, 3}, 4*MinChunkSize), own, "maxLinks"},
		"unknown":       {text, own, "is not"},
	} {
		if p, err := ProfileOf(tc.root, tc.block); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
