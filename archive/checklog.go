package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// How much is checked at a time, by length and by number.
const (
	checkBytes = 1 << 20
	checkRows  = 2048
)

// logEntry is a log entry that is being checked.
type logEntry struct {
	key, value []byte
	seq        uint64
	bone       bone      // what it says of itself; zero if it does not decode
	leaf       tlog.Hash // of bone
	sum        lanes     // of the index rows that it gives
	unknown    bool      // which rows those are can not be told
	lost       bool      // a stub
	file       wire.Digest
	findings   []Finding
}

// log checks the next entries of the log: each by itself, side by side, and then
// how they follow on each other.
func (c *checker) log(ctx context.Context) error {
	p := c.pos
	if p.Seq == 0 && p.Generation < 0 {
		if err := c.begin(); err != nil {
			return err
		}
	}
	entries, end, err := c.readLog()
	switch {
	case err != nil && len(entries) == 0:
		return c.skipUnreadable(err)
	case err != nil:
		end = false // met again by the next step
	}
	size := 0
	for i := range entries {
		size += len(entries[i].key) + len(entries[i].value)
	}
	if err := c.pace(ctx, size); err != nil {
		return err
	}
	p.Report.Bytes += int64(size)
	if err := c.examineAll(ctx, entries); err != nil {
		return err
	}
	w, err := c.newWalk(entries)
	if err != nil {
		return err
	}
	defer w.close()
	for i := range entries {
		w.follow(&entries[i])
	}
	if end {
		w.finish()
		p.Phase = phaseIndex
	}
	return nil
}

// readLog copies entries behind the position. end says that there are no more.
func (c *checker) readLog() (entries []logEntry, end bool, err error) {
	it, err := c.n.iterate(logKey(c.pos.Seq+1), logKey(c.pos.End+1))
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	size := 0
	for valid := it.First(); valid; valid = it.Next() {
		if size >= checkBytes || len(entries) == c.rows {
			return entries, false, nil
		}
		entries = append(entries, logEntry{key: bytes.Clone(it.Key()), value: bytes.Clone(it.Value())})
		size += len(it.Value())
	}
	return entries, it.Error() == nil, it.Error()
}

// skipUnreadable goes on behind a part of the log that can not be read. Blocks
// are checked as wholes, so that its neighbours are lost with a damaged record.
func (c *checker) skipUnreadable(cause error) error {
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
			return err
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
			return err
		}
		if ok {
			good = mid
		} else {
			bad = mid
		}
	}
	c.unreadable(FindingRecord, fmt.Sprintf("the log from seq %d to seq %d", p.Seq+1, good-1), cause)
	p.Unread = true // the rows of these records are not known
	w, err := c.newWalk(nil)
	if err != nil {
		return err
	}
	defer w.close()
	w.skip(good - 1)
	if good > p.End {
		w.finish()
		p.Phase = phaseIndex
	}
	return nil
}

// examineAll checks entries by themselves.
func (c *checker) examineAll(ctx context.Context, entries []logEntry) error {
	var wg sync.WaitGroup
	errs := make([]error, c.side)
	for i := range c.side {
		from, to := len(entries)*i/c.side, len(entries)*(i+1)/c.side
		run := func() {
			var buf []byte
			for j := from; j < to && errs[i] == nil; j++ {
				errs[i] = c.examine(ctx, &entries[j], &buf)
			}
		}
		if c.side == 1 {
			run()
		} else {
			wg.Go(run)
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// examine checks one entry by itself. It only writes to e.
func (c *checker) examine(ctx context.Context, e *logEntry, buf *[]byte) error {
	bad := func(format string, args ...any) {
		e.findings = append(e.findings, Finding{Kind: FindingRecord, What: fmt.Sprintf(format, args...), Damage: true, Seq: e.seq, Record: e.bone.id})
	}
	var ok bool
	if e.seq, ok = logSeq(e.key); !ok {
		bad("log key %x", e.key)
		return nil
	}
	f, err := decodeFrame(e.value)
	if err != nil {
		bad("seq %d: %v", e.seq, err)
		return nil
	}
	id := wire.RecordID(f.RecordID)
	g := c.n.identity.lineage.of(e.seq)
	if f.Seq != e.seq || f.ArchiveID != string(c.n.cfg.ID) || !f.canonical(e.value) || g != 0 && f.Generation != g {
		e.bone.id = id
		bad("seq %d holds seq %d of %s, generation %d, or is not in its canonical form", e.seq, f.Seq, f.ArchiveID, f.Generation)
		e.bone.id = wire.RecordID{}
		return nil
	}
	e.bone, e.lost = f.bone(), f.lost
	leaf, err := encodeLeaf(f.ArchiveID, f.Generation, e.bone)
	if err != nil {
		return err
	}
	e.leaf = tlog.RecordHash(leaf)
	if c.n.lost.has(e.seq) != f.lost || f.lost && c.n.lost.ids[e.seq] != id {
		e.findings = append(e.findings, Finding{
			Kind: FindingLost, What: fmt.Sprintf("seq %d is a stub: %v; it is on the list of lost records: %v (or there with another id)", e.seq, f.lost, c.n.lost.has(e.seq)),
			Damage: true, Seq: e.seq, Record: id,
		})
	}
	if f.lost {
		return nil
	}
	rec := f.record()
	if err := f.verify(&rec); err != nil {
		bad("%v", err)
		return nil
	}
	return c.derive(ctx, e, f, &rec, buf)
}

// derive sums up the index rows of a record.
func (c *checker) derive(ctx context.Context, e *logEntry, f *frame, rec *wire.Record, buf *[]byte) error {
	if rec.File != nil {
		e.file = rec.File.SHA256
		if c.o.FilesUnknown {
			e.unknown = true
			return nil
		}
	}
	rows, err := c.n.rowsOf(ctx, f, rec)
	switch {
	case fault.CodeOf(err) == "FILE_MISSING":
		e.findings = append(e.findings, Finding{Kind: FindingRecord, What: fmt.Sprintf("seq %d: %v", e.seq, err), Damage: true, Seq: e.seq, Record: e.bone.id, File: e.file})
	case fault.Is(err, fault.Corrupt):
		e.findings = append(e.findings, Finding{Kind: FindingFile, What: fmt.Sprintf("seq %d: %v", e.seq, err), Damage: true, Seq: e.seq, Record: e.bone.id, File: e.file})
	case err != nil:
		return err
	}
	if err != nil {
		e.unknown = true
		return nil
	}
	for _, r := range rows {
		e.sum.add(c.pos.hashRow(buf, r.key, r.value))
	}
	return nil
}
