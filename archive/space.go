package archive

import "github.com/verae/archive/internal/pebblex"

// writeFactor is about how many bytes the disk takes for one of a record: in the
// log of the store, in a table, and in the tables that are merged of it.
const writeFactor = 4

// storesOnDisk is how many Pebble stores share the disk of an archive: the
// records and the index of the files.
const storesOnDisk = 2

// disk returns a watch on the disk of the record store, which may be a volume of
// its own.
func (c Config) disk() *pebblex.Space {
	return pebblex.NewSpace(pebblex.SpaceConfig{Dir: c.storeDir(), FS: c.FS, Reserve: c.DiskReserve, Log: c.Log})
}

// memTable returns the size of memtables that find room below the reserve.
func (c Config) memTable(disk *pebblex.Space) uint64 {
	use := disk.Usage()
	if c.MemTableSize > 0 || !use.Known {
		return c.MemTableSize
	}
	size, ok := pebblex.MemTableFor(use.Reserve, storesOnDisk)
	if !ok {
		c.Log.Warn("the disk reserve is smaller than what the stores may still write below it: when the disk is full they may fail",
			"reserve", use.Reserve, "room", storesOnDisk*pebblex.RoomOf(size))
	}
	return size
}

// admit returns nil if there is room for the records, on the committer's
// goroutine.
func (n *Node) admit(fresh []*pending) error {
	if err := n.health.readOnly(); err != nil {
		return err
	}
	cost := 0
	for _, p := range fresh {
		cost += writeFactor * p.size
	}
	return n.disk.Admit(uint64(cost))
}

// Ready returns nil if the archive takes records, else why it does not and what
// to do. Queries are answered in any case. Its codes are the reasons of hellos:
// DISK_FULL, DAMAGED, ROLLED_BACK, LOG_FORKED, STORE_FAILED, MARK_STALE,
// FILTER_STAYS, DRAINING, READONLY.
func (n *Node) Ready() error { return n.health.trouble() }

// Reopen reports whether the archive was opened read-only for want of room and
// there is room now: whoever opened it may close it and open it again.
func (n *Node) Reopen() bool {
	return n.health.readOnly() != nil && n.disk.Full() == nil && pebblex.RoomToOpen(n.cfg.FS, n.cfg.storeDir()) == nil
}
