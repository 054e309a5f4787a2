package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/wire"
)

// indexPrefixes are the kinds of keys that are derived from the log, sorted.
var indexPrefixes = []byte{prefixIndex, prefixPut, prefixTenant}

// index sums up the next rows of the index and, when there are no more, looks at
// the ranges whose sums are not what the log gives.
func (c *checker) index(ctx context.Context) error {
	p := c.pos
	if len(p.Key) == 0 {
		p.Key = []byte{indexPrefixes[0]}
	}
	at := slices.Index(indexPrefixes, p.Key[0])
	if at < 0 {
		if err := c.compareSums(ctx); err != nil {
			return err
		}
		p.Phase, p.Key, p.sums = phaseFiles, nil, make(map[uint64]*rowSum)
		return nil
	}
	size, end, err := c.sumRows()
	if err != nil {
		return err
	}
	if err := c.pace(ctx, size); err != nil {
		return err
	}
	p.Report.Bytes += int64(size)
	if end && at+1 < len(indexPrefixes) {
		p.Key = []byte{indexPrefixes[at+1]}
	} else if end {
		p.Key = []byte{math.MaxUint8}
	}
	return nil
}

// sumRows adds the rows behind the position to the sums.
func (c *checker) sumRows() (size int, end bool, err error) {
	p := c.pos
	it, err := c.n.iterate(append(slices.Clone(p.Key), 0), []byte{p.Key[0] + 1})
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var buf []byte
	n := 0
	for valid := it.First(); valid; valid = it.Next() {
		if n++; n > c.rows || size > checkBytes {
			return size, false, nil
		}
		c.sumRow(&buf, it.Key(), it.Value())
		size += len(it.Key()) + len(it.Value())
		p.Key = append(p.Key[:0], it.Key()...)
	}
	if err := it.Error(); err != nil && n == 0 {
		end, err := c.skipRows(err)
		return 0, end, err
	}
	return size, it.Error() == nil, nil
}

// sumRow adds one row to the sums if it is one that the log may give.
func (c *checker) sumRow(buf *[]byte, key, value []byte) {
	p := c.pos
	seq, ok := rowSeq(key, value)
	bad := func(format string, args ...any) {
		c.found(Finding{Kind: FindingIndex, What: fmt.Sprintf(format, args...), Damage: true, Seq: seq})
	}
	switch {
	case !ok:
		bad("index key %x is not one", key)
		return
	case seq > p.End:
		// Stored since the check began, together with its record.
		if there, err := c.has(logKey(seq)); err == nil && !there {
			bad("index key %x is of seq %d, which is not in the log", key, seq)
		}
		return
	case c.n.identity.lineage.of(seq) == 0:
		bad("index key %x is of seq %d, which is in no generation", key, seq)
		return
	case c.n.lost.has(seq):
		if key[0] == prefixPut {
			bad("put id %x is bound to seq %d, which is lost", key[1:], seq)
		}
		return
	}
	switch key[0] {
	case prefixIndex:
		p.Report.IndexRows++
		if digest, _, _ := indexKeyParts(key); c.n.filter != nil && c.n.filter.Test(digest) == bloom.Absent {
			c.found(Finding{Kind: FindingFilter, What: fmt.Sprintf("the filter denies digest %x of seq %d", digest, seq), Damage: true, Repair: repairStart, Seq: seq})
		}
	case prefixTenant:
		p.Report.TenantRows++
	case prefixPut:
		p.Report.PutIDs++
	}
	p.sum(seq).Got.add(p.hashRow(buf, key, value))
}

// rowSeq returns the number of the record that a row of the index is of.
func rowSeq(key, value []byte) (seq uint64, ok bool) {
	switch key[0] {
	case prefixIndex:
		_, seq, ok = indexKeyParts(key)
	case prefixTenant:
		_, _, seq, ok = tenantKeyParts(key)
	case prefixPut:
		seq, _, ok = parsePutValue(value)
		ok = ok && len(key) == 1+len(putKey{})
	}
	return seq, ok && seq > 0
}

func (c *checker) has(key []byte) (bool, error) {
	_, closer, err := c.n.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// skipRows goes on behind rows that can not be read.
func (c *checker) skipRows(cause error) (end bool, err error) {
	p := c.pos
	prefix := p.Key[0]
	p.Unread = true
	var rest [8]byte
	copy(rest[:], p.Key[1:])
	from := binary.BigEndian.Uint64(rest[:])
	c.unreadable(FindingIndex, fmt.Sprintf("the index from key %x on", p.Key), cause)
	for step := uint64(1); step != 0; step *= 2 {
		to := from + step
		if to < from {
			break
		}
		key := binary.BigEndian.AppendUint64([]byte{prefix}, to)
		it, err := c.n.iterate(key, []byte{prefix + 1})
		if err != nil {
			return false, err
		}
		it.First()
		failed := it.Error()
		_ = it.Close() // it repeats the error of the read
		if failed == nil {
			p.Key = key
			return false, nil
		}
	}
	return true, nil
}

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
	before := p.Report.Damages
	for r := range p.End>>p.Shift + 1 {
		if differ[r] {
			if err := c.compareRecords(ctx, max(r<<p.Shift, 1), min((r+1)<<p.Shift-1, p.End)); err != nil {
				return err
			}
		}
	}
	for _, prefix := range indexPrefixes {
		if err := c.compareRows(ctx, prefix, differ); err != nil {
			return err
		}
	}
	if p.Report.Damages == before && before == 0 {
		c.found(Finding{Kind: FindingIndex, What: "the index changed while it was checked", Damage: true})
	}
	return nil
}

// compareRecords looks up every row that the records from first to last give.
func (c *checker) compareRecords(ctx context.Context, first, last uint64) (err error) {
	it, err := c.n.iterate(logKey(first), logKey(last+1))
	if err != nil {
		return err
	}
	defer func() { _ = it.Close() }() // a failed read was found before
	for valid := it.First(); valid; valid = it.Next() {
		seq, ok := logSeq(it.Key())
		rows, id := c.rowsAgain(ctx, seq, it.Value())
		if !ok || rows == nil {
			continue
		}
		for _, r := range rows {
			if what := c.differs(r); what != "" {
				c.found(Finding{Kind: FindingIndex, What: what, Damage: true, Seq: seq, Record: id})
			}
		}
	}
	return ctx.Err()
}

// rowsAgain returns the rows that a log entry gives, and the record's id; nothing
// if it is not sound, which was found before, or a stub.
func (c *checker) rowsAgain(ctx context.Context, seq uint64, value []byte) ([]kv, wire.RecordID) {
	f, err := decodeFrame(value)
	if err != nil || f.lost || f.Seq != seq {
		return nil, wire.RecordID{}
	}
	rec := f.record()
	if f.verify(&rec) != nil {
		return nil, wire.RecordID{}
	}
	rows, err := c.n.rowsOf(ctx, f, &rec)
	if err != nil {
		return nil, wire.RecordID{}
	}
	return rows, rec.ID
}

// differs says what is wrong with a row that the log gives, or "".
func (c *checker) differs(want kv) string {
	got, closer, err := c.n.db.Get(want.key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return fmt.Sprintf("key %x is missing from the index", want.key)
	case err != nil:
		return fmt.Sprintf("key %x of the index can not be read: %v", want.key, err)
	}
	same := bytes.Equal(got, want.value)
	c.n.closeQuietly(closer)
	if !same {
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
	for valid := it.First(); valid; valid = it.Next() {
		seq, ok := rowSeq(it.Key(), it.Value())
		if !ok || seq > c.pos.End || !differ[seq>>c.pos.Shift] || c.n.lost.has(seq) || c.n.identity.lineage.of(seq) == 0 {
			continue
		}
		given, known, err := c.given(ctx, seq, it.Key())
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
func (c *checker) given(ctx context.Context, seq uint64, key []byte) (given, known bool, err error) {
	value, closer, err := c.n.db.Get(logKey(seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, true, nil
	}
	if err != nil {
		return false, false, nil // found before
	}
	defer c.n.closeQuietly(closer)
	rows, _ := c.rowsAgain(ctx, seq, value)
	if rows == nil {
		return false, false, ctx.Err()
	}
	return slices.ContainsFunc(rows, func(r kv) bool { return bytes.Equal(r.key, key) }), true, nil
}
