package archive

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// helloProto is the version of the protocol that Hello announces.
const helloProto = 1

// Node is an open archive. Its methods may be called from many goroutines. None
// of them changes or removes what is stored, and none gives access to the store.
type Node struct {
	cfg      Config
	identity identity
	boot     string

	db        *pebble.DB
	keys      filter        // of digests
	views     filter        // of viewers and digests
	secret    bloom.Secret  // of both; its id is 0 if nobody else has it
	public    viewerKey     // of wire.Public
	wake      chan struct{} // capacity 1: a filter has changed
	committer *pebblex.Committer[*pending]
	keeper    *keeper
	leaves    skeleton // the keeper's
	lost      losses
	health    *health
	metrics   *metrics
	disk      *pebblex.Space
	grace     grace
	feed      *mirror.Feed // of views
	lending   lending
	leases    leases

	// durable is the highest sequence number whose record is on disk. Readers
	// skip what is above it: Pebble shows records before they are.
	durable atomic.Uint64
	// storedAt is the time of the record that durable is the number of.
	storedAt atomic.Int64
	// tail belongs to the committer's goroutine, and so does pairs, which is used
	// again.
	tail  tail
	pairs []bloom.Hash

	gate   sync.RWMutex // held for reading while db is used by a caller
	closed bool         // guarded by gate

	stop       context.CancelFunc // ends the goroutines in background
	background sync.WaitGroup
	loaded     chan struct{}
	files      bool          // whether records name files; of the goroutine of load
	looked     chan struct{} // closed when lookForFiles has ended
}

// Open opens the archive in c.Dir. It never makes one: a volume that is not
// mounted must not become an empty archive. The caller closes the node.
//
// Errors: fault.NotFound if there is no archive, fault.Conflict if it is another
// archive or in use by a process, fault.Corrupt if what is there is not whole, or
// not all that the mark says was there.
//
// After a clean stop the filters are complete when Open returns. Else they are
// completed in the background, from a snapshot and the end of the log, or from the
// index; until then queries are answered from the store. See [Node.Loaded].
func Open(c Config) (*Node, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	h, disk := newHealth(c.Log), c.disk()
	h.watch(disk.Full)
	o := c.storeOptions(false, func(reason string) { h.fail(reason); c.OnFatal(reason) }, h.quarantine)
	o.OnFull, o.MemTableSize = h.openedReadOnly, c.memTable(disk)
	db, err := pebblex.Open(o)
	if err != nil {
		return nil, openError(err)
	}
	n := &Node{cfg: c, db: db, boot: newBoot(), health: h, disk: disk, loaded: make(chan struct{}), looked: make(chan struct{})}
	if err := n.start(); err != nil {
		return nil, errors.Join(openError(err), db.Close())
	}
	c.Log.Info("archive open", "seq", n.durable.Load(), "boot", n.boot)
	return n, nil
}

// openError gives the reasons for a failed open their kinds.
func openError(err error) error {
	switch {
	case errors.Is(err, pebblex.ErrMissing):
		return fault.New(fault.NotFound, "NO_ARCHIVE",
			"archive: there is no archive here (is the volume mounted? a new one is made by init): %w", err)
	case errors.Is(err, pebblex.ErrInUse):
		return fault.New(fault.Conflict, "IN_USE", "archive: %w", err)
	case fault.KindOf(err) != fault.Internal && fault.CodeOf(err) != "CORRUPT" || pebblex.RefusedBySystem(err):
		return err // it says what to do
	}
	return fault.New(fault.Corrupt, "CORRUPT", "archive: %w; %s", err, howToRepair)
}

func newBoot() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return hex.EncodeToString(b[:])
}

// start recovers the end of the log and starts the goroutines.
func (n *Node) start() error {
	id, err := readIdentity(n.db, n.cfg)
	if err != nil {
		return err
	}
	n.identity = id
	known, missing, err := n.recover()
	if err != nil {
		return err
	}
	if err := n.readLosses(); err != nil {
		return err
	}
	n.openFilters()
	n.metrics = newMetrics(n)

	// Everything in the store now comes to the filters from snapshots and the log,
	// or from this iterator, and everything later from the committer, which does
	// not run yet.
	rows, err := n.iterate(prefixBounds(prefixIndex))
	if err != nil {
		return err
	}
	n.startFeed()
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	last := n.tail.seq // tail is the committer's from here on
	n.background.Go(func() {
		defer close(n.looked)
		n.load(ctx, rows, last)
	})
	if err := n.beginGrace(ctx); err != nil {
		stop()
		n.background.Wait()
		return err
	}
	n.keep(known, missing)
	n.keepLineage()
	n.committer = pebblex.NewCommitter(pebblex.CommitterConfig[*pending]{
		Queue: maxQueued, MaxItems: maxBatchRecords, MaxBytes: maxBatchBytes,
		Size:   func(p *pending) int { return p.size },
		Commit: n.commit,
	})
	n.background.Go(func() { n.tend(ctx) })
	return nil
}

// iterate returns an iterator over the keys from lower to below upper. The
// caller closes it before the store is closed.
func (n *Node) iterate(lower, upper []byte) (*pebble.Iterator, error) {
	it, err := n.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("archive: iterate: %w", err)
	}
	return it, nil
}

// Seq returns the sequence number of the last durable record; 0 means none. In a
// new generation it is that of the genesis until there is a record.
func (n *Node) Seq() uint64 { return n.durable.Load() }

// records returns how many durable records can be read.
func (n *Node) records() uint64 {
	return n.identity.lineage.records(n.durable.Load()) - uint64(len(n.lost.ids))
}

// Loaded is closed when the index has been read once and compared with the log,
// and the filters are complete or have failed to be; Hello tells which.
func (n *Node) Loaded() <-chan struct{} { return n.loaded }

// Hello returns what the archive announces of itself. The roster version is not
// its to know.
func (n *Node) Hello() wire.Hello {
	seq := n.durable.Load()
	public, _ := n.identity.key.Public().(ed25519.PublicKey)
	state, reason := n.health.state()
	return wire.Hello{
		Proto: helloProto, ArchiveID: n.cfg.ID, Key: base64.StdEncoding.EncodeToString(public),
		Generation: n.identity.generation, Boot: n.boot, Seq: seq, Records: n.records(),
		State: state, Reason: reason, Lost: n.lost.count.Load(), Checkpoint: n.Checkpoint(),
		Filter: wire.HelloFilter{KeyID: n.filterKeyID(), Generations: n.keys.set.Generations(), Ready: n.keys.set.Ready()},
	}
}

// SetState announces that the archive is wire.StateUp or wire.StateDraining. In
// any state but up it takes no puts; it answers queries in all. What it found
// wrong with itself is stronger: a damaged archive stays read-only.
func (n *Node) SetState(state string) { n.health.set(state) }

// Close commits what is queued, writes the mark, waits for queries under way,
// stores the filters and closes the store. Calls that come later are refused. After
// a failed write the store is left as it is, since nothing is known of it, and only
// the end of the process frees it; Close then returns the failure.
func (n *Node) Close() error {
	n.health.set(wire.StateDraining)
	drained := make(chan struct{})
	var unmarked error
	go func() {
		defer close(drained)
		n.committer.Close()
		unmarked = n.keeper.close()
	}()
	select {
	case <-drained:
	case <-n.health.dead: // the committer may never end
	}
	n.stop()
	n.background.Wait()
	n.gate.Lock()
	defer n.gate.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if err := n.health.failure(); err != nil {
		return err
	}
	for _, f := range n.filters() {
		f.saveLast()
	}
	n.flushLast()
	n.closeLeases() // while nobody else can have the archive open
	if err := errors.Join(unmarked, n.leaves.close(), n.db.Close()); err != nil {
		return fmt.Errorf("archive: close: %w", err)
	}
	return nil
}

// enter lets a caller use the store until leave; it fails once Close has begun
// to close it.
func (n *Node) enter() error {
	n.gate.RLock()
	if n.closed {
		n.gate.RUnlock()
		return fault.New(fault.Transient, "CLOSED", "archive: closed")
	}
	return nil
}

func (n *Node) leave() { n.gate.RUnlock() }
