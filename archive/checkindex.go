package archive

import (
	"context"
	"slices"
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
		return c.compare(ctx)
	}
	size, end, err := c.sumRows(ctx)
	if err != nil {
		return err
	}
	p.Report.Bytes += int64(size)
	if end && at+1 < len(indexPrefixes) {
		p.Key = []byte{indexPrefixes[at+1]}
	} else if end {
		p.Key = []byte{compared}
	}
	return c.pace(ctx, size)
}

// sumRows adds rows behind the position to the sums: some, or on all processors
// many. end says that there are no more with the position's prefix.
func (c *checker) sumRows(ctx context.Context) (size int, end bool, err error) {
	p := c.pos
	if c.side == 1 {
		from := p.Key
		if len(from) > 1 {
			from = append(slices.Clone(from), 0)
		}
		s := &rowScan{c: c, from: from, to: []byte{p.Key[0] + 1}, limited: true}
		end, err = s.run(ctx)
		c.take(s)
		return s.size, end, err
	}
	if c.scans == nil {
		if c.scans, err = c.cutRows(p.Key[0]); err != nil {
			return 0, false, err
		}
	}
	now := c.scans[:min(len(c.scans), c.perStep())]
	c.scans = c.scans[len(now):]
	err = c.sideBySide(len(now), func(i int) error {
		_, err := now[i].run(ctx)
		return err
	})
	for _, s := range now {
		c.take(s)
		size += s.size
	}
	if end = len(c.scans) == 0; end {
		c.scans = nil
	}
	return size, end, err
}

// take adds what a scan has summed up to the position.
func (c *checker) take(s *rowScan) {
	p := c.pos
	for r, sum := range s.sums {
		if sum != (lanes{}) {
			p.sumOf(uint64(r)).Got.add(sum)
		}
	}
	p.Report.IndexRows += s.indexRows
	p.Report.TenantRows += s.tenantRows
	p.Report.PutIDs += s.putIDs
	p.Unread = p.Unread || s.unread
	if s.key != nil {
		p.Key = s.key
	}
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
