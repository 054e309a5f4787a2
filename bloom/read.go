package bloom

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"math/bits"

	"github.com/verae/archive/internal/fault"
)

// readAt reads exactly len(p) bytes from an offset.
type readAt func(p []byte, off int64) error

func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, "SNAPSHOT_CORRUPT", "bloom: snapshot: "+format+"; the filter is built from the store", args...)
}

// readHeader reads and checks the header of a snapshot of size bytes. Nothing
// that it returns lies outside of those.
func readHeader(read readAt, size uint64) (header, error) {
	fixed := make([]byte, headerBytes)
	if size < headerBytes+generationBytes+sumBytes {
		return header{}, corrupt("it has %d bytes, which is too short for a header", size)
	}
	if err := read(fixed, 0); err != nil {
		return header{}, corrupt("read the header: %w", err)
	}
	if string(fixed[:7]) != snapshotMagic {
		return header{}, corrupt("it begins with %x, not %s", fixed[:7], snapshotMagic)
	}
	if fixed[7] != snapshotVersion {
		return header{}, fault.New(fault.Conflict, "SNAPSHOT_VERSION", "bloom: snapshot: it has version %d, this program reads %d; the filter is built from the store", fixed[7], snapshotVersion)
	}
	n := binary.BigEndian.Uint16(fixed[30:])
	if n == 0 || n > maxGenerations {
		return header{}, corrupt("%d generations", n)
	}
	h := header{gens: make([]shape, n)}
	all := append(fixed, make([]byte, h.length()-headerBytes)...)
	if err := read(all[headerBytes:], headerBytes); err != nil {
		return header{}, corrupt("read the header: %w", err)
	}
	return h, h.parse(all, size)
}

// parse takes the fields from a header of the right length.
func (h *header) parse(b []byte, size uint64) error {
	end := len(b) - sumBytes
	h.sum = binary.BigEndian.Uint32(b[end:])
	if crc32.Checksum(b[:end], castagnoli) != h.sum {
		return corrupt("the checksum of the header is wrong")
	}
	copy(h.mark.Identity[:], b[8:])
	h.secretID = binary.BigEndian.Uint32(b[24:])
	flags := binary.BigEndian.Uint16(b[28:])
	h.padded = flags&flagPadded != 0
	h.mark.Seq = binary.BigEndian.Uint64(b[32:])
	copy(h.mark.Head[:], b[40:])
	for i := range h.gens {
		f := b[headerBytes+generationBytes*i:]
		g := shape{binary.BigEndian.Uint64(f), binary.BigEndian.Uint64(f[8:]), binary.BigEndian.Uint64(f[16:]), binary.BigEndian.Uint64(f[24:])}
		if g.m == 0 || g.m%lineBits != 0 || g.m > maxBits || g.k == 0 || g.k > maxK || g.ones > g.m || g.keys > g.m {
			return corrupt("generation %d has %d bits, %d positions, %d ones, %d keys", i, g.m, g.k, g.ones, g.keys)
		}
		h.gens[i] = g
	}
	if want, _, _ := h.size(); want != size {
		return corrupt("it has %d bytes and should have %d", size, want)
	}
	if h.secretID == 0 || flags&^flagPadded != 0 {
		return corrupt("secret %d, flags %x", h.secretID, flags)
	}
	return nil
}

// checkSecret refuses a snapshot whose positions mean nothing to p.
func (h header) checkSecret(p Params) error {
	if h.secretID != p.Secret.ID {
		return fault.New(fault.Conflict, "SNAPSHOT_SECRET", "bloom: snapshot: it was made under filter secret %08x, this is %08x; the filter is built from the store", h.secretID, p.Secret.ID)
	}
	return nil
}

// checkMemory refuses a snapshot that takes more memory than p allows.
func (h header) checkMemory(p Params) error {
	if _, _, memory := h.size(); p.MaxBytes > 0 && memory > p.MaxBytes {
		return fault.New(fault.Conflict, "SNAPSHOT_MEMORY", "bloom: snapshot: it takes %d bytes of memory, %d are allowed; the filter is built from the store", memory, p.MaxBytes)
	}
	return nil
}

// readSet reads what follows the header h. A chunk that is not what was written,
// or can not be read, becomes all ones: then everything may be in it. It returns
// how many there were.
func (h header) readSet(read readAt, p Params) (s *Set, corruptChunks int) {
	off, number := int64(h.length()), uint64(0)
	buf := make([]byte, chunkBytes+sumBytes)
	gens := make([]*generation, 0, len(h.gens))
	for _, shape := range h.gens {
		g := newGeneration(shape.m, shape.k)
		for words := g.words; len(words) > 0; number++ {
			part := words[:min(len(words), chunkWords)]
			words = words[len(part):]
			chunk := buf[:8*len(part)+sumBytes]
			data := chunk[:8*len(part)]
			if read(chunk, off) != nil || binary.BigEndian.Uint32(chunk[len(data):]) != h.chunkSum(number, data) {
				corruptChunks++
				for i := range part {
					part[i] = math.MaxUint64
				}
			} else {
				for i := range part {
					part[i] = binary.LittleEndian.Uint64(data[8*i:])
				}
			}
			off += int64(len(chunk))
		}
		ones := uint64(0) // not those of the header, which may have been added to meanwhile
		for _, w := range g.words {
			ones += uint64(bits.OnesCount64(w))
		}
		g.ones.Store(ones)
		g.keys.Store(shape.keys)
		gens = append(gens, g)
	}
	s = newSet(p, gens)
	s.padded.Store(h.padded || corruptChunks > 0)
	return s, corruptChunks
}

// Received is what ReadSnapshot found beside the bits.
type Received struct {
	Mark          Mark
	CorruptChunks int // that were set to ones: the set is right, and wrong more often
}

// ReadSnapshot reads a snapshot of size bytes from r, as WriteSnapshotTo wrote
// it, for whoever keeps the filter of another process. The set is not complete:
// compare Mark.Identity with that of the store, add what came after Mark.Seq, and
// call Complete. p.Secret must be the writer's, and p.MaxBytes bounds the memory,
// which is never more than size.
//
// It fails with SNAPSHOT_CORRUPT, SNAPSHOT_VERSION, SNAPSHOT_SECRET or
// SNAPSHOT_MEMORY, and with the error of r if that ended early.
func ReadSnapshot(r io.Reader, size int64, p Params) (*Set, Received, error) {
	p = p.clamped()
	var broken error
	read := func(b []byte, _ int64) error { // every read follows the one before
		if broken == nil {
			_, broken = io.ReadFull(r, b)
		}
		return broken
	}
	h, err := readHeader(read, uint64(max(size, 0)))
	if err == nil {
		err = h.checkSecret(p)
	}
	if err == nil {
		err = h.checkMemory(p)
	}
	if err != nil {
		return nil, Received{}, err
	}
	s, bad := h.readSet(read, p)
	if broken != nil {
		return nil, Received{}, fault.New(fault.Transient, "SNAPSHOT_CUT", "bloom: snapshot: read it: %w", broken)
	}
	return s, Received{h.mark, bad}, nil
}
