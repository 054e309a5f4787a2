package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/wire"
)

// compareSums looks row by row at the ranges of numbers whose sums differ.
func (c *checker) compareSums(ctx context.Context) error {
	p := c.pos
	differ := make(map[uint64]bool)
	for r, s := range p.sums {
		if s.Want != s.Got {
			differ[r] = true
		}
	}
	if len(differ) == 0 {
		return nil
	}
	before, told := p.Report.Damages, true
	for r := range p.End>>p.Shift + 1 {
		if differ[r] {
			all, err := c.compareRecords(ctx, max(r<<p.Shift, 1), min((r+1)<<p.Shift-1, p.End))
			if err != nil {
				return err
			}
			told = told && all
		}
	}
	for _, prefix := range indexPrefixes {
		if err := c.compareRows(ctx, prefix, differ); err != nil {
			return err
		}
	}
	if p.Report.Damages == before && before == 0 && told {
		c.found(Finding{Kind: FindingIndex, What: "the index changed while it was checked", Damage: true})
	}
	return nil
}

// compareRecords looks up every row that the records from first to last give. told
// is false if there is a sound record of which not all can be told, since nobody
// knows its file.
func (c *checker) compareRecords(ctx context.Context, first, last uint64) (told bool, err error) {
	it, err := c.n.iterate(logKey(first), logKey(last+1))
	if err != nil {
		return false, err
	}
	defer func() { _ = it.Close() }() // a failed read was found before
	told = true
	for valid := it.First(); valid && ctx.Err() == nil; valid = it.Next() {
		seq, ok := logSeq(it.Key())
		if !ok {
			continue
		}
		want := c.rowsAgain(ctx, seq, it.Value())
		told = told && !want.partly
		for _, r := range want.rows {
			if what := c.differs(r, want.partly); what != "" {
				c.found(Finding{Kind: FindingIndex, What: what, Damage: true, Seq: seq, Record: want.id})
			}
		}
	}
	return told, ctx.Err()
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

// compareRows looks for rows that no record gives.
func (c *checker) compareRows(ctx context.Context, prefix byte, differ map[uint64]bool) error {
	it, err := c.n.iterate(prefixBounds(prefix))
	if err != nil {
		return err
	}
	defer func() { _ = it.Close() }() // a failed read was found before
	for valid := it.First(); valid && ctx.Err() == nil; valid = it.Next() {
		seq, ok := rowSeq(it.Key(), it.Value())
		if !ok || seq > c.pos.End || !differ[seq>>c.pos.Shift] || c.n.lost.has(seq) || c.n.identity.lineage.of(seq) == 0 {
			continue
		}
		given, known, err := c.given(ctx, seq, it.Key(), it.Value())
		if err != nil {
			return err
		}
		if known && !given {
			c.found(Finding{Kind: FindingIndex, What: fmt.Sprintf("key %x is in the index, and the record of seq %d does not give it", it.Key(), seq), Damage: true, Seq: seq})
		}
	}
	return ctx.Err()
}

// given reports whether the record of seq gives a row with a key; known is false
// if that can not be told.
func (c *checker) given(ctx context.Context, seq uint64, key, row []byte) (given, known bool, err error) {
	value, closer, err := c.n.db.Get(logKey(seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, true, nil
	}
	if err != nil {
		return false, false, nil // found before
	}
	defer c.n.closeQuietly(closer)
	want := c.rowsAgain(ctx, seq, value)
	if want.rows == nil || want.partly && want.blockRow(key, row) {
		return false, false, ctx.Err()
	}
	return slices.ContainsFunc(want.rows, func(r kv) bool { return bytes.Equal(r.key, key) }), true, nil
}
