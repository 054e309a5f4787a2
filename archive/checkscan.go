package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// rowScan sums up rows of the index, all of one kind, in the order of their keys.
type rowScan struct {
	c        *checker
	from, to []byte // keys
	key      []byte // the last key that was read or skipped; nil if there is none
	limited  bool   // to what is checked at a time
	buf      []byte
	sums     []lanes   // by ranges of sequence numbers
	size     int       // bytes of keys and values
	unread   bool      // some could not be read
	filters  []*intake // that must have the rows; made by the first

	indexRows, tenantRows, putIDs uint64
}

// run goes on to the end, or to the limit, and then end is false. It goes on
// behind what can not be read.
func (s *rowScan) run(ctx context.Context) (end bool, err error) {
	s.sums = make([]lanes, s.c.pos.End>>s.c.pos.Shift+1)
	for {
		more, unreadable, err := s.read(ctx)
		if err != nil || unreadable == nil {
			return !more, err
		}
		end, err = s.skip(unreadable)
		if err != nil || end || s.limited {
			return end, err
		}
	}
}

// read sums up rows until one can not be read.
func (s *rowScan) read(ctx context.Context) (more bool, unreadable, err error) {
	it, err := s.c.n.iterate(s.from, s.to)
	if err != nil {
		return false, nil, err
	}
	n := 0
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if more = s.limited && (n == s.c.rows || s.size > checkBytes); more {
			break
		}
		if n++; n%checkRows == 0 {
			err = ctx.Err()
		}
		s.row(it.Key(), it.Value())
		s.size += len(it.Key()) + len(it.Value())
		s.key = append(s.key[:0], it.Key()...)
	}
	unreadable = it.Error()
	_ = it.Close() // it repeats the error of the read
	if n > 0 {
		s.from = append(bytes.Clone(s.key), 0)
	}
	return more, unreadable, err
}

// row adds one row to the sums if it is one that the log may give.
func (s *rowScan) row(key, value []byte) {
	c, p := s.c, s.c.pos
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
		s.indexRows++
		s.scrub(seq, key, value)
	case prefixTenant:
		s.tenantRows++
	case prefixPut:
		s.putIDs++
	}
	s.buf = append(append(s.buf[:0], key...), value...)
	s.sums[seq>>p.Shift].add(p.hashRow(s.buf))
}

// scrub looks in the filters for a row of the index. One whose record can not be
// read is left to those who read the log.
func (s *rowScan) scrub(seq uint64, key, value []byte) {
	if s.filters == nil && s.c.n.wake != nil { // else there are none
		s.filters = s.c.n.intakes()
	}
	digest, _, _ := indexKeyParts(key)
	for _, in := range s.filters {
		var err error
		if in.buf, err = in.hashing.row(in.buf[:0], digest, seq, value); err == nil && in.f.scrub(in.buf...) > 0 {
			s.c.found(Finding{Kind: FindingFilter, What: fmt.Sprintf("the filter %s denied digest %x of seq %d, and has it now", in.f.name, digest, seq), Seq: seq})
		}
	}
}

// skip goes on behind rows that can not be read; end says that none can.
func (s *rowScan) skip(cause error) (end bool, err error) {
	s.unread = true
	from := paddedSeq(s.from[1:])
	after := s.key
	if after == nil {
		after = s.from
	}
	s.c.unreadable(FindingIndex, fmt.Sprintf("the index from key %x on", after), cause)
	for step := uint64(1); step != 0 && from+step >= from; step *= 2 {
		key := binary.BigEndian.AppendUint64([]byte{s.from[0]}, from+step)
		if bytes.Compare(key, s.to) >= 0 {
			break
		}
		it, err := s.c.n.iterate(key, s.to)
		if err != nil {
			return false, err
		}
		it.First()
		failed := it.Error()
		_ = it.Close() // it repeats the error of the read
		if failed == nil {
			s.from, s.key = key, key
			return false, nil
		}
	}
	return true, nil
}

// cutDepth is how many times the rows of one kind are halved.
const cutDepth = 6

// cutRows returns scans that together read all rows of a kind. They can run side
// by side.
func (c *checker) cutRows(prefix byte) ([]*rowScan, error) {
	from, to := prefixBounds(prefix)
	it, err := c.n.iterate(from, to)
	if err != nil {
		return nil, err
	}
	scans := c.cut(it, from, to, cutDepth)
	_ = it.Close() // what can not be read the scans meet again
	return scans, nil
}

// cut halves the rows from a key to below another, by the numbers that their keys
// begin with, and then each half. it reads them.
func (c *checker) cut(it *pebble.Iterator, from, to []byte, depth int) []*rowScan {
	whole := []*rowScan{{c: c, from: from, to: to}}
	if depth == 0 || !it.SeekGE(from) {
		return whole
	}
	first := bytes.Clone(it.Key())
	if !it.SeekLT(to) {
		return whole
	}
	mid := halfway(first, it.Key())
	if mid == nil || bytes.Compare(mid, to) >= 0 {
		return whole
	}
	return append(c.cut(it, from, mid, depth-1), c.cut(it, mid, to, depth-1)...)
}

// halfway returns a key above a and not above b, about in the middle, or nil if
// they begin with the same number.
func halfway(a, b []byte) []byte {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	low, high := paddedSeq(a[same:]), paddedSeq(b[same:])
	if low >= high {
		return nil
	}
	return binary.BigEndian.AppendUint64(bytes.Clone(a[:same]), low+(high-low)/2+1)
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
