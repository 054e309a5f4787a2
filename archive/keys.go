package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/verae/archive/wire"
)

// First bytes of keys; the package comment has the table.
const (
	prefixMeta       = 'm'
	prefixGeneration = 'g'
	prefixLog        = 's'
	prefixIndex      = 'h'
	prefixTenant     = 't'
	prefixPut        = 'i'
	prefixCommit     = 'c'
	prefixLost       = 'l'
)

const (
	seqLen       = 8
	digestLen    = 32
	tagLen       = 16
	seqKeyLen    = 1 + seqLen // of the keys s, c and l
	indexKeyLen  = 1 + digestLen + seqLen
	tenantKeyLen = 1 + tagLen + 8 + seqLen
)

// tenantTag stands for a tenant in keys of fixed width: the first bytes of
// SHA-256 of his id.
type tenantTag [tagLen]byte

func tagOf(tenant wire.TenantID) tenantTag {
	sum := sha256.Sum256([]byte(tenant))
	return tenantTag(sum[:tagLen])
}

// putKey is a put id as it is stored: the 16 bytes of the UUID.
type putKey [putIDLen]byte

const putIDLen = 16

func metaKey(name string) []byte { return append([]byte{prefixMeta}, name...) }

// seqKey is a key of a kind that has one for a sequence number.
func seqKey(prefix byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, seqKeyLen), prefix), seq)
}

func logKey(seq uint64) []byte { return seqKey(prefixLog, seq) }

func commitKey(last uint64) []byte { return seqKey(prefixCommit, last) }

func lostKey(seq uint64) []byte { return seqKey(prefixLost, seq) }

func generationKey(generation int) []byte {
	return binary.BigEndian.AppendUint32([]byte{prefixGeneration}, uint32(generation))
}

func generationOf(key []byte) (number int, ok bool) {
	if len(key) != 1+4 || key[0] != prefixGeneration {
		return 0, false
	}
	return int(binary.BigEndian.Uint32(key[1:])), true
}

func tenantKey(tag tenantTag, storedAt int64, seq uint64) []byte {
	k := append(make([]byte, 0, tenantKeyLen), prefixTenant)
	k = append(k, tag[:]...)
	k = binary.BigEndian.AppendUint64(k, uint64(storedAt))
	return binary.BigEndian.AppendUint64(k, seq)
}

func indexKey(digest [digestLen]byte, seq uint64) []byte {
	k := make([]byte, 0, indexKeyLen)
	k = append(k, prefixIndex)
	k = append(k, digest[:]...)
	return binary.BigEndian.AppendUint64(k, seq)
}

func putIDKey(id putKey) []byte { return append([]byte{prefixPut}, id[:]...) }

// keySeq returns the sequence number in a key of a kind that has one for a
// number, the others what is in theirs; ok is false for a key of another form.
func keySeq(prefix byte, key []byte) (seq uint64, ok bool) {
	if len(key) != seqKeyLen || key[0] != prefix {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

func logSeq(key []byte) (seq uint64, ok bool) { return keySeq(prefixLog, key) }

func tenantKeyParts(key []byte) (tag tenantTag, storedAt int64, seq uint64, ok bool) {
	if len(key) != tenantKeyLen || key[0] != prefixTenant {
		return tag, 0, 0, false
	}
	rest := key[1+copy(tag[:], key[1:]):]
	return tag, int64(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint64(rest[8:]), true
}

func indexKeyParts(key []byte) (digest [digestLen]byte, seq uint64, ok bool) {
	if len(key) != indexKeyLen || key[0] != prefixIndex {
		return digest, 0, false
	}
	copy(digest[:], key[1:])
	return digest, binary.BigEndian.Uint64(key[1+digestLen:]), true
}

// lastSeq returns the sequence number that ends a key of a record or a commit.
// Such keys are written together with the log entry of their number.
func lastSeq(key []byte) (seq uint64, ok bool) {
	switch {
	case len(key) == seqKeyLen && (key[0] == prefixLog || key[0] == prefixCommit),
		len(key) == indexKeyLen && key[0] == prefixIndex,
		len(key) == tenantKeyLen && key[0] == prefixTenant:
		return binary.BigEndian.Uint64(key[len(key)-seqLen:]), true
	}
	return 0, false
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
