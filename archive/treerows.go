package archive

import (
	"encoding/binary"
	"errors"
	"fmt"

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
