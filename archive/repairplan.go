package archive

import (
	"context"
	"iter"
	"slices"
	"sort"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// slot is a place of the log and what its leaf is made of.
type slot struct {
	bone
	index int // of its generation in the lineage
}

// hole is a slot for which there is no frame that can be carried over.
type hole struct {
	slot  int // index in slots
	known bool
	stub  bool // an earlier repair has put a stub there
	again bool // the record stands in a later place, where it was stored again
	putID *putKey
}

// spare is a row of the old index.
type spare struct {
	key []byte
	row row
}

// plan decides for every place of the log what will stand in it.
func (r *repairer) plan(ctx context.Context) error {
	r.holes, r.spared, r.broken = map[uint64]*hole{}, map[uint64][]spare{}, map[uint64]string{}
	if err := r.layOut(ctx); err != nil {
		return err
	}
	if err := r.readIndex(ctx); err != nil {
		return err
	}
	return r.cut(ctx)
}

// layOut makes a slot for every number that store, skeleton or mark know of, and
// finds out what its leaf is.
func (r *repairer) layOut(ctx context.Context) error {
	log, end := r.relic.identity.lineage, r.relic.lastBone()
	for _, m := range r.marks {
		end = max(end, m.seq)
	}
	frames, hashes := r.relic.entries(), r.relic.leafHashes()
	defer frames.stop()
	defer hashes.stop()
	lost := map[wire.RecordID]*hole{}
	for i := range log {
		first, last := log.kept(i, end)
		for seq := first; ; seq++ {
			more, err := frames.reach(seq)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			// The log may go on behind mark and skeleton.
			if seq > last && (i < len(log)-1 || !more || frames.seq-seq > maxUnmarked) {
				break
			}
			leaf, known, err := hashes.at(i, seq)
			if err != nil {
				return err
			}
			if err := r.fill(ctx, slot{bone{seq: seq}, i}, lost, frames.at(seq), func(h tlog.Hash) bool { return !known || h == leaf }); err != nil {
				return err
			}
		}
	}
	if frames.seq > 0 && !frames.end {
		r.relic.damage("log key %x is far behind the end of the log", frames.entry.Key)
	}
	return nil
}

// maxUnmarked is how many numbers may be missing at once behind mark and
// skeleton. Both are written each second.
const maxUnmarked = 1 << 20

// fill decides what stands in one place. fits reports whether a leaf may be the
// one that the tree has there.
func (r *repairer) fill(ctx context.Context, s slot, lost map[wire.RecordID]*hole, frames []relicFrame, fits func(tlog.Hash) bool) error {
	g := r.relic.identity.lineage[s.index]
	may := func(e bone) bool {
		leaf, err := encodeLeaf(g.ArchiveID, g.Generation, e)
		return err == nil && fits(tlog.RecordHash(leaf))
	}
	named, hasBone := r.relic.bone(s.seq)
	if !hasBone && s.seq <= r.report.MarkSeq {
		r.boneless++
	}
	for _, f := range frames {
		if f.Generation != g.Generation || !may(f.bone()) {
			r.relic.damage("seq %d: the record there is not the leaf of the log", s.seq)
			continue
		}
		if s.bone = f.bone(); hasBone && named != s.bone {
			r.relic.damage("%s: the entry of seq %d is not that of its record", r.skeletonPath(), s.seq)
			r.boneless++
		}
		r.slots = append(r.slots, s)
		if f.lost {
			r.hole(s, lost).stub = true
			return nil
		}
		if earlier := lost[s.id]; earlier != nil {
			earlier.again = true
		}
		if rec := f.record(); rec.File != nil {
			_, err := r.file(ctx, s.seq, s.id, rec.File)
			return err
		}
		return nil
	}
	if hasBone && may(named) {
		s.bone = named
	}
	r.slots = append(r.slots, s)
	r.hole(s, lost)
	return nil
}

// hole notes that the last slot has no frame.
func (r *repairer) hole(s slot, lost map[wire.RecordID]*hole) *hole {
	n := &hole{slot: len(r.slots) - 1, known: !s.id.IsZero()}
	if s.putID != (putKey{}) {
		n.putID = &s.putID
	}
	r.holes[s.seq] = n
	if n.known {
		lost[s.id] = n
	}
	return n
}

// entries steps through the salvaged log.
type entries struct {
	relic *relic
	next  func() (pebblex.Salvaged, error, bool)
	stop  func()
	entry pebblex.Salvaged
	seq   uint64 // of entry
	end   bool
}

func (r *relic) entries() *entries {
	next, stop := iter.Pull2(r.store.Range(prefixBounds(prefixLog)))
	return &entries{relic: r, next: next, stop: stop}
}

// reach steps to the first entry with a number from seq on; more is false if
// there is none.
func (e *entries) reach(seq uint64) (more bool, err error) {
	for !e.end && e.seq < seq {
		entry, err, ok := e.next()
		if err != nil {
			return false, err
		}
		if e.end = !ok; !ok {
			break
		}
		at, known := logSeq(entry.Key)
		if !known {
			e.relic.damage("%s: log key %x", entry.Source, entry.Key)
			continue
		}
		e.entry, e.seq = entry, at
	}
	return !e.end, nil
}

// at returns what can be believed of the entry with a number that was reached.
func (e *entries) at(seq uint64) []relicFrame {
	if e.end || e.seq != seq {
		return nil
	}
	return e.relic.frames(e.entry)
}

// readIndex reads from the index what it knows of the needed records: their put
// ids, and where neither log nor skeleton tells it, which they were. The rows of
// what may stay lost are kept, so that its owner can be told.
func (r *repairer) readIndex(ctx context.Context) error {
	if len(r.holes)+len(r.broken) == 0 {
		return nil
	}
	err := r.relic.each(ctx, prefixIndex, func(e pebblex.Salvaged) error {
		_, seq, ok := indexKeyParts(e.Key)
		n := r.holes[seq]
		if !ok || n == nil && r.broken[seq] == "" {
			return nil
		}
		row, err := decodeRow(e.Value)
		if err != nil || len(e.Others) > 0 {
			r.relic.damage("%s: index row %x can not be believed", e.Source, e.Key)
			return nil
		}
		at, there := r.slotOf(seq)
		if !there {
			return nil
		}
		s := &r.slots[at]
		if n != nil && !n.known {
			n.known, s.storedAt, s.id = true, row.storedAt, row.id
		}
		if s.id == row.id && s.storedAt == row.storedAt {
			r.spared[seq] = append(r.spared[seq], spare{e.Key, row})
		}
		return nil
	})
	if err != nil {
		return err
	}
	times := map[uint64]int64{}
	err = r.relic.each(ctx, prefixTenant, func(e pebblex.Salvaged) error {
		if _, at, seq, ok := tenantKeyParts(e.Key); ok && r.holes[seq] != nil {
			times[seq] = at
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.relic.each(ctx, prefixPut, func(e pebblex.Salvaged) error {
		seq, id, ok := parsePutValue(e.Value)
		n := r.holes[seq]
		if !ok || n == nil || len(e.Key) != 1+len(putKey{}) {
			return nil
		}
		s := &r.slots[n.slot]
		if at, timed := times[seq]; !n.known && timed {
			n.known, s.storedAt, s.id = true, at, id
		}
		if n.known && s.id == id {
			n.putID = (*putKey)(e.Key[1:])
			s.putID = *n.putID
		}
		return nil
	})
}

// cut ends the log before the first place of which nothing is known. Under a
// mark that is the end of the repair; behind it the rest can not be told from
// what the archive would store there next.
func (r *repairer) cut(ctx context.Context) error {
	under, own := r.report.MarkSeq, r.own
	for i, s := range r.slots {
		if n := r.holes[s.seq]; n == nil || n.known {
			continue
		}
		if s.seq <= under && s.seq > own && !r.anyKnown(r.slots[i:]) {
			return r.refuse(codeRolledBack, "other archives have seen this one sign seq %d, and neither its store, its skeleton nor its mark knows of more than seq %d: this is an older copy of the directory", under, s.seq-1)
		}
		if s.seq <= under {
			return r.refuse(codeNothingLeft, "of seq %d nothing is left: neither log, skeleton nor index say which record it was", s.seq)
		}
		for _, rest := range r.slots[i:] {
			if r.holes[rest.seq] == nil {
				r.report.LeftOut = append(r.report.LeftOut, RepairEntry{Seq: rest.seq, ID: rest.id})
			}
			delete(r.holes, rest.seq)
			delete(r.spared, rest.seq)
		}
		r.relic.damage("of seq %d, behind the mark, nothing is left: the log ends before it", s.seq)
		r.slots = r.slots[:i]
		break
	}
	if len(r.slots) > 0 {
		r.report.Seq = r.slots[len(r.slots)-1].seq
	}
	if g := r.relic.identity.lineage.current(); g.Generation != firstGeneration {
		r.report.Seq = max(r.report.Seq, g.base()) // the genesis is in the log before any record
	}
	return ctx.Err()
}

// anyKnown reports whether anything is known of any of some slots.
func (r *repairer) anyKnown(slots []slot) bool {
	return slices.ContainsFunc(slots, func(s slot) bool { n := r.holes[s.seq]; return n == nil || n.known })
}

// slotOf returns the index of the slot with a number.
func (r *repairer) slotOf(seq uint64) (int, bool) {
	i := sort.Search(len(r.slots), func(i int) bool { return r.slots[i].seq >= seq })
	return i, i < len(r.slots) && r.slots[i].seq == seq
}
