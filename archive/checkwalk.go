package archive

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/wire"
)

// logWalk holds log entries, one after the other, against the Merkle tree and the
// skeleton.
type logWalk struct {
	c       *checker
	commits *pebble.Iterator
	row     commitRow // that has the leaf which was added last
	bones   []byte    // the part of the skeleton that has the entries
	first   uint64    // the number of the first entry in bones
	bad     uint64    // up to this place the commits were found missing or damaged
}

// newWalk returns a walk that goes on at the position. The caller closes it.
func (c *checker) newWalk() (*logWalk, error) {
	it, err := c.n.iterate(prefixBounds(prefixCommit))
	if err != nil {
		return nil, err
	}
	return &logWalk{c: c, commits: it}, nil
}

func (w *logWalk) close() { w.c.n.closeQuietly(w.commits) }

// take reads the skeleton of the entries that come next.
func (w *logWalk) take(entries []logEntry) {
	if err := w.readBones(entries); err != nil {
		w.c.found(Finding{Kind: FindingSkeleton, What: err.Error(), Damage: true, Path: w.c.n.cfg.skeletonPath()})
	}
}

// readBones reads the skeleton of the entries that the mark covers.
func (w *logWalk) readBones(entries []logEntry) (err error) {
	n, log := w.c.n, w.c.n.identity.lineage
	w.bones, w.first = nil, 0
	from, to := uint64(0), uint64(0) // numbers of skeleton entries
	for i := range entries {
		if seq := entries[i].seq; seq > 0 && seq <= w.c.pos.Mark.Seq {
			if from == 0 {
				from = log.records(seq)
			}
			to = log.records(seq)
		}
	}
	if from == 0 {
		return nil
	}
	r, err := openSkeleton(n.cfg)
	if err != nil {
		return err
	}
	defer func() { n.closeQuietly(r.file) }()
	w.bones, w.first = make([]byte, int(to-from+1)*boneLen), from
	got, err := r.file.ReadAt(w.bones, skeletonHeader+int64(from-1)*boneLen)
	w.bones = w.bones[:got]
	w.c.pos.Report.Bytes += int64(got)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	if got < int(to-from+1)*boneLen {
		return fmt.Errorf("%w: it ends with entry %d, the mark covers at least %d", errSkeleton, from-1+uint64(got/boneLen), to)
	}
	return nil
}

// follow holds one entry against those before it.
func (w *logWalk) follow(e *logEntry) {
	c, p, log := w.c, w.c.pos, w.c.n.identity.lineage
	for _, f := range e.findings {
		c.found(f)
	}
	if e.seq == 0 {
		return // not even its key is one
	}
	if log.of(e.seq) == 0 {
		c.found(Finding{Kind: FindingLog, What: fmt.Sprintf("seq %d is in the log, and in no generation", e.seq), Damage: true, Seq: e.seq})
		p.Seq = e.seq
		return
	}
	if !log.follows(p.Seq, e.seq) {
		w.gap(e.seq - 1)
	}
	p.Report.Records++
	if e.lost {
		p.Report.Lost++
	}
	known := e.bone.seq != 0
	if known && e.bone.storedAt <= p.storedAt {
		c.found(Finding{Kind: FindingRecord, What: fmt.Sprintf("seq %d was stored at %d, the one before it at %d", e.seq, e.bone.storedAt, p.storedAt), Damage: true, Seq: e.seq, Record: e.bone.id})
	}
	w.growTo(e.seq)
	if known {
		p.storedAt = e.bone.storedAt
		w.grow(e.seq, &e.leaf, w.bone(e), e.bone.id)
	} else {
		w.grow(e.seq, nil, false, wire.RecordID{})
	}
	w.count(e, known)
	p.Seq = e.seq
}

// count adds the rows that an entry gives to what the index should have.
func (w *logWalk) count(e *logEntry, known bool) {
	p := w.c.pos
	switch {
	case e.lost:
	case !known || len(e.findings) > 0 || e.unknown:
		// Its rows can not be told, so that the sums of its range will differ and
		// the range is looked at row by row.
		p.sum(e.seq).Want.add(lanes{1, 1})
	default:
		p.sum(e.seq).Want.add(e.sum)
	}
	if w.c.referred != nil && !e.file.IsZero() {
		w.c.referred[e.file] = struct{}{}
	}
}

// gap notes that the log has nothing from behind the position to seq.
func (w *logWalk) gap(seq uint64) {
	c, log := w.c, w.c.n.identity.lineage
	for i := range log {
		first, last := log.kept(i, seq)
		first, last = max(first, c.pos.Seq+1), min(last, seq)
		if first > last {
			continue
		}
		f := Finding{Kind: FindingLog, What: fmt.Sprintf("records are missing from the log: seq %d to seq %d", first, last), Damage: true, Seq: first}
		for _, b := range c.n.readBones(first, last, namedBones) {
			f.What += fmt.Sprintf(", seq %d is record %s", b.seq, b.id)
			if b.seq == first {
				f.Record = b.id
			}
		}
		c.found(f)
	}
}

// skip goes on behind records that can not be read.
func (w *logWalk) skip(seq uint64) {
	w.growTo(seq + 1)
	w.c.pos.Seq = seq
}

// bone compares an entry with the skeleton and reports whether they disagree on
// what was stored there.
func (w *logWalk) bone(e *logEntry) (doubt bool) {
	i := int(w.c.n.identity.lineage.records(e.seq)-w.first) * boneLen
	if e.seq > w.c.pos.Mark.Seq || w.first == 0 || i < 0 || i+boneLen > len(w.bones) {
		return false
	}
	got, err := decodeBone(w.bones[i : i+boneLen])
	if e.lost && e.bone.putID == (putKey{}) {
		got.putID = e.bone.putID // which a stub need not know
	}
	if doubt = err == nil && got != e.bone; doubt {
		err = fmt.Errorf("%w: it has seq %d, record %s", errSkeleton, got.seq, got.id)
	}
	if err != nil {
		w.c.found(Finding{Kind: FindingSkeleton, What: fmt.Sprintf("the entry of seq %d: %v", e.seq, err), Damage: true, Seq: e.seq, Record: e.bone.id, Path: w.c.n.cfg.skeletonPath()})
	}
	return doubt
}

// finish ends the log: nothing may be missing behind its last record.
func (w *logWalk) finish() {
	c, p, log := w.c, w.c.pos, w.c.n.identity.lineage
	if log.records(p.Seq) < log.records(p.End) {
		w.gap(p.End)
	}
	w.growTo(p.End + 1)
	for _, seq := range slices.Sorted(maps.Keys(c.n.lost.ids)) {
		if id := c.n.lost.ids[seq]; seq <= p.End && log.of(seq) == 0 {
			c.found(Finding{Kind: FindingLost, What: fmt.Sprintf("seq %d is on the list of lost records, and in no generation", seq), Damage: true, Seq: seq, Record: id})
		}
	}
	if p.Mark.Size > p.edge.Size() && !p.Blind && p.Generation == len(log)-1 {
		c.found(Finding{Kind: FindingMark, What: fmt.Sprintf("the mark covers %d leaves, the log has %d", p.Mark.Size, p.edge.Size()), Damage: true})
	}
	p.Seq = p.End
}
