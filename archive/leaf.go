package archive

import (
	"crypto/sha256"
	"fmt"

	"github.com/verae/archive/wire"
)

// leafHeader is what the Merkle log commits to: where and when the archive
// stored a record, and the record by its id. The body is not in it, so that a
// proof shows nothing of the content.
type leafHeader struct {
	Version    int    `cbor:"1,keyasint"`
	ArchiveID  string `cbor:"2,keyasint"`
	Generation int    `cbor:"3,keyasint"`
	Seq        uint64 `cbor:"4,keyasint"`
	StoredAt   int64  `cbor:"5,keyasint"`
	RecordID   []byte `cbor:"7,keyasint"`
}

const (
	leafVersion = 1
	leafPrefix  = 0x00 // RFC 6962, section 2.1: 0x00 for leaves, 0x01 for nodes
)

// leafBytes returns the leaf of f in the archive's Merkle log.
func leafBytes(f *frame) ([]byte, error) {
	return encodeLeaf(f.ArchiveID, f.Generation, f.bone())
}

// encodeLeaf returns the leaf of a record. The layout is frozen: logs grow on it.
func encodeLeaf(archive string, generation int, e bone) ([]byte, error) {
	b, err := cborEnc.Marshal(leafHeader{
		Version: leafVersion, ArchiveID: archive, Generation: generation,
		Seq: e.seq, StoredAt: e.storedAt, RecordID: e.id[:],
	})
	if err != nil {
		return nil, fmt.Errorf("archive: encode a leaf: %w", err)
	}
	return b, nil
}

// leafHash returns the hash of a leaf as the tree uses it.
func leafHash(leaf []byte) wire.Digest {
	return sha256.Sum256(append([]byte{leafPrefix}, leaf...))
}
