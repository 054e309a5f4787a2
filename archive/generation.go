package archive

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/verae/archive/wire"
)

const (
	generationVersion = 1
	// maxGenerationRow bounds a generation row that is decoded, in bytes; the
	// signed note in it takes the most.
	maxGenerationRow = 8 << 10
)

// generation is a generation row: where a log of the archive begins, who signs
// it and, for all but the first, what it continues. The numbers are frozen.
//
// A generation after the first begins in the tree with the row itself: leaf 0 is
// its CBOR map, in the place of a sequence number that no record has, so that
// every checkpoint of the generation commits to what was remembered of the one
// before.
type generation struct {
	Version    int    `cbor:"1,keyasint"`
	ArchiveID  string `cbor:"2,keyasint"`
	Generation int    `cbor:"3,keyasint"`
	PublicKey  []byte `cbor:"4,keyasint"` // Ed25519
	FirstSeq   uint64 `cbor:"5,keyasint"` // of the first record
	CreatedAt  int64  `cbor:"6,keyasint"` // nanoseconds since 1970

	PrevSize      uint64 `cbor:"7,keyasint,omitempty"` // last sequence number kept of the generations before
	PrevRoot      []byte `cbor:"8,keyasint,omitempty"` // of the tree before, over what was kept of it
	Remembered    string `cbor:"9,keyasint,omitempty"` // newest checkpoint that a peer knows, a signed note
	RememberedSeq uint64 `cbor:"10,keyasint,omitempty"`
}

var errGeneration = errors.New("damaged generation row")

// genesis returns the bytes of leaf 0 of a generation after the first.
func (g generation) genesis() ([]byte, error) {
	b, err := cborEnc.Marshal(g)
	if err != nil {
		return nil, fmt.Errorf("archive: encode a generation: %w", err)
	}
	return b, nil
}

// encode returns the row: the map and a checksum over key and map.
func (g generation) encode() ([]byte, error) {
	b, err := g.genesis()
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(b, keyedSum(generationKey(g.Generation), b)), nil
}

// decodeGeneration reads the row of a generation. The result shares nothing
// with b.
func decodeGeneration(number int, b []byte) (generation, error) {
	if len(b) < frameSum || len(b) > maxGenerationRow {
		return generation{}, fmt.Errorf("%w %d: %d bytes", errGeneration, number, len(b))
	}
	text := b[:len(b)-frameSum]
	if keyedSum(generationKey(number), text) != binary.BigEndian.Uint32(b[len(text):]) {
		return generation{}, fmt.Errorf("%w %d: wrong checksum", errGeneration, number)
	}
	var g generation
	if err := cborDec.Unmarshal(text, &g); err != nil {
		return generation{}, fmt.Errorf("%w %d: %w", errGeneration, number, err)
	}
	if again, err := g.genesis(); err != nil || !bytes.Equal(again, text) {
		return generation{}, fmt.Errorf("%w %d: not in canonical form", errGeneration, number)
	}
	if g.Generation != number || !g.wellFormed() {
		return generation{}, fmt.Errorf("%w %d: generation %d of %q from seq %d, after %d", errGeneration, number, g.Generation, g.ArchiveID, g.FirstSeq, g.PrevSize)
	}
	return g, nil
}

// wellFormed refuses rows that decode but that nothing writes. Between what was
// known of the generations before and the first record lies the place of the
// genesis.
func (g generation) wellFormed() bool {
	_, err := wire.ParseArchiveID(g.ArchiveID)
	if err != nil || g.Version != generationVersion || len(g.PublicKey) != ed25519.PublicKeySize || g.FirstSeq > math.MaxInt64 {
		return false
	}
	if g.Generation == firstGeneration {
		return g.FirstSeq == 1 && g.PrevSize == 0 && len(g.PrevRoot) == 0 && g.Remembered == "" && g.RememberedSeq == 0
	}
	return g.Generation > firstGeneration && g.Generation <= math.MaxInt32 && len(g.PrevRoot) == digestLen &&
		g.FirstSeq >= 2 && max(g.PrevSize, g.RememberedSeq) <= g.FirstSeq-2
}

// base is the place of leaf 0 among sequence numbers: of the genesis, or of the
// first record if there is none.
func (g generation) base() uint64 {
	if g.Generation == firstGeneration {
		return g.FirstSeq
	}
	return g.FirstSeq - 1
}

// origin names the log of the generation in its checkpoints.
func (g generation) origin() string { return fmt.Sprintf("%s/g%d", g.ArchiveID, g.Generation) }

// keyedSum is CRC-32C over a key and its value, which finds a value under the
// wrong key too.
func keyedSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// lineage are the generations whose records are in a store, the current one
// last.
type lineage []generation

func (l lineage) current() generation { return l[len(l)-1] }

// kept returns the numbers of the records that a log which ends with the number
// end has of generation i; there are none if last is below first.
func (l lineage) kept(i int, end uint64) (first, last uint64) {
	if i+1 < len(l) {
		end = l[i+1].PrevSize
	}
	return l[i].FirstSeq, end
}

// records returns how many records have a number up to seq.
func (l lineage) records(seq uint64) uint64 {
	n := uint64(0)
	for i := range l {
		if first, last := l.kept(i, seq); min(last, seq) >= first {
			n += min(last, seq) - first + 1
		}
	}
	return n
}

// follows reports whether a record with the number seq stands right after the
// one with the number prev; 0 is the beginning.
func (l lineage) follows(prev, seq uint64) bool {
	return seq > prev && l.records(seq) == l.records(prev)+1 && l.records(seq-1) == l.records(prev)
}

// sum returns the sum of all numbers up to end that records have, modulo 2^64.
func (l lineage) sum(end uint64) uint64 {
	sum := uint64(0)
	for i := range l {
		if first, last := l.kept(i, end); last >= first {
			sum += triangle(last) - triangle(first-1)
		}
	}
	return sum
}

// triangle is 1 + 2 + ... + n, modulo 2^64.
func triangle(n uint64) uint64 {
	if n%2 == 0 {
		return n / 2 * (n + 1)
	}
	return (n + 1) / 2 * n
}

// check refuses a lineage that no program writes.
func (l lineage) check(archive wire.ArchiveID) error {
	if len(l) == 0 {
		return errors.New("there is no generation row")
	}
	for i, g := range l {
		if g.ArchiveID != string(archive) {
			return fmt.Errorf("generation %d is of archive %q", g.Generation, g.ArchiveID)
		}
		if i > 0 && (g.Generation <= l[i-1].Generation || g.FirstSeq <= l[i-1].FirstSeq || i > 1 && g.PrevSize < l[i-1].PrevSize) {
			return fmt.Errorf("generation %d does not come after generation %d", g.Generation, l[i-1].Generation)
		}
	}
	return nil
}
