package archive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
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
