package ledger

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/wire"
)

// rowVersion is the first byte of every row. A new layout gets a new number and
// leaves the old decoders in place.
const rowVersion = 1

// First bytes of keys.
const (
	prefixMeta  = 'm'
	prefixLeaf  = 'e'
	prefixHash  = 't'
	prefixSeal  = 'h'
	prefixBlock = 'b'
)

const (
	sealRowSize   = 101
	blockRowFixed = 53 // up to the peaks
	crcSize       = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRow = errors.New("ledger: row is damaged")

func metaKey() []byte { return []byte{prefixMeta} }

func numberKey(prefix byte, n int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, uint64(n))
}

func sealKey(d wire.Digest) []byte { return append([]byte{prefixSeal}, d[:]...) }

// appendCRC ends a row.
func appendCRC(row, key []byte) []byte {
	return binary.BigEndian.AppendUint32(row, checksum(row, key))
}

func checksum(row, key []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, row)
}

// openRow checks version and crc and returns the row without its crc.
func openRow(row, key []byte, atLeast int) ([]byte, error) {
	if len(row) < atLeast {
		return nil, fmt.Errorf("%w: %d bytes under key %x", errRow, len(row), key)
	}
	if row[0] != rowVersion {
		return nil, fmt.Errorf("%w: version %d under key %x, this program reads %d", errRow, row[0], key, rowVersion)
	}
	body := row[:len(row)-crcSize]
	if binary.BigEndian.Uint32(row[len(body):]) != checksum(body, key) {
		return nil, fmt.Errorf("%w: wrong crc under key %x", errRow, key)
	}
	return body, nil
}

// meta is what Init wrote down.
type meta struct {
	created time.Time
	vkey    string
}

func (m meta) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{rowVersion}, uint64(m.created.UnixNano()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.vkey)))
	return appendCRC(append(b, m.vkey...), metaKey())
}

func decodeMeta(row []byte) (meta, error) {
	b, err := openRow(row, metaKey(), 11+crcSize)
	if err != nil {
		return meta{}, err
	}
	if int(binary.BigEndian.Uint16(b[9:])) != len(b)-11 {
		return meta{}, fmt.Errorf("%w: length of the verifier key", errRow)
	}
	return meta{created: time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC(), vkey: string(b[11:])}, nil
}

// encodeSeal writes the seal row of s. The digest is its key and the origin is
// the ledger's; neither is in the row.
func encodeSeal(s chain.Seal) []byte {
	b := make([]byte, 0, sealRowSize)
	b = append(b, rowVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(s.LeafIndex))
	b = binary.BigEndian.AppendUint64(b, uint64(s.BlockIndex))
	b = binary.BigEndian.AppendUint64(b, uint64(s.TreeSize))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Time.UnixNano()))
	job, submission := packUUID(string(s.JobID)), packUUID(string(s.SubmissionID))
	b = append(b, job[:]...)
	b = append(b, submission[:]...)
	b = append(b, s.FileID[:]...)
	return appendCRC(b, sealKey(s.Digest))
}

func decodeSeal(digest wire.Digest, origin string, row []byte) (chain.Seal, error) {
	b, err := openRow(row, sealKey(digest), sealRowSize)
	if err != nil {
		return chain.Seal{}, err
	}
	s := chain.Seal{
		Digest:     digest,
		LeafIndex:  int64(binary.BigEndian.Uint64(b[1:])),
		BlockIndex: int64(binary.BigEndian.Uint64(b[9:])),
		TreeSize:   int64(binary.BigEndian.Uint64(b[17:])),
		Time:       time.Unix(0, int64(binary.BigEndian.Uint64(b[25:]))).UTC(),
		JobID:      wire.JobID(unpackUUID([16]byte(b[33:]))),
		FileID:     wire.RecordID(b[65:97]),
		Origin:     origin,
	}
	if id := [16]byte(b[49:]); id != ([16]byte{}) {
		s.SubmissionID = wire.SubmissionID(unpackUUID(id))
	}
	if len(row) != sealRowSize || s.LeafIndex < 0 || s.BlockIndex < 0 || s.TreeSize <= s.LeafIndex || s.Time.UnixNano() < 0 {
		return chain.Seal{}, fmt.Errorf("%w: seal of %s", errRow, digest)
	}
	return s, nil
}

// packUUID returns the bytes of a canonical UUID; the empty text is zero. Its
// input was checked by chain.Entry.Check.
func packUUID(s string) (id [16]byte) {
	if s == "" {
		return id
	}
	plain := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(id[:], []byte(plain)); err != nil {
		panic("ledger: an unchecked id: " + s)
	}
	return id
}

func unpackUUID(id [16]byte) string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// digestOf returns the digest in the key of a seal row.
func digestOf(key []byte) (d wire.Digest, ok bool) {
	if len(key) != 1+len(d) || key[0] != prefixSeal {
		return d, false
	}
	return wire.Digest(key[1:]), true
}

// numberOf returns the number in a key of one letter and a number.
func numberOf(key []byte) (int64, error) {
	if len(key) != 9 || key[1] > 0x7f {
		return 0, fmt.Errorf("%w: unknown key %x", errRow, key)
	}
	return int64(binary.BigEndian.Uint64(key[1:])), nil
}
