package archive

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/dchest/siphash"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// positionVersion is that of stored positions. Version 1 had other hashes of rows.
// A scrub that meets another one begins anew.
const positionVersion = 2

// position is how far a check has come, and all that it must remember to go on:
// a scrub stores it, and goes on after a restart where it was.
type position struct {
	Version int    `json:"version"`
	Phase   string `json:"phase"`

	// Table is the last table file that was read, Until the last one to be read.
	Table string `json:"table,omitzero"`
	Until string `json:"until,omitzero"`

	End      uint64    `json:"end"` // last number of the log when the check began
	Seq      uint64    `json:"seq"` // last number that was checked
	StoredAt wire.Time `json:"storedAt,omitzero"`
	// The Merkle tree over what was checked: the index of its generation in the
	// lineage, its size, and its peaks.
	Generation int           `json:"generation"`
	Size       int64         `json:"size"`
	Peaks      []wire.Digest `json:"peaks"`
	Blind      bool          `json:"blind,omitzero"` // leaves are missing that nothing tells
	Mark       positionMark  `json:"mark"`

	// Sums are those of the index rows that the log gives and of those that are
	// stored, by ranges of 2^Shift sequence numbers. Rows are hashed under HashKey,
	// so that nobody who does not know it can make rows whose sums agree; who can
	// read it here can read the key of the archive beside it.
	HashKey lanes    `json:"hashKey"`
	Shift   uint     `json:"shift"`
	Ranges  []rowSum `json:"sums"`
	// Key is the last key of the index that was checked, Unread that some could
	// not be. Behind the index it says how far the comparison of ranges is whose
	// sums differ, and Partly that in them there is a record whose rows can not be
	// told.
	Key    []byte `json:"key,omitempty"`
	Unread bool   `json:"unread,omitzero"`
	Partly bool   `json:"partly,omitzero"`

	File   wire.Digest `json:"file,omitzero"` // the last file whose bytes were checked
	Report CheckReport `json:"report"`

	// What the check works on; encode brings it into the fields above.
	edge     *tlogx.Edge        // Size and Peaks
	sums     map[uint64]*rowSum // Ranges
	storedAt int64              // StoredAt
}

// positionMark is the mark when the check began.
type positionMark struct {
	Seq  uint64      `json:"seq"`
	Size int64       `json:"size"`
	Root wire.Digest `json:"root"`
}

func (positionMark) of(h treeHead) positionMark {
	return positionMark{h.seq, h.size, wire.Digest(h.root)}
}

// rowSum has sums of hashes of rows, which do not depend on their order.
type rowSum struct {
	Range uint64 `json:"range"`
	Want  lanes  `json:"want"`
	Got   lanes  `json:"got"`
}

// lanes is a hash of 128 bits, or a sum of such, each half by itself.
type lanes [2]uint64

const lanesLen = 16 // bytes

// MarshalText returns l as 32 hexadecimal digits.
func (l lanes) MarshalText() ([]byte, error) {
	var b [lanesLen]byte
	binary.LittleEndian.PutUint64(b[:], l[0])
	binary.LittleEndian.PutUint64(b[8:], l[1])
	return hex.AppendEncode(nil, b[:]), nil
}

// UnmarshalText reads what MarshalText writes.
func (l *lanes) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != lanesLen {
		return fmt.Errorf("archive: a sum of %d digits: %w", len(text), err)
	}
	l[0], l[1] = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return nil
}

func (l *lanes) add(b lanes) { l[0], l[1] = l[0]+b[0], l[1]+b[1] }

// minShift is the least number of bits of a range of sequence numbers, maxSums
// about the most ranges: a stored position stays below 200 KiB.
const (
	minShift = 12
	maxSums  = 1024
)

// begin chooses key and ranges, and has an empty tree.
func (p *position) begin() {
	p.edge = new(tlogx.Edge)
	var key [lanesLen]byte
	rand.Read(key[:]) // never fails: crypto/rand crashes the program instead
	p.HashKey = lanes{binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])}
	p.Shift = shiftOf(p.End)
	p.sums = make(map[uint64]*rowSum)
}

// shiftOf returns the Shift of a check whose last number is end.
func shiftOf(end uint64) uint { return max(minShift, uint(bits.Len64(end/maxSums))) }

// sum returns the sums of the range of a sequence number.
func (p *position) sum(seq uint64) *rowSum {
	return p.sumOf(seq >> p.Shift)
}

func (p *position) sumOf(r uint64) *rowSum {
	s := p.sums[r]
	if s == nil {
		s = &rowSum{Range: r}
		p.sums[r] = s
	}
	return s
}

// hashRow returns what a row, its key and then its value, adds to a sum. Keys of
// one kind have one length, so that key and value are told apart. The hash is a
// pseudorandom function of the row: rows that are not the same have the same sum
// by chance only, with 1 in 2^128.
func (p *position) hashRow(row []byte) (l lanes) {
	l[0], l[1] = siphash.Hash128(p.HashKey[0], p.HashKey[1], row)
	return l
}

// stored brings the position into the form in which it is stored.
func (p *position) stored() *position {
	p.Size, p.Peaks = p.edge.Size(), []wire.Digest{}
	for _, h := range p.edge.Peaks() {
		p.Peaks = append(p.Peaks, wire.Digest(h))
	}
	p.Ranges = []rowSum{}
	for _, r := range slices.Sorted(maps.Keys(p.sums)) {
		p.Ranges = append(p.Ranges, *p.sums[r])
	}
	if p.storedAt != 0 {
		p.StoredAt = wire.At(time.Unix(0, p.storedAt))
	}
	return p
}

// ready brings a position that was stored into the form in which it is used.
func (p *position) ready() (*position, error) {
	if p.Version != positionVersion {
		return nil, fmt.Errorf("archive: a position of version %d, this program writes %d", p.Version, positionVersion)
	}
	if p.Shift != shiftOf(p.End) { // it says how much memory sums take
		return nil, fmt.Errorf("archive: a position with ranges of %d bits up to seq %d", p.Shift, p.End)
	}
	peaks := make([]tlog.Hash, len(p.Peaks))
	for i, h := range p.Peaks {
		peaks[i] = tlog.Hash(h)
	}
	var err error
	if p.edge, err = tlogx.EdgeOf(p.Size, peaks); err != nil {
		return nil, fmt.Errorf("archive: a position: %w", err)
	}
	p.sums = make(map[uint64]*rowSum)
	for _, s := range p.Ranges {
		p.sums[s.Range] = &s
	}
	if at, ok := p.StoredAt.Instant(); ok {
		p.storedAt = at.UnixNano()
	}
	return p, nil
}
