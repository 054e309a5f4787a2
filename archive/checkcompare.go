package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/wire"
)

// compared begins the key of a position that is behind the index. What follows says
// how far the comparison is: nothing or the log key of the record that comes next,
// or the key of the row of the index that was the last, or only its prefix.
const compared = math.MaxUint8

// compare looks row by row at the ranges of numbers whose sums differ: first at
// some of what their records give, then at some of what is stored.
func (c *checker) compare(ctx context.Context) error {
	p := c.pos
	differ := make(map[uint64]bool)
	for r, s := range p.sums {
		if s.Want != s.Got {
			differ[r] = true
		}
	}
	if len(differ) == 0 {
		c.endIndex()
		return nil
	}
	look := c.compareRecords
	if len(p.Key) > 1 && p.Key[1] != prefixLog {
		look = c.compareRows
	}
	size, err := look(ctx, differ)
	p.Report.Bytes += int64(size)
	if err != nil {
		return err
	}
	return c.pace(ctx, size)
}

// endIndex ends the phase of the index.
func (c *checker) endIndex() {
	p := c.pos
	p.Phase, p.Key, p.Partly, p.sums = phaseFiles, nil, false, make(map[uint64]*rowSum)
}

// compareRecords looks up every row that some records give, and notes in Partly if
// there is a sound one of which not all can be told, since nobody knows its file.
// It returns the bytes that it has read.
func (c *checker) compareRecords(ctx context.Context, differ map[uint64]bool) (size int, err error) {
	p, first := c.pos, uint64(1)
	if seq, ok := logSeq(p.Key[1:]); ok {
		first = seq
	}
	for first <= p.End && !differ[first>>p.Shift] {
		first = (first>>p.Shift + 1) << p.Shift
	}
	if first > p.End {
		p.Key = []byte{compared, indexPrefixes[0]}
		return 0, nil
	}
	next := min((first>>p.Shift+1)<<p.Shift, p.End+1)
	it, err := c.n.iterate(logKey(first), logKey(next))
	if err != nil {
		return 0, err
	}
	defer func() { _ = it.Close() }() // a failed read was found before
	records := 0
	for valid := it.First(); valid; valid = it.Next() {
		seq, ok := logSeq(it.Key())
		if !ok {
			continue
		}
		full := records == c.rows || size > checkBytes
		want := givenRows{}
		if !full {
			want = c.rowsAgain(ctx, seq, it.Value())
		}
		if full || ctx.Err() != nil {
			next = seq
			break
		}
		records++
		size += len(it.Value())
		p.Partly = p.Partly || want.partly
		for _, r := range want.rows {
			size += len(r.key) + len(r.value)
			if what := c.differs(r, want.partly); what != "" {
				c.found(Finding{Kind: FindingIndex, What: what, Damage: true, Seq: seq, Record: want.id})
			}
		}
	}
	p.Key = append([]byte{compared}, logKey(next)...)
	return size, ctx.Err()
}

// givenRows are the rows that a record gives.
type givenRows struct {
	id     wire.RecordID
	rows   []kv // the first is under the subject
	partly bool // nobody knows its file: what is under the file's blocks is not in rows
}

// differs reports whether a row of the store, under the key of r, is another one.
func (r kv) differs(got []byte, partly bool) bool {
	if partly && r.key[0] == prefixIndex && len(got) == len(r.value) {
		got = bytes.Clone(got)
		got[rowRoles] &^= byte(roleBlock) // a small file is its own block
	}
	return !bytes.Equal(got, r.value)
}

// blockRow reports whether a value is that of a row under a block of the file.
func (g *givenRows) blockRow(key, value []byte) bool {
	want := bytes.Clone(g.rows[0].value)
	want[rowRoles] = byte(roleBlock)
	return key[0] == prefixIndex && bytes.Equal(value, want)
}

// rowsAgain returns the rows that a log entry gives: none if it is not sound, which
// was found before, or a stub.
func (c *checker) rowsAgain(ctx context.Context, seq uint64, value []byte) (g givenRows) {
	f, err := decodeFrame(value)
	if err != nil || f.lost || f.Seq != seq {
		return g
	}
	rec := f.portable()
	if f.verifyPortable(&rec) != nil {
		return g
	}
	g.id = wire.RecordID(f.RecordID)
	g.rows, err = c.n.rowsOf(ctx, f, &rec)
	g.partly = err != nil
	return g
}

// differs says what is wrong with a row that the log gives, or "".
func (c *checker) differs(want kv, partly bool) string {
	got, closer, err := c.n.db.Get(want.key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return fmt.Sprintf("key %x is missing from the index", want.key)
	case err != nil:
		return fmt.Sprintf("key %x of the index can not be read: %v", want.key, err)
	}
	differs := want.differs(got, partly)
	c.n.closeQuietly(closer)
	if differs {
		return fmt.Sprintf("the index row of key %x is not what the log gives", want.key)
	}
	return ""
}

// compareRows looks at some rows for those that no record gives. It returns the
// bytes that it has read.
func (c *checker) compareRows(ctx context.Context, differ map[uint64]bool) (size int, err error) {
	p := c.pos
	last := bytes.Clone(p.Key[1:])
	prefix, from := last[0], bytes.Clone(last)
	if len(last) > 1 {
		from = append(from, 0)
	}
	it, err := c.n.iterate(from, []byte{prefix + 1})
	if err != nil {
		return 0, err
	}
	defer func() { _ = it.Close() }() // a failed read was found before
	rows, more := 0, false
	for valid := it.First(); valid; valid = it.Next() {
		if more = rows == c.rows || size > checkBytes; more {
			break
		}
		n, err := c.compareRow(ctx, it.Key(), it.Value(), differ)
		if err != nil {
			return size, err
		}
		rows++
		size += n
		last = append(last[:0], it.Key()...)
		p.Key = append(p.Key[:1], last...)
	}
	at := slices.Index(indexPrefixes, prefix)
	switch {
	case more:
	case at+1 < len(indexPrefixes):
		p.Key = []byte{compared, indexPrefixes[at+1]}
	default:
		if p.Report.Damages == 0 && !p.Partly {
			c.found(Finding{Kind: FindingIndex, What: "the index changed while it was checked", Damage: true})
		}
		c.endIndex()
	}
	return size, ctx.Err()
}

// compareRow finds out whether the record that a row is of gives it. It returns
// the bytes that it has read.
func (c *checker) compareRow(ctx context.Context, key, row []byte, differ map[uint64]bool) (size int, err error) {
	size = len(key) + len(row)
	seq, ok := rowSeq(key, row)
	if !ok || seq > c.pos.End || !differ[seq>>c.pos.Shift] || c.n.lost.has(seq) || c.n.identity.lineage.of(seq) == 0 {
		return size, ctx.Err()
	}
	given, known, n, err := c.given(ctx, seq, key, row)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && known && !given {
		c.found(Finding{Kind: FindingIndex, What: fmt.Sprintf("key %x is in the index, and the record of seq %d does not give it", key, seq), Damage: true, Seq: seq})
	}
	return size + n, err
}

// given reports whether the record of seq, of size bytes, gives a row with a key;
// known is false if that can not be told.
func (c *checker) given(ctx context.Context, seq uint64, key, row []byte) (given, known bool, size int, err error) {
	value, closer, err := c.n.db.Get(logKey(seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, true, 0, nil
	}
	if err != nil {
		return false, false, 0, nil // found before
	}
	defer c.n.closeQuietly(closer)
	want := c.rowsAgain(ctx, seq, value)
	if want.rows == nil || want.partly && want.blockRow(key, row) {
		return false, false, len(value), ctx.Err()
	}
	return slices.ContainsFunc(want.rows, func(r kv) bool { return bytes.Equal(r.key, key) }), true, len(value), nil
}
