package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// logPart is a part of the log that one goroutine reads and examines.
type logPart struct {
	lower, upper []byte // keys
	limited      bool   // to what is checked at a time, and a record
	entries      []logEntry
	size         int   // bytes of keys and values
	more         bool  // the limit came before upper
	unreadable   error // why nothing behind the entries can be read
	err          error // why the check can not go on
}

// logParts returns the parts of the log that the next step looks at, and end if
// nothing is behind them. At least one of them begins with a record, if there is
// any, so that each step comes further.
func (c *checker) logParts() (parts []*logPart, end bool, err error) {
	from, to := logKey(c.pos.Seq+1), logKey(c.pos.End+1)
	if c.side == 1 {
		return []*logPart{{lower: from, upper: to, limited: true}}, true, nil
	}
	it, err := c.n.iterate(from, to)
	if err != nil {
		return nil, false, err
	}
	for records := 0; records < c.perStep() && !end; {
		if !it.SeekGE(from) {
			end = true
			break
		}
		if _, ok := logSeq(it.Key()); ok {
			records++
		}
		upper := to
		if seq := paddedSeq(it.Key()[1:]); c.pos.End-seq >= uint64(c.rows) {
			upper = logKey(seq + uint64(c.rows))
		}
		parts = append(parts, &logPart{lower: from, upper: upper})
		from, end = upper, bytes.Equal(upper, to)
	}
	if it.Error() != nil { // as whoever reads it will see
		parts = append(parts, &logPart{lower: from, upper: to, limited: true})
	}
	_ = it.Close() // it repeats the error of the read
	return parts, end, nil
}

// paddedSeq returns the number in the first bytes of b, as if zeros followed.
func paddedSeq(b []byte) uint64 {
	var seq [seqLen]byte
	copy(seq[:], b)
	return binary.BigEndian.Uint64(seq[:])
}

// examineAll reads and examines parts side by side, and yields them in order. Of
// each processor one part waits to be taken and one is under way.
func (c *checker) examineAll(ctx context.Context, parts []*logPart) iter.Seq[*logPart] {
	return func(yield func(*logPart) bool) {
		if c.side == 1 {
			x := examiner{c: c}
			for _, p := range parts {
				if x.examineAll(ctx, p); !yield(p) {
					return
				}
			}
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		defer close(done)
		defer cancel()
		ready := make([]chan *logPart, c.side)
		for i := range ready {
			ready[i] = make(chan *logPart, 1)
			wg.Go(func() {
				x := examiner{c: c}
				for at := i; at < len(parts); at += c.side {
					x.examineAll(ctx, parts[at])
					select {
					case ready[i] <- parts[at]:
					case <-done:
						return
					}
				}
			})
		}
		for i := range parts {
			if !yield(<-ready[i%c.side]) {
				return
			}
			parts[i] = nil // its entries are not needed any more
		}
	}
}

// examiner looks at log entries by themselves, one after the other.
type examiner struct {
	c     *checker
	frame frame // the last one
	rows  rowWriter
	leaf  []byte // scratch space
}

// examineAll reads the entries of a part.
func (x *examiner) examineAll(ctx context.Context, p *logPart) {
	it, err := x.c.n.iterate(p.lower, p.upper)
	if err != nil {
		p.err = err
		return
	}
	p.entries = make([]logEntry, 0, x.c.rows)
	records := 0
	for valid := it.First(); valid && p.err == nil; valid = it.Next() {
		if p.limited && records > 0 && (p.size >= checkBytes || records == x.c.rows) {
			// The next step begins behind the last record: what is behind that and is
			// none belongs to this one.
			if _, p.more = logSeq(it.Key()); p.more {
				break
			}
		}
		p.entries = append(p.entries, logEntry{})
		e := &p.entries[len(p.entries)-1]
		p.size += len(it.Key()) + len(it.Value())
		if p.err = ctx.Err(); p.err == nil {
			p.err = x.examine(ctx, e, it.Key(), it.Value())
		}
		if e.seq != 0 {
			records++
		}
	}
	p.unreadable = it.Error()
	_ = it.Close() // it repeats the error of the read
}

// examine looks at one entry. It only writes to e.
func (x *examiner) examine(ctx context.Context, e *logEntry, key, value []byte) error {
	n := x.c.n
	bad := func(format string, args ...any) {
		e.findings = append(e.findings, Finding{Kind: FindingRecord, What: fmt.Sprintf(format, args...), Damage: true, Seq: e.seq, Record: e.bone.id})
	}
	var ok bool
	if e.seq, ok = logSeq(key); !ok {
		bad("log key %x", key)
		return nil
	}
	f := &x.frame
	if err := f.decode(value); err != nil {
		bad("seq %d: %v", e.seq, err)
		return nil
	}
	id := wire.RecordID(f.RecordID)
	g := n.identity.lineage.of(e.seq)
	if f.Seq != e.seq || f.ArchiveID != string(n.cfg.ID) || !f.canonical(value) || g != 0 && f.Generation != g {
		e.bone.id = id
		bad("seq %d holds seq %d of %s, generation %d, or is not in its canonical form", e.seq, f.Seq, f.ArchiveID, f.Generation)
		e.bone.id = wire.RecordID{}
		return nil
	}
	e.bone, e.lost = f.bone(), f.lost
	var err error
	if e.leaf, err = x.leafHash(f); err != nil {
		return err
	}
	if n.lost.has(e.seq) != f.lost || f.lost && n.lost.ids[e.seq] != id {
		e.findings = append(e.findings, Finding{
			Kind: FindingLost, What: fmt.Sprintf("seq %d is a stub: %v; it is on the list of lost records: %v (or there with another id)", e.seq, f.lost, n.lost.has(e.seq)),
			Damage: true, Seq: e.seq, Record: id,
		})
	}
	if f.lost {
		return nil
	}
	rec := f.portable()
	if err := f.verifyPortable(&rec); err != nil {
		bad("%v", err)
		return nil
	}
	return x.derive(ctx, e, &rec)
}

// leafHash returns the hash of leafBytes of f. The keys of a leaf are encoded in
// the header in the same way.
func (x *examiner) leafHash(f *frame) (tlog.Hash, error) {
	if f.place == nil {
		leaf, err := leafBytes(f)
		return tlog.RecordHash(leaf), err
	}
	const keys = 6
	x.leaf = append(x.leaf[:0], leafPrefix, cborMap<<5|keys)
	x.leaf = append(append(x.leaf, f.place...), 7, cborBytes<<5|24, digestLen)
	x.leaf = append(x.leaf, f.RecordID...)
	return sha256.Sum256(x.leaf), nil
}

// derive sums up the index rows of the record in the frame.
func (x *examiner) derive(ctx context.Context, e *logEntry, rec *wire.PutRecord) error {
	var blocks [][digestLen]byte
	if rec.File != nil {
		e.file = rec.File.SHA256
		if e.unknown = x.c.o.FilesUnknown; e.unknown {
			return nil
		}
		var err error
		blocks, err = x.c.n.blocks(ctx, rec.File)
		e.unknown = err != nil
		f := Finding{Kind: FindingRecord, Damage: true, Seq: e.seq, Record: e.bone.id, File: e.file}
		switch {
		case fault.CodeOf(err) == "FILE_MISSING":
		case fault.Is(err, fault.Corrupt):
			f.Kind = FindingFile
		case err != nil:
			return err
		}
		if e.unknown {
			f.What = fmt.Sprintf("seq %d: %v", e.seq, err)
			e.findings = append(e.findings, f)
			return nil
		}
	}
	x.rows.derive(&x.frame, rec, blocks, func(row []byte, _ int) {
		e.sum.add(x.c.pos.hashRow(row))
	})
	return nil
}
