package bus

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/verae/archive/wire"
)

// scoreDomain separates placement from every other use of SHA-256. It is frozen
// with the score: archives and aggregators of all versions must rank alike.
const scoreDomain = "verae-place/1\x00"

// rank orders ids by rendezvous hashing: the first of them owns key, the next is
// the first to take over. An archive that joins or leaves moves only the keys
// that it owns itself.
func rank(ids []wire.ArchiveID, key [32]byte) []wire.ArchiveID {
	type scored struct {
		id    wire.ArchiveID
		score uint64
	}
	all := make([]scored, len(ids))
	for i, id := range ids {
		all[i] = scored{id, score(id, key)}
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id))
	})
	out := make([]wire.ArchiveID, len(all))
	for i, s := range all {
		out[i] = s.id
	}
	return out
}

// score is the first 8 bytes of SHA-256(domain, key, id) as a big-endian number.
func score(id wire.ArchiveID, key [32]byte) uint64 {
	buf := make([]byte, 0, len(scoreDomain)+len(key)+wire.MaxArchiveID)
	buf = append(buf, scoreDomain...)
	buf = append(buf, key[:]...)
	buf = append(buf, id...)
	sum := sha256.Sum256(buf)
	return binary.BigEndian.Uint64(sum[:8])
}
