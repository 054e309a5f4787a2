package chain

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/verae/archive/wire"
)

// Leaf is what a log commits to for one seal: the digest and the time, and
// nothing that names a person, a tenant or a job. Its bytes are
//
//	verae-seal/v1\n
//	<digest, 64 lower-case hex characters>\n
//	<time, nanoseconds since 1970 in UTC, decimal without leading zeros>\n
//
// and frozen. Whoever has the file and the certificate rebuilds them.
type Leaf struct {
	Digest wire.Digest
	Time   time.Time
}

const (
	leafHeader = "verae-seal/v1\n"

	// MaxLeafSize is the length of the longest leaf, in bytes.
	MaxLeafSize = len(leafHeader) + 64 + 1 + 19 + 1
)

// Bytes returns the leaf as the log holds it. Times that a leaf can not tell,
// before 1970 or after 2262, must not be passed.
func (l Leaf) Bytes() []byte {
	b := make([]byte, 0, MaxLeafSize)
	b = append(b, leafHeader...)
	b = hex.AppendEncode(b, l.Digest[:])
	b = append(b, '\n')
	b = strconv.AppendInt(b, l.Time.UnixNano(), 10)
	return append(b, '\n')
}

var errLeaf = errors.New("chain: not a leaf of version verae-seal/v1")

// ParseLeaf reads the bytes of a leaf. It accepts only what Bytes writes.
func ParseLeaf(data []byte) (Leaf, error) {
	rest, ok := bytes.CutPrefix(data, []byte(leafHeader))
	if !ok || len(data) > MaxLeafSize {
		return Leaf{}, errLeaf
	}
	digest, rest, _ := bytes.Cut(rest, []byte{'\n'})
	number, _, _ := bytes.Cut(rest, []byte{'\n'})
	var l Leaf
	if len(digest) != hex.EncodedLen(len(l.Digest)) {
		return Leaf{}, errLeaf
	}
	if _, err := hex.Decode(l.Digest[:], digest); err != nil {
		return Leaf{}, errLeaf
	}
	ns, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil || ns < 0 {
		return Leaf{}, errLeaf
	}
	l.Time = time.Unix(0, ns).UTC()
	if !bytes.Equal(l.Bytes(), data) { // upper case, leading zeros, trailing data
		return Leaf{}, errLeaf
	}
	return l, nil
}
