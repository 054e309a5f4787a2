package archive

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/verae/archive/wire"
)

// First bytes of keys; the package comment has the table.
const (
	prefixMeta  = 'm'
	prefixLog   = 's'
	prefixIndex = 'h'
	prefixPut   = 'i'
)

const (
	seqLen      = 8
	digestLen   = 32
	logKeyLen   = 1 + seqLen
	indexKeyLen = 1 + digestLen + seqLen
)

// putKey is a put id as it is stored: the 16 bytes of the UUID.
type putKey [16]byte

func metaKey(name string) []byte { return append([]byte{prefixMeta}, name...) }

func logKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixLog}, seq)
}

func indexKey(digest [digestLen]byte, seq uint64) []byte {
	k := make([]byte, 0, indexKeyLen)
	k = append(k, prefixIndex)
	k = append(k, digest[:]...)
	return binary.BigEndian.AppendUint64(k, seq)
}

func putIDKey(id putKey) []byte { return append([]byte{prefixPut}, id[:]...) }

// logSeq returns the sequence number in a log key, indexKeyParts what is in an
// index key; ok is false for a key of another form.
func logSeq(key []byte) (seq uint64, ok bool) {
	if len(key) != logKeyLen || key[0] != prefixLog {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

func indexKeyParts(key []byte) (digest [digestLen]byte, seq uint64, ok bool) {
	if len(key) != indexKeyLen || key[0] != prefixIndex {
		return digest, 0, false
	}
	copy(digest[:], key[1:])
	return digest, binary.BigEndian.Uint64(key[1+digestLen:]), true
}

// rowsUnder returns the bounds of all index keys of digest, and prefixBounds
// those of all keys with a first byte.
func rowsUnder(digest [digestLen]byte) (lower, upper []byte) {
	return indexKey(digest, 0), append(indexKey(digest, ^uint64(0)), 0)
}

func prefixBounds(prefix byte) (lower, upper []byte) { return []byte{prefix}, []byte{prefix + 1} }

// parsePutID returns the bytes of a put id that wire has checked; ok is false
// when there is none.
func parsePutID(id wire.PutID) (k putKey, ok bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(string(id), "-", ""))
	if err != nil || len(raw) != len(k) {
		return putKey{}, false
	}
	return putKey(raw), true
}

// putValue is the value under a put id: what the put stored.
func putValue(seq uint64, id wire.RecordID) []byte {
	v := make([]byte, 0, seqLen+digestLen)
	return append(binary.BigEndian.AppendUint64(v, seq), id[:]...)
}

func parsePutValue(v []byte) (seq uint64, id wire.RecordID, ok bool) {
	if len(v) != seqLen+digestLen {
		return 0, wire.RecordID{}, false
	}
	return binary.BigEndian.Uint64(v), wire.RecordID(v[seqLen:]), true
}
