package bloom

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/verae/archive/internal/fault"
)

// The layout of a snapshot, which docs/formats.md describes: a header, then the
// words of each generation in chunks, each followed by its checksum.
const (
	snapshotMagic   = "VERAEBF"
	snapshotVersion = 1

	headerBytes     = 72 // before the list of generations
	generationBytes = 32 // in that list
	sumBytes        = 4  // of a CRC-32C, after the header and after each chunk
	chunkBytes      = 64 << 10
	chunkWords      = chunkBytes / 8

	flagPadded = 1 // of the flags in the header

	maxGenerations = 64
	maxBits        = 1 << 42 // of a generation; MaxCapacity keys need fewer
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Mark says what a snapshot has: every key of the records up to Seq, in the store
// that is named by Identity.
type Mark struct {
	// Identity is of the store, and random: that of a copy which is written to by
	// itself must differ.
	Identity [16]byte
	// Seq is the number of a record that was durable before the snapshot was begun:
	// read it first, write the snapshot then. Keys that come meanwhile may be in it.
	Seq uint64
	// Head is what tells two histories of one store apart, such as the root of its
	// log at Seq. Zero if the owner has none.
	Head [32]byte
}

// header is the first part of a snapshot.
type header struct {
	mark     Mark
	secretID uint32
	padded   bool // Set.padded
	gens     []shape
	sum      uint32 // of the header; every chunk's checksum depends on it
}

// shape is what the header says of a generation.
type shape struct{ m, k, ones, keys uint64 }

func (g shape) bytes() uint64 { return g.m / 8 }

func (g shape) chunks() uint64 { return (g.bytes() + chunkBytes - 1) / chunkBytes }

func (h header) length() uint64 { return headerBytes + generationBytes*uint64(len(h.gens)) + sumBytes }

// size returns the length of the whole snapshot, its chunks, and the memory that
// its bits take.
func (h header) size() (length, chunks, memory uint64) {
	for _, g := range h.gens {
		chunks += g.chunks()
		memory += g.bytes()
	}
	return h.length() + memory + sumBytes*chunks, chunks, memory
}

// append appends the header to b, its checksum last, and sets sum.
func (h *header) append(b []byte) []byte {
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion)
	b = append(b, h.mark.Identity[:]...)
	b = binary.BigEndian.AppendUint32(b, h.secretID)
	flags := uint16(0)
	if h.padded {
		flags = flagPadded
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.gens)))
	b = binary.BigEndian.AppendUint64(b, h.mark.Seq)
	b = append(b, h.mark.Head[:]...)
	for _, g := range h.gens {
		for _, v := range []uint64{g.m, g.k, g.ones, g.keys} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	h.sum = crc32.Checksum(b, castagnoli)
	return binary.BigEndian.AppendUint32(b, h.sum)
}

// chunkSum returns the checksum of a chunk. The header and the number of the
// chunk are part of it: a chunk of another snapshot, or of another place, is not
// taken for this one.
func (h header) chunkSum(number uint64, data []byte) uint32 {
	var at [12]byte
	binary.BigEndian.PutUint32(at[:], h.sum)
	binary.BigEndian.PutUint64(at[4:], number)
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, data)
}

// WriteSnapshotTo writes the set to w and returns how many bytes it wrote. Tests
// and adds go on meanwhile: bits are only ever set, so that a snapshot has at
// least every key that was added before it was begun. at must be read before the
// call.
//
// There is no snapshot of a set that is not complete (FILTER_INCOMPLETE), that
// Scrub found to deny what is stored (FILTER_DENIES), or that has no secret of a
// fleet (NO_FLEET_SECRET).
func (s *Set) WriteSnapshotTo(w io.Writer, at Mark) (written int64, err error) {
	_, write, err := s.Snapshot(at)
	if err != nil {
		return 0, err
	}
	return write(w)
}

// Snapshot is WriteSnapshotTo in two steps: it returns how many bytes write will
// write. write has at least every key that was added before Snapshot was called,
// whenever it is called, and may be called once.
func (s *Set) Snapshot(at Mark) (size uint64, write func(io.Writer) (int64, error), err error) {
	st := s.state.Load()
	h := header{mark: at, secretID: s.params.Secret.ID, padded: s.padded.Load()}
	switch {
	case !st.complete:
		return 0, nil, fault.New(fault.Conflict, "FILTER_INCOMPLETE", "bloom: the filter is not complete; a snapshot of it would deny what is stored")
	case st.doubted:
		return 0, nil, fault.New(fault.Conflict, "FILTER_DENIES", "bloom: the filter denied what is stored; a snapshot of it might; rebuild it")
	case h.secretID == 0:
		return 0, nil, fault.New(fault.Conflict, "NO_FLEET_SECRET", "bloom: the filter has a secret of this process; give it that of the fleet")
	case len(st.gens) > maxGenerations:
		return 0, nil, fault.New(fault.Conflict, "FILTER_GENERATIONS", "bloom: the filter has %d generations; rebuild it", len(st.gens))
	}
	for _, g := range st.gens {
		h.gens = append(h.gens, shape{g.m, g.k, min(g.ones.Load(), g.m), min(g.keys.Load(), g.m)})
	}
	size, _, _ = h.size()
	return size, func(w io.Writer) (int64, error) { return h.write(w, st.gens) }, nil
}

// write writes the header and the words of gens, which it is of.
func (h header) write(w io.Writer, gens []*generation) (written int64, err error) {
	n, err := w.Write(h.append(nil))
	written = int64(n)
	number, buf := uint64(0), make([]byte, 0, chunkBytes+sumBytes)
	for _, g := range gens {
		for words := g.words; len(words) > 0 && err == nil; number++ {
			part := words[:min(len(words), chunkWords)]
			words = words[len(part):]
			buf = appendWords(buf[:0], part)
			buf = binary.BigEndian.AppendUint32(buf, h.chunkSum(number, buf))
			n, err = w.Write(buf)
			written += int64(n)
		}
	}
	return written, err
}

// appendWords appends words that others may be setting bits in.
func appendWords(b []byte, words []uint64) []byte {
	for i := range words {
		b = binary.LittleEndian.AppendUint64(b, atomic.LoadUint64(&words[i]))
	}
	return b
}
