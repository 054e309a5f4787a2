package archive

import (
	"errors"
	"sync/atomic"

	"github.com/verae/archive/wire"
)

// losses are the records of which a repair found no copy. A stub stands for each
// in the log: it proves the leaf, and is neither answered nor taken for the
// record when that is put again.
type losses struct {
	// ids has the lost record of a sequence number. It never changes while the
	// archive is open: losses are written by repair alone.
	ids map[uint64]wire.RecordID
	// open are the lost records that have not been stored again; the committer's.
	open map[wire.RecordID]struct{}
	// files are those whose bytes are lost.
	files goneFiles
	// count is the number of open, of records and of files.
	count atomic.Uint64
}

// has reports whether a sequence number is that of a lost record.
func (l *losses) has(seq uint64) bool {
	_, lost := l.ids[seq]
	return lost
}

// found takes a record that was stored out of the count.
func (l *losses) found(id wire.RecordID) {
	if _, lost := l.open[id]; lost {
		delete(l.open, id)
		l.count.Add(^uint64(0))
	}
}

// sum returns the sum of all lost sequence numbers, modulo 2^64.
func (l *losses) sum() uint64 {
	sum := uint64(0)
	for seq := range l.ids {
		sum += seq
	}
	return sum
}

// readLosses reads which records and files are lost, and looks which of them have
// been stored again. It is called before the committer runs.
func (n *Node) readLosses() (err error) {
	n.lost.ids, n.lost.open = map[uint64]wire.RecordID{}, map[wire.RecordID]struct{}{}
	it, err := n.iterate(prefixBounds(prefixLost))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		seq, ok := keySeq(prefixLost, it.Key())
		if !ok || len(it.Value()) != digestLen || seq > n.tail.seq {
			return n.damaged("the lost record %x with %d bytes, the log ends at %d", it.Key(), len(it.Value()), n.tail.seq)
		}
		n.lost.ids[seq] = wire.RecordID(it.Value())
	}
	if err := n.readError(it.Error()); err != nil {
		return err
	}
	for _, id := range n.lost.ids {
		seq, err := n.seqOf(id)
		if err != nil {
			return err
		}
		if seq == 0 {
			n.lost.open[id] = struct{}{}
		}
	}
	n.lost.count.Store(uint64(len(n.lost.open)))
	n.findLostFiles()
	return nil
}
