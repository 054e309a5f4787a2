// Package tlogx keeps an append-only Merkle log over a key-value store.
//
// The tree is that of RFC 6962 and its stored hashes are numbered as in
// golang.org/x/mod/sumdb/tlog, so every proof made here is checked by any
// verifier of that tree. The package adds what an owner of a store needs:
// [Edge], which appends without reading; [Checkpoint], the signed statement of
// size and root; [Proof], the text a user keeps; and [TileData] for readers who
// fetch whole tiles.
//
// Nothing is written here. Append hands each new hash to its caller, who puts
// it into the batch that also carries the leaf: leaf and tree are then one
// atomic commit. Reads go through a tlog.HashReader over the same store.
package tlogx

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Edge is the right edge of a log: its size and the roots of the perfect
// subtrees it is made of, its peaks. That is all an append needs to know. The
// zero value is the empty log. An Edge is not safe for concurrent use.
type Edge struct {
	size  int64
	peaks []tlog.Hash // largest subtree first; one for each bit set in size
}

// LoadEdge reads the right edge of a log of the given size: at most 63 hashes.
func LoadEdge(size int64, r tlog.HashReader) (*Edge, error) {
	if size < 0 {
		return nil, fmt.Errorf("tlogx: negative log size %d", size)
	}
	indexes := PeakIndexes(size)
	if len(indexes) == 0 {
		return &Edge{}, nil
	}
	peaks, err := r.ReadHashes(indexes)
	if err != nil {
		return nil, fmt.Errorf("tlogx: right edge at size %d: %w", size, err)
	}
	return EdgeOf(size, peaks)
}

// EdgeOf returns the edge of a log whose peaks are known. It keeps no reference
// to peaks.
func EdgeOf(size int64, peaks []tlog.Hash) (*Edge, error) {
	if size < 0 || len(peaks) != PeakCount(size) {
		return nil, fmt.Errorf("tlogx: %d peaks do not make a log of size %d", len(peaks), size)
	}
	return &Edge{size: size, peaks: slices.Clone(peaks)}, nil
}

// Size returns the number of leaves.
func (e *Edge) Size() int64 { return e.size }

// Peaks returns a copy of the peaks, largest subtree first.
func (e *Edge) Peaks() []tlog.Hash { return slices.Clone(e.peaks) }

// Clone returns an independent copy, to append to and throw away should the
// commit fail.
func (e *Edge) Clone() *Edge { return &Edge{size: e.size, peaks: slices.Clone(e.peaks)} }

// Append adds a leaf by its record hash and returns its index. Every hash that
// the store must hold from now on is passed to put, in ascending order of its
// stored hash index and without gaps from one append to the next.
func (e *Edge) Append(leaf tlog.Hash, put func(index int64, h tlog.Hash)) int64 {
	n := e.size
	index := tlog.StoredHashIndex(0, n)
	put(index, leaf)
	h := leaf
	for range bits.TrailingZeros64(uint64(n) + 1) {
		last := len(e.peaks) - 1
		h = tlog.NodeHash(e.peaks[last], h)
		e.peaks = e.peaks[:last]
		index++
		put(index, h)
	}
	e.peaks = append(e.peaks, h)
	e.size++
	return n
}

// Root returns the root hash of the tree.
func (e *Edge) Root() tlog.Hash {
	if e.size == 0 {
		return sha256.Sum256(nil)
	}
	last := len(e.peaks) - 1
	h := e.peaks[last]
	for _, p := range slices.Backward(e.peaks[:last]) {
		h = tlog.NodeHash(p, h)
	}
	return h
}

// Over returns a reader that takes the peaks of e from memory and everything
// else from r.
//
// It makes proofs cheap. Every hash in the inclusion proof of a leaf appended
// after e lies either wholly left of the edge, and is then one of its peaks, or
// was stored after e, next to the leaf. The length of the log before e costs
// no reads. The reader is valid until the next Append to e.
func (e *Edge) Over(r tlog.HashReader) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		known := PeakIndexes(e.size)
		out := make([]tlog.Hash, len(indexes))
		var need []int64
		var at []int
		for i, x := range indexes {
			if k := slices.Index(known, x); k >= 0 {
				out[i] = e.peaks[k]
				continue
			}
			need, at = append(need, x), append(at, i)
		}
		if len(need) == 0 {
			return out, nil
		}
		read, err := r.ReadHashes(need)
		if err != nil {
			return nil, err
		}
		if len(read) != len(need) {
			return nil, fmt.Errorf("tlogx: asked for %d hashes, got %d", len(need), len(read))
		}
		for k, i := range at {
			out[i] = read[k]
		}
		return out, nil
	})
}

// PeakCount returns the number of peaks of a log of the given size.
func PeakCount(size int64) int { return bits.OnesCount64(uint64(size)) }

// PeakIndexes returns the stored hash indexes of the peaks of a log of the
// given size, largest subtree first, which is also ascending order.
func PeakIndexes(size int64) []int64 {
	out := make([]int64, 0, PeakCount(size))
	for rest, at := uint64(size), int64(0); rest != 0; {
		level := bits.Len64(rest) - 1
		out = append(out, tlog.StoredHashIndex(level, at>>level))
		at += 1 << level
		rest &^= 1 << level
	}
	return out
}

// ReadEach makes a reader of a function that reads one stored hash.
func ReadEach(get func(index int64) (tlog.Hash, error)) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			h, err := get(x)
			if err != nil {
				return nil, err
			}
			out[i] = h
		}
		return out, nil
	})
}

// Consistency returns the hashes that prove the log of size from to be a prefix
// of the log of size to (RFC 6962, section 2.1.2). From size 0 the proof is
// empty, as it is between equal sizes.
func Consistency(from, to int64, r tlog.HashReader) ([]tlog.Hash, error) {
	switch {
	case from < 0 || from > to:
		return nil, fmt.Errorf("tlogx: no consistency proof from size %d to size %d", from, to)
	case from == 0 || from == to:
		return nil, nil
	}
	return tlog.ProveTree(to, from, r)
}
