package archive

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// keysPerRecord is how many digests a record is expected to be indexed under,
// with some room; it sizes the filters that are built at open.
const keysPerRecord = 3

// filter is one of the two filters of an archive, with its snapshots and what has
// become of them. It is derived, like the index: whatever it lacks is in the store.
//
//   - keys has the digests that anything is stored under.
//   - views has the pairs of a viewer and a digest that the viewer may see
//     something under, perhaps: see viewing.
type filter struct {
	n    *Node
	name string // of its directory and in messages
	kind string // in the identity of its snapshots
	dir  string // of its snapshots
	set  *bloom.Set

	// hashing returns what says under which hashes the filter has what is stored,
	// for one goroutine.
	hashing func() hashing

	tending
}

// hashing appends to dst the hashes that a filter has of something, and returns it.
type hashing interface {
	// row is for a row of the index.
	row(dst []bloom.Hash, digest [digestLen]byte, seq uint64, value []byte) ([]bloom.Hash, error)
	// record is for a record that is indexed under places.
	record(dst []bloom.Hash, rec *wire.PutRecord, places []place) []bloom.Hash
}

// digests is the hashing of the filter keys.
type digests struct{ set *bloom.Set }

func (d digests) row(dst []bloom.Hash, digest [digestLen]byte, _ uint64, _ []byte) ([]bloom.Hash, error) {
	return append(dst, d.set.Hash(digest)), nil
}

func (d digests) record(dst []bloom.Hash, _ *wire.PutRecord, places []place) []bloom.Hash {
	for _, at := range places {
		dst = append(dst, d.set.Hash(at.digest))
	}
	return dst
}

// makeFilters prepares both filters, which have no sets yet, for a secret.
func (n *Node) makeFilters(s bloom.Secret) {
	n.secret = s
	if s.ID == 0 { // nobody else has to know the pairs
		rand.Read(n.secret.Key[:]) // never fails: crypto/rand crashes the program instead
	}
	n.public = mirror.ViewerKey(n.secret.Key, wire.Public)
	n.wake = make(chan struct{}, 1)
	n.keys.name, n.keys.kind = "keys", "verae-filter-store/1"
	n.views.name, n.views.kind = "views", "verae-filter-views/1"
	for _, f := range n.filters() {
		f.n, f.dir = n, n.cfg.FS.PathJoin(n.cfg.Dir, "filters", f.name)
	}
	n.keys.hashing = func() hashing { return digests{n.keys.set} }
	n.views.hashing = func() hashing { return n.newViewing() }
}

// filters returns both filters.
func (n *Node) filters() [2]*filter { return [2]*filter{&n.keys, &n.views} }

// params sizes the filter for the records that the archive has. The memory for
// filters is halved between the two: a viewer's pairs are about as many as digests.
func (f *filter) params() bloom.Params {
	p := f.n.cfg.Bloom
	p.Secret, p.Rebuilds = f.n.secret, true
	p.Capacity = max(p.Capacity, keysPerRecord*f.n.identity.lineage.records(f.n.durable.Load()))
	if p.MaxBytes > 0 {
		p.MaxBytes = max(p.MaxBytes/2, 1)
	}
	return p
}

// known reports whether the filter has everything, as far as it can be told: the
// index is not needed to complete it.
func (f *filter) known() bool { return f.set.Ready() || f.set.Denied() }

// identity names the filter and the log that its snapshots are of: that of one
// generation, which has a key of its own.
func (f *filter) identity() [16]byte {
	h := sha256.New()
	public, _ := f.n.identity.key.Public().(ed25519.PublicKey)
	fmt.Fprintf(h, "%s\n%s\n", f.kind, f.n.cfg.ID)
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

// openFilters makes both filters of their newest snapshots that are of this log.
// One is complete if its snapshot has every record; else replay, or the scan of the
// index, completes it. No write may come to the store before openFilters returns,
// nor after it while tending.stays of one says no.
func (n *Node) openFilters() {
	n.makeFilters(n.filterSecret())
	for _, f := range n.filters() {
		f.open()
		n.health.watch(f.stays)
	}
}

func (f *filter) open() {
	n, p := f.n, f.params()
	if _, err := n.cfg.FS.Stat(f.dir); errors.Is(err, os.ErrNotExist) {
		f.set = bloom.New(p)
		return
	}
	began, log := time.Now(), f.log()
	set, report, err := bloom.Load(filterFS{n.cfg.FS}, f.dir, p, bloom.Store{Identity: f.identity(), Last: n.tail.seq, HeadAt: n.headAt})
	f.set = set
	for _, why := range report.Rejected {
		log.Warn("a snapshot of the filter is not used", "err", why)
		f.rejected.Add(1)
		if fault.CodeOf(why) == "SNAPSHOT_AHEAD" {
			f.ahead.Add(1)
		}
	}
	f.corruptChunks.Store(uint64(report.CorruptChunks))
	if err != nil {
		f.discard(err)
	}
	if report.File == "" {
		return
	}
	f.loaded, f.from = true, report.Seq
	if err == nil && report.CorruptChunks == 0 && report.Clamped == 0 {
		f.covered.Store(report.Seq)
		f.saved.Store(set.Keys())
	}
	if report.Seq == n.tail.seq {
		set.Complete()
	}
	log.Info("the filter was read", "keys", set.Keys(), "seq", report.Seq, "corruptChunks", report.CorruptChunks, "dur", time.Since(began))
}

// log returns the log with the filter's name.
func (f *filter) log() *slog.Logger { return f.n.cfg.Log.With("filter", f.name) }

// discard removes snapshots that are not to be believed. Until that is done the
// archive takes no records: with others under the same numbers, a later start would
// believe them.
func (f *filter) discard(why error) {
	f.covered.Store(0)
	err := bloom.Discard(filterFS{f.n.cfg.FS}, f.dir)
	if err == nil {
		f.hold(nil)
		f.log().Warn("the snapshots of the filter were removed", "dir", f.dir, "err", why)
		return
	}
	f.log().Error("snapshots of the filter can not be removed; the archive takes no records until they are", "dir", f.dir, "err", err)
	f.hold(fault.New(fault.Transient, "FILTER_STAYS",
		"archive: snapshots of the filter %s that are not to be believed can not be removed from %s, and records that come now might be denied later; look at its disk and its permissions, or remove the directory: %w", f.name, f.dir, err))
}
