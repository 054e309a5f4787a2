package archive

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/wire"
)

// How much is checked at a time, by length and by number.
const (
	checkBytes = 1 << 20
	checkRows  = 2048
)

// What all processors check in a step: so many parts each, of checkRows entries or
// of a table file, and of the log about so many bytes. The store can not be closed
// meanwhile.
const (
	stepParts = 16
	stepBytes = 256 << 20
)

// perStep returns how many parts are checked in a step.
func (c *checker) perStep() int {
	if c.side == 1 {
		return 1
	}
	return stepParts * c.side
}

// logEntry is what a log entry says by itself.
type logEntry struct {
	seq      uint64
	bone     bone      // what it says of itself; zero if it does not decode
	leaf     tlog.Hash // of bone
	sum      lanes     // of the index rows that it gives
	unknown  bool      // which rows those are can not be told
	lost     bool      // a stub
	file     wire.Digest
	findings []Finding
}

// log checks the next entries of the log: each by itself, side by side, and in
// their order how they follow on each other.
func (c *checker) log(ctx context.Context) error {
	p := c.pos
	if p.Seq == 0 && p.Generation < 0 {
		if err := c.begin(); err != nil {
			return err
		}
	}
	parts, end, err := c.logParts()
	if err != nil {
		return err
	}
	size, end, err := c.follow(ctx, parts, end)
	if err != nil {
		return err
	}
	if end {
		p.Phase = phaseIndex
	}
	p.Report.Bytes += int64(size)
	return c.pace(ctx, size)
}

// follow walks over parts. It returns the bytes of their entries, and end if it
// came to the end of the log; last says that nothing is behind the parts.
func (c *checker) follow(ctx context.Context, parts []*logPart, last bool) (size int, end bool, err error) {
	w, err := c.newWalk()
	if err != nil {
		return 0, false, err
	}
	defer w.close()
	begin := c.pos.Seq
	for part := range c.examineAll(ctx, parts) {
		if part.err != nil {
			return size, false, part.err
		}
		before := c.pos.Seq
		w.take(part.entries)
		for i := range part.entries {
			w.follow(&part.entries[i])
		}
		size += part.size
		last = last && !part.more
		if part.unreadable != nil {
			if c.pos.Seq == before {
				end, err = c.skipUnreadable(w, part.unreadable)
				return size, end, err
			}
			return size, false, nil // met again by the next step
		}
		if size > stepBytes && c.pos.Seq != begin && part != parts[len(parts)-1] {
			return size, false, nil
		}
	}
	if last {
		w.finish()
	}
	return size, last, nil
}

// skipUnreadable goes on behind a part of the log that can not be read. Blocks
// are checked as wholes, so that its neighbours are lost with a damaged record.
func (c *checker) skipUnreadable(w *logWalk, cause error) (end bool, err error) {
	p := c.pos
	readable := func(seq uint64) (bool, error) {
		it, err := c.n.iterate(logKey(seq), logKey(p.End+1))
		if err != nil {
			return false, err
		}
		it.First()
		ok := it.Error() == nil
		_ = it.Close() // it repeats the error of the read
		return ok, nil
	}
	bad, good := p.Seq+1, p.End+1
	for step := uint64(1); bad+step <= p.End; step *= 2 {
		ok, err := readable(bad + step)
		if err != nil {
			return false, err
		}
		if ok {
			good = bad + step
			break
		}
		bad += step
	}
	for good-bad > 1 {
		mid := bad + (good-bad)/2
		ok, err := readable(mid)
		if err != nil {
			return false, err
		}
		if ok {
			good = mid
		} else {
			bad = mid
		}
	}
	c.unreadable(FindingRecord, fmt.Sprintf("the log from seq %d to seq %d", p.Seq+1, good-1), cause)
	p.Unread = true // the rows of these records are not known
	w.skip(good - 1)
	if good > p.End {
		w.finish()
	}
	return good > p.End, nil
}
