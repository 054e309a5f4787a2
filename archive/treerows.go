package archive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"
)

const (
	commitVersion = 1
	commitFixed   = 1 + seqLen // before the hashes
)

// commitRow is what one commit added to the Merkle tree: the stored hashes, in
// the order of their indexes, that the leaves from first to last brought. The
// key has last.
type commitRow struct {
	first, last uint64 // places of leaves among sequence numbers
	hashes      []tlog.Hash
}

func (c commitRow) encode() []byte {
	b := make([]byte, 0, commitFixed+len(c.hashes)*tlog.HashSize+frameSum)
	b = append(b, commitVersion)
	b = binary.BigEndian.AppendUint64(b, c.first)
	for _, h := range c.hashes {
		b = append(b, h[:]...)
	}
	return binary.BigEndian.AppendUint32(b, keyedSum(commitKey(c.last), b))
}

var errCommit = errors.New("damaged commit row")

// decodeCommit reads the row whose key has last.
func decodeCommit(last uint64, b []byte) (commitRow, error) {
	hashes, rest := (len(b)-commitFixed-frameSum)/tlog.HashSize, (len(b)-commitFixed-frameSum)%tlog.HashSize
	if len(b) < commitFixed+frameSum || rest != 0 || b[0] != commitVersion {
		return commitRow{}, fmt.Errorf("%w %d: %d bytes", errCommit, last, len(b))
	}
	text := b[:len(b)-frameSum]
	if keyedSum(commitKey(last), text) != binary.BigEndian.Uint32(b[len(text):]) {
		return commitRow{}, fmt.Errorf("%w %d: wrong checksum", errCommit, last)
	}
	c := commitRow{first: binary.BigEndian.Uint64(b[1:]), last: last, hashes: make([]tlog.Hash, hashes)}
	// Each leaf brings at least its own hash.
	if c.first == 0 || c.first > last || uint64(hashes) < last-c.first+1 {
		return commitRow{}, fmt.Errorf("%w %d: %d hashes from place %d", errCommit, last, hashes, c.first)
	}
	for i := range c.hashes {
		c.hashes[i] = tlog.Hash(text[commitFixed+i*tlog.HashSize:])
	}
	return c, nil
}

// hashes returns a reader of the stored hashes of the current generation's tree.
// Each hash is in the commit row of the leaf that completed it.
func (n *Node) hashes() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		it, err := n.iterate(prefixBounds(prefixCommit))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, it.Close()) }()
		base := n.identity.lineage.current().base()
		out = make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			level, k := tlog.SplitStoredHashIndex(x)
			leaf := (k+1)<<level - 1
			c, err := commitAt(it, base+uint64(leaf))
			if err != nil {
				return nil, n.treeError(err)
			}
			at := x - tlog.StoredHashCount(int64(c.first-base))
			if c.first < base || at < 0 || at >= int64(len(c.hashes)) {
				return nil, n.treeError(fmt.Errorf("%w %d: it does not have hash %d", errCommit, c.last, x))
			}
			out[i] = c.hashes[at]
		}
		return out, nil
	})
}

// commitAt returns the commit that brought the leaf in a place.
func commitAt(it *pebble.Iterator, place uint64) (commitRow, error) {
	if !it.SeekGE(commitKey(place)) {
		if err := it.Error(); err != nil {
			return commitRow{}, err
		}
		return commitRow{}, fmt.Errorf("%w: none has the leaf in place %d", errCommit, place)
	}
	last, ok := keySeq(prefixCommit, it.Key())
	if !ok {
		return commitRow{}, fmt.Errorf("%w: key %x", errCommit, it.Key())
	}
	c, err := decodeCommit(last, it.Value())
	if err == nil && c.first > place {
		err = fmt.Errorf("%w %d: it begins in place %d, not %d", errCommit, last, c.first, place)
	}
	return c, err
}

// treeError sorts errors of the tree's rows.
func (n *Node) treeError(err error) error {
	if errors.Is(err, errCommit) {
		return n.damaged("%w", err)
	}
	return n.readError(err)
}
