package archive

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

// clockTolerance is how far behind the last record the clock may be before it is
// told.
const clockTolerance = time.Minute

// tail is the end of the log.
type tail struct {
	seq      uint64
	storedAt int64
	edge     *tlogx.Edge // the tree of the current generation
}

// recover reads where the log ends, and holds it against the mark and the
// skeleton. It returns the mark and the records beyond it, for the keeper.
func (n *Node) recover() (known mark, missing []bone, err error) {
	if n.tail, err = n.recoverTail(); err != nil {
		return mark{}, nil, err
	}
	n.durable.Store(n.tail.seq)
	n.storedAt.Store(n.tail.storedAt)
	if known, err = readMark(n.cfg, n.identity); err != nil {
		return mark{}, nil, err
	}
	if err := n.compareMark(known); err != nil {
		return mark{}, nil, err
	}
	if missing, err = n.checkSkeleton(known); err != nil {
		return mark{}, nil, err
	}
	if behind := n.clockBehind(); behind > clockTolerance {
		n.cfg.Log.Warn("the clock is behind the last record: records keep its time and count up from it until the clock has caught up", "dur", behind)
	}
	return known, missing, nil
}

// clockBehind returns by how much the clock is behind the last record.
func (n *Node) clockBehind() time.Duration {
	return max(time.Unix(0, n.storedAt.Load()).Sub(n.cfg.Now()), 0)
}

// keep starts the keeper. Nothing is written by an archive whose store is open
// for reading only: the disk is full.
func (n *Node) keep(known mark, missing []bone) {
	n.mend()
	n.keeper = newKeeper(n.cfg.markEvery, known, n.publish, func(err error) {
		n.metrics.markErrors.Inc()
		n.cfg.Log.Error("the mark could not be written", "err", err, "seq", n.durable.Load())
	})
	n.health.watch(n.keeper.overdue)
	if head := n.tail.head(); n.health.readOnly() == nil && (head != known.treeHead || n.leaves.rebuild) {
		n.keeper.offer(missing, head)
	}
}

// mend builds a damaged skeleton anew before anything looks at it. What fails
// here the keeper does again.
func (n *Node) mend() {
	if n.health.readOnly() != nil || !n.leaves.rebuild {
		return
	}
	if err := n.leaves.write(nil, n.rebuildSkeleton); err != nil {
		n.cfg.Log.Error("the skeleton could not be built anew", "err", err)
	}
}

func (t tail) head() treeHead { return treeHead{seq: t.seq, size: t.edge.Size(), root: t.edge.Root()} }

// recoverTail reads the two ends of the log and the newest commit, which has to
// be the end. That nothing is missing between them is checked while the filter
// is built.
func (n *Node) recoverTail() (tail, error) {
	log := n.identity.lineage
	end, err := n.lastCommit()
	if err != nil {
		return tail{}, err
	}
	t := tail{seq: end}
	size := uint64(0)
	if g := log.current(); end >= g.base() {
		size = end - g.base() + 1
	}
	if t.edge, err = tlogx.LoadEdge(int64(size), n.hashes()); err != nil {
		return tail{}, fmt.Errorf("archive: open %s: %w", n.cfg.Dir, err)
	}
	err = n.recoverEnds(&t)
	return t, err
}

// lastCommit returns the place where the newest commit of the current generation
// ends. A generation after the first has one from its beginning.
func (n *Node) lastCommit() (end uint64, err error) {
	it, err := n.iterate(prefixBounds(prefixCommit))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	g := n.identity.lineage.current()
	switch ok := it.Last(); {
	case it.Error() != nil:
		return 0, n.readError(it.Error())
	case ok:
		var known bool
		if end, known = keySeq(prefixCommit, it.Key()); !known {
			return 0, logGap("the tree ends with key %x", it.Key())
		}
	}
	if g.Generation != firstGeneration && end < g.base() {
		return 0, logGap("generation %d begins in place %d, the tree ends in place %d", g.Generation, g.base(), end)
	}
	return end, nil
}

// recoverEnds holds the first and the last record against where the log should
// begin and, by its tree, end.
func (n *Node) recoverEnds(t *tail) (err error) {
	it, err := n.iterate(prefixBounds(prefixLog))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	log := n.identity.lineage
	if !it.First() {
		if err := it.Error(); err != nil || log.records(t.seq) == 0 {
			return n.readError(err)
		}
		return logGap("there are no records, but a tree that ends in place %d", t.seq)
	}
	if seq, ok := logSeq(it.Key()); !ok || !log.follows(0, seq) {
		return logGap("the log begins with key %x", it.Key())
	}
	if !it.Last() {
		return n.readError(it.Error())
	}
	seq, ok := logSeq(it.Key())
	if !ok || seq > t.seq || log.records(seq) != log.records(t.seq) {
		return logGap("the log ends with key %x, its tree in place %d", it.Key(), t.seq)
	}
	f, err := decodeFrame(it.Value())
	if err != nil {
		return fault.New(fault.Corrupt, "CORRUPT", "archive: the last record, seq %d: %w; %s", seq, err, howToRepair)
	}
	t.storedAt = f.StoredAt
	return n.checkLast(f, seq, t)
}

// checkLast refuses a last record that is not the last leaf.
func (n *Node) checkLast(f *frame, seq uint64, t *tail) error {
	if f.Seq != seq || f.ArchiveID != string(n.cfg.ID) {
		return fault.New(fault.Corrupt, "CORRUPT", "archive: the last record, seq %d, says it is seq %d of %q; %s", seq, f.Seq, f.ArchiveID, howToRepair)
	}
	if seq != t.seq {
		return nil // of a generation before
	}
	leaf, err := leafBytes(f)
	if err != nil {
		return err
	}
	stored, err := n.hashes().ReadHashes([]int64{tlog.StoredHashIndex(0, t.edge.Size()-1)})
	if err != nil {
		return err
	}
	if stored[0] != [32]byte(leafHash(leaf)) {
		return fault.New(fault.Corrupt, "CORRUPT", "archive: the last record, seq %d, is not the last leaf of the log; %s", seq, howToRepair)
	}
	return nil
}

func logGap(format string, args ...any) error {
	return fault.New(fault.Corrupt, "LOG_GAP", "archive: "+format+"; "+howToRepair, args...)
}
