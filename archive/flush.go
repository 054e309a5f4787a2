package archive

import (
	"time"

	"github.com/verae/archive/internal/pebblex"
)

const (
	// flushFrom is how many bytes in memory are worth a flush at the end; the next
	// start reads fewer from the log in some milliseconds.
	flushFrom = 1 << 20
	// flushWait bounds that flush: on a disk that refuses it Pebble tries for ever.
	flushWait = 5 * time.Second
)

// flushLast writes what is in the store's memory to tables before it is closed, so
// that the next start has no log to read, which it would have to write to tables
// before it may answer. The records are durable without it.
func (n *Node) flushLast() {
	if n.health.readOnly() != nil || n.db.Metrics().MemTable.Size < flushFrom || pebblex.RoomToOpen(n.cfg.FS, n.cfg.storeDir()) != nil {
		return
	}
	began := time.Now()
	flushed, err := n.db.AsyncFlush()
	if err == nil {
		select {
		case <-flushed:
			n.cfg.Log.Debug("the store was flushed", "dur", time.Since(began))
			return
		case <-time.After(n.cfg.flushWait):
		}
	}
	n.cfg.Log.Warn("the store is closed without a flush; the next start takes longer", "err", err, "dur", time.Since(began))
}
