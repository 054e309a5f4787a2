package archive

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// positionVersion is that of stored positions. A scrub that meets another one
// begins anew.
const positionVersion = 1

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
	// stored, by ranges of 2^Shift sequence numbers. Rows are hashed with Salt,
	// so that nobody can make rows whose sums agree.
	Salt   wire.Digest `json:"salt"`
	Shift  uint        `json:"shift"`
	Ranges []rowSum    `json:"sums"`
	// Key is the last key of the index that was checked, Unread that some could
	// not be.
	Key    []byte `json:"key,omitempty"`
	Unread bool   `json:"unread,omitzero"`

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

type lanes [4]uint64

// MarshalText returns l as 64 hexadecimal digits.
func (l lanes) MarshalText() ([]byte, error) {
	var b wire.Digest
	for i := range l {
		binary.LittleEndian.PutUint64(b[8*i:], l[i])
	}
	return b.MarshalText()
}

// UnmarshalText reads what MarshalText writes.
func (l *lanes) UnmarshalText(text []byte) error {
	var b wire.Digest
	if err := b.UnmarshalText(text); err != nil {
		return err
	}
	for i := range l {
		l[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return nil
}

func (l *lanes) add(b lanes) {
	for i := range l {
		l[i] += b[i]
	}
}

// minShift is the least number of bits of a range of sequence numbers, maxSums
// about the most ranges: a stored position stays below 200 KiB.
const (
	minShift = 12
	maxSums  = 1024
)

// begin chooses salt and ranges, and has an empty tree.
func (p *position) begin() {
	p.edge = new(tlogx.Edge)
	rand.Read(p.Salt[:]) // never fails: crypto/rand crashes the program instead
	p.Shift = max(minShift, uint(bits.Len64(p.End/maxSums)))
	p.sums = make(map[uint64]*rowSum)
}

// sum returns the sums of the range of a sequence number.
func (p *position) sum(seq uint64) *rowSum {
	s := p.sums[seq>>p.Shift]
	if s == nil {
		s = &rowSum{Range: seq >> p.Shift}
		p.sums[seq>>p.Shift] = s
	}
	return s
}

// hashRow returns what a row adds to a sum. Keys of one kind have one length, so
// that key and value are told apart. buf is scratch space.
func (p *position) hashRow(buf *[]byte, key, value []byte) lanes {
	b := append(append(append((*buf)[:0], p.Salt[:]...), key...), value...)
	*buf = b
	h := sha256.Sum256(b)
	var l lanes
	for i := range l {
		l[i] = binary.LittleEndian.Uint64(h[8*i:])
	}
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
