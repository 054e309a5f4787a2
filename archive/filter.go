package archive

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// keysPerRecord is how many digests a record is expected to be indexed under,
// with some room; it sizes the filter that is built at open.
const keysPerRecord = 3

// filterDir is where the snapshots of the filter are: derived, like the index,
// and not in a backup. Each filter has a directory of its own in filters.
func (c Config) filterDir() string { return c.FS.PathJoin(c.Dir, "filters", "keys") }

// filterParams sizes the filter of an archive for the records that it has.
func (n *Node) filterParams() bloom.Params { return n.filterParamsWith(n.cfg.Bloom.Secret) }

func (n *Node) filterParamsWith(s bloom.Secret) bloom.Params {
	p := n.cfg.Bloom
	p.Secret, p.Rebuilds = s, true
	p.Capacity = max(p.Capacity, keysPerRecord*n.identity.lineage.records(n.durable.Load()))
	return p
}

// filterIdentity names the log that a snapshot is of: that of one generation,
// which has a key of its own.
func (n *Node) filterIdentity() [16]byte {
	h := sha256.New()
	public, _ := n.identity.key.Public().(ed25519.PublicKey)
	fmt.Fprintf(h, "verae-filter-store/1\n%s\n", n.cfg.ID)
	h.Write(public)
	return [16]byte(h.Sum(nil)[:16])
}

// headAt returns the root of the log when seq was its last number.
func (n *Node) headAt(seq uint64) ([32]byte, error) {
	size, base := int64(0), n.identity.lineage.current().base()
	if seq >= base {
		size = int64(seq - base + 1)
	}
	root, err := tlog.TreeHash(size, n.hashes())
	if err != nil {
		return [32]byte{}, fmt.Errorf("archive: the root of the log at seq %d: %w", seq, err)
	}
	return root, nil
}

// openFilter makes the filter of the newest snapshot that is one of this log. It
// is complete if that has every record; else replay, or the scan of the index,
// completes it. No write may come to the store before openFilter returns, nor
// after it while tending.stays says no.
func (n *Node) openFilter() {
	p := n.filterParamsWith(n.filterSecret())
	n.tending.wake = make(chan struct{}, 1)
	dir := n.cfg.filterDir()
	if _, err := n.cfg.FS.Stat(dir); errors.Is(err, os.ErrNotExist) {
		n.filter = bloom.New(p)
		return
	}
	began := time.Now()
	set, report, err := bloom.Load(filterFS{n.cfg.FS}, dir, p, bloom.Store{Identity: n.filterIdentity(), Last: n.tail.seq, HeadAt: n.headAt})
	n.filter = set
	for _, why := range report.Rejected {
		n.cfg.Log.Warn("a snapshot of the filter is not used", "err", why)
		n.tending.rejected.Add(1)
		if fault.CodeOf(why) == "SNAPSHOT_AHEAD" {
			n.tending.ahead.Add(1)
		}
	}
	n.tending.corruptChunks.Store(uint64(report.CorruptChunks))
	if err != nil {
		n.discardFilters(err)
	}
	if report.File == "" {
		return
	}
	n.tending.loaded, n.tending.from = true, report.Seq
	if err == nil && report.CorruptChunks == 0 && report.Clamped == 0 {
		n.tending.covered.Store(report.Seq)
		n.tending.saved.Store(set.Keys())
	}
	if report.Seq == n.tail.seq {
		set.Complete()
	}
	n.cfg.Log.Info("the filter was read", "keys", set.Keys(), "seq", report.Seq, "corruptChunks", report.CorruptChunks, "dur", time.Since(began))
}

// discardFilters removes snapshots that are not to be believed. Until that is
// done the archive takes no records: with others under the same numbers, a later
// start would believe them.
func (n *Node) discardFilters(why error) {
	n.tending.covered.Store(0)
	err := bloom.Discard(filterFS{n.cfg.FS}, n.cfg.filterDir())
	if err == nil {
		n.tending.hold(nil)
		n.cfg.Log.Warn("the snapshots of the filter were removed", "dir", n.cfg.filterDir(), "err", why)
		return
	}
	n.cfg.Log.Error("snapshots of the filter can not be removed; the archive takes no records until they are", "dir", n.cfg.filterDir(), "err", err)
	n.tending.hold(fault.New(fault.Transient, "FILTER_STAYS",
		"archive: snapshots of the filter that are not to be believed can not be removed from %s, and records that come now might be denied later; look at its disk and its permissions, or remove the directory: %w", n.cfg.filterDir(), err))
}

// replay puts the keys of the records after the snapshot, up to last, into the
// filter, from the log. It fails if a record can not be read, or its file is not
// here to tell the blocks: then the index has to be read.
func (n *Node) replay(ctx context.Context, last uint64) (err error) {
	it, err := n.iterate(logKey(n.tending.from+1), logKey(last+1))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	log, prev, places := n.identity.lineage, n.tending.from, []place(nil)
	for valid := it.First(); valid; valid = it.Next() {
		seq, ok := logSeq(it.Key())
		if !ok || log.records(seq) != log.records(prev)+1 {
			return fmt.Errorf("archive: log key %x comes after seq %d", it.Key(), prev)
		}
		if places, err = n.placesAgain(ctx, it.Value(), seq, places[:0]); err != nil {
			return err
		}
		for _, at := range places {
			n.filter.Add(at.digest)
		}
		n.tending.replayed.Add(uint64(len(places)))
		prev = seq
	}
	if err := it.Error(); err != nil || log.records(prev) == log.records(last) {
		return err
	}
	return fmt.Errorf("archive: the log has nothing after seq %d, and should up to %d", prev, last)
}

// placesAgain appends what a log entry is indexed under.
func (n *Node) placesAgain(ctx context.Context, value []byte, seq uint64, places []place) ([]place, error) {
	f, err := decodeFrame(value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("archive: seq %d: %w", seq, err)
	case f.lost || f.Seq != seq:
		return nil, fmt.Errorf("archive: seq %d is a stub, or the record of seq %d", seq, f.Seq)
	}
	rec := f.portable()
	var blocks [][digestLen]byte
	if rec.File != nil {
		if blocks, err = n.blocks(ctx, rec.File); err != nil {
			return nil, err
		}
	}
	return appendPlaces(places, &rec, wire.RecordID(f.RecordID), blocks), ctx.Err()
}
