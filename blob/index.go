package blob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
)

// The kinds of rows in the index, the first byte of every key. The package
// comment has the tables.
const (
	rowMeta byte = 'm'
	rowNode byte = 'n'
	rowLeaf byte = 'l'
	rowRoot byte = 'r'
	rowFile byte = 'f'
)

// rowVersion is the version of all row values. A new one is added beside it,
// with golden rows of its own; rows of old versions stay readable for ever.
const rowVersion = 1

// layoutVersion is the version of the store's directory as a whole.
const layoutVersion = 1

const digestLen = 32

var (
	layoutKey = []byte{rowMeta, 'l', 'a', 'y', 'o', 'u', 't'}
	ownerKey  = []byte{rowMeta, 'o', 'w', 'n', 'e', 'r'}
)

// row is one entry of the index, ready to be set.
type row struct{ key, value []byte }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal frames the payload of a row. The checksum covers the key as well, so that
// a value under the wrong key is found.
func seal(key, payload []byte) row {
	v := make([]byte, 0, 1+len(payload)+4)
	v = append(append(v, rowVersion), payload...)
	return row{key: key, value: binary.BigEndian.AppendUint32(v, rowSum(key, v))}
}

func rowSum(key, framed []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, framed)
}

// errRow tells what is wrong with a row; unseal's callers make it a damage.
var errRow = errors.New("blob: damaged index row")

// unseal returns the payload of a row's value, which aliases value.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < 5 {
		return nil, fmt.Errorf("%w %x: %d bytes are no row", errRow, key, len(value))
	}
	framed, sum := value[:len(value)-4], binary.BigEndian.Uint32(value[len(value)-4:])
	if got := rowSum(key, framed); got != sum {
		return nil, fmt.Errorf("%w %x: checksum %08x, stored %08x", errRow, key, got, sum)
	}
	if framed[0] != rowVersion {
		return nil, fmt.Errorf("%w %x: version %d; this program reads %d", errRow, key, framed[0], rowVersion)
	}
	return framed[1:], nil
}

func nodeKey(digest [32]byte) []byte { return append([]byte{rowNode}, digest[:]...) }
func leafKey(digest [32]byte) []byte { return append([]byte{rowLeaf}, digest[:]...) }

// rootKey holds the codec: a file may be the very bytes of another file's root
// node, and then both roots have one digest.
func rootKey(c CID) []byte {
	return append([]byte{rowRoot, byte(c.codec())}, c.Digest[:]...)
}

func fileKey(sha256 [32]byte, root CID) []byte {
	k := append([]byte{rowFile}, sha256[:]...)
	return append(append(k, byte(root.codec())), root.Digest[:]...)
}

// leafRef says where the bytes of a leaf rest.
type leafRef struct {
	file   [32]byte // SHA-256 of the file
	offset int64    // in the file
	length int64    // of the leaf
}

func (l leafRef) row(digest [32]byte) row {
	p := make([]byte, 0, 44)
	p = append(p, l.file[:]...)
	p = binary.BigEndian.AppendUint64(p, uint64(l.offset))
	p = binary.BigEndian.AppendUint32(p, uint32(l.length))
	return seal(leafKey(digest), p)
}

func parseLeaf(key, value []byte) (leafRef, error) {
	p, err := unseal(key, value)
	if err != nil {
		return leafRef{}, err
	}
	if len(p) != 44 {
		return leafRef{}, fmt.Errorf("%w %x: a leaf of %d bytes", errRow, key, len(p))
	}
	l := leafRef{file: [32]byte(p), offset: int64(binary.BigEndian.Uint64(p[32:])), length: int64(binary.BigEndian.Uint32(p[40:]))}
	if l.offset < 0 || l.length > MaxChunkSize {
		return leafRef{}, fmt.Errorf("%w %x: a leaf of %d bytes at %d", errRow, key, l.length, l.offset)
	}
	return l, nil
}

// rootInfo is what is known of a file by one of its roots.
type rootInfo struct {
	cid     CID
	file    [32]byte // SHA-256 of the file
	size    int64    // of the file
	profile Profile
}

func (r rootInfo) rows() []row {
	p := make([]byte, 0, 48)
	p = append(p, r.file[:]...)
	p = binary.BigEndian.AppendUint64(p, uint64(r.size))
	p = binary.BigEndian.AppendUint32(p, uint32(r.profile.ChunkSize))
	p = binary.BigEndian.AppendUint32(p, uint32(r.profile.MaxLinks))
	return []row{
		seal(rootKey(r.cid), p),
		seal(fileKey(r.file, r.cid), binary.BigEndian.AppendUint64(nil, uint64(r.size))),
	}
}

func parseRoot(key, value []byte) (rootInfo, error) {
	p, err := unseal(key, value)
	if err != nil {
		return rootInfo{}, err
	}
	if len(p) != 48 || len(key) != 2+digestLen {
		return rootInfo{}, fmt.Errorf("%w %x: a root of %d bytes", errRow, key, len(p))
	}
	r := rootInfo{
		cid:  CID{Digest: [32]byte(key[2:]), Raw: key[1] == byte(CID{Raw: true}.codec())},
		file: [32]byte(p), size: int64(binary.BigEndian.Uint64(p[32:])),
		profile: Profile{int(binary.BigEndian.Uint32(p[40:])), int(binary.BigEndian.Uint32(p[44:]))},
	}
	if err := r.profile.Check(); err != nil || r.size < 0 {
		return rootInfo{}, fmt.Errorf("%w %x: %d bytes in the profile %+v", errRow, key, r.size, r.profile)
	}
	return r, nil
}

// parseFile returns the SHA-256 and root in the key of a file row and the size
// in its value.
func parseFile(key, value []byte) (sha256 [32]byte, root CID, size int64, err error) {
	p, err := unseal(key, value)
	if err != nil {
		return sha256, root, 0, err
	}
	if len(p) != 8 || len(key) != 2+2*digestLen {
		return sha256, root, 0, fmt.Errorf("%w %x: a file of %d bytes", errRow, key, len(p))
	}
	root = CID{Digest: [32]byte(key[2+digestLen:]), Raw: key[1+digestLen] == byte(CID{Raw: true}.codec())}
	return [32]byte(key[1:]), root, int64(binary.BigEndian.Uint64(p)), nil
}

// get returns a copy of a value, or ok = false when there is no such row.
func (s *Store) get(key []byte) (value []byte, ok bool, err error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, indexError(err)
	}
	value = append(make([]byte, 0, len(v)), v...)
	if err := closer.Close(); err != nil {
		return nil, false, indexError(err)
	}
	return value, true, nil
}

// indexError classifies an error of the index: a block that fails its checksum
// is a damage, everything else is our own fault.
func indexError(err error) error {
	if pebble.IsCorruptionError(err) {
		return fault.New(fault.Corrupt, CodeCorrupt, "blob: the index is damaged: %w", err)
	}
	return fmt.Errorf("blob: index: %w", err)
}
