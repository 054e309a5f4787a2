package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

// Ledger is an open ledger. It implements chain.Ledger; all methods may be
// called from many goroutines. The process that opened it is the only writer:
// Pebble's lock keeps others out.
type Ledger struct {
	cfg       Config
	key       signingKey
	db        *pebble.DB
	apply     func(*pebble.Batch) error // commits durably; replaced by tests
	committer *pebblex.Committer[*call]
	guard     *guard
	metrics   metrics

	// edge is the tree as it will be extended next; the committer's alone.
	edge *tlogx.Edge

	head   atomic.Pointer[head]                // what is durable
	recent [recentBlocks]atomic.Pointer[block] // newest blocks, by index modulo

	stopOnce sync.Once
	stopped  chan struct{} // closed when a commit failed; stopErr is set before
	stopErr  error

	mu     sync.RWMutex // read-held while the store is read; Close holds it to write
	closed bool         // guarded by mu
}

var _ chain.Ledger = (*Ledger)(nil)

// head is the durable state of the log. Nothing beyond it is shown: Pebble makes
// a batch readable before it is synced.
type head struct {
	blocks     int64     // number of blocks, and index of the next
	size       int64     // number of leaves
	time       time.Time // of the last block; zero Unix time if there is none
	root       tlog.Hash
	checkpoint []byte // signed
}

// Open opens the ledger in cfg.Dir. It refuses one that is not there, whose key
// or origin differ from what the store was made with, that another process has
// open, or that is behind or beside a checkpoint it signed: each with an error
// that says what to do. It reads the newest block and a few hashes; Check reads
// everything.
func Open(cfg Config) (_ *Ledger, err error) {
	cfg = cfg.withDefaults()
	key, err := openKey(cfg)
	if err != nil {
		return nil, err
	}
	if name := key.signer.Name(); cfg.Origin != "" && cfg.Origin != name {
		return nil, fault.New(fault.Conflict, "LEDGER_ORIGIN", "ledger: the log in %s is %s, not %s; an origin can not be changed: configure the stored one, or another directory", cfg.Dir, name, cfg.Origin).InField("origin")
	}
	cfg.Origin = key.signer.Name()

	l := &Ledger{cfg: cfg, key: key, stopped: make(chan struct{}), metrics: newMetrics()}
	onFatal := cfg.OnFatal
	if onFatal == nil {
		onFatal = pebblex.Exit
	}
	cfg.OnFatal = func(reason string) {
		l.stop(fmt.Errorf("the store failed: %s", reason))
		onFatal(reason)
	}
	if l.db, err = openStore(cfg, false); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.db.Close())
		}
	}()
	if err := checkMeta(l.db, key); err != nil {
		return nil, err
	}
	h, err := l.recover()
	if err != nil {
		return nil, err
	}
	stale, err := checkGuard(cfg, key, h.size, hashReader(l.db))
	if err != nil {
		return nil, err
	}
	if ahead := h.time.Sub(cfg.Now()); ahead > clockWarning {
		cfg.Log.Warn("the clock is behind the newest seal; seals keep the time of that one until it has caught up", "dur", ahead)
	}
	l.start(h, stale)
	return l, nil
}

// start begins to take calls.
func (l *Ledger) start(h *head, guardIsStale bool) {
	l.apply = func(b *pebble.Batch) error { return b.Commit(pebble.Sync) }
	l.head.Store(h)
	l.metrics.size.Set(float64(h.size))
	l.guard = newGuard(l.cfg.GuardEvery,
		func(signed []byte) error { return pebblex.WriteFile(l.cfg.FS, l.cfg.Guard, signed, 0o644) },
		func(err error) {
			l.metrics.guardErrors.Inc()
			l.cfg.Log.Error("the newest checkpoint could not be kept; a rollback might go unnoticed", "err", err)
		})
	if guardIsStale {
		l.guard.offer(h.checkpoint)
	}
	l.committer = pebblex.NewCommitter(pebblex.CommitterConfig[*call]{
		Queue:    maxQueue,
		MaxItems: maxCalls,
		MaxBytes: maxBlock,
		Size:     func(c *call) int { return len(c.entries) },
		Commit:   l.commit,
	})
	l.cfg.Log.Info("ledger open", "origin", l.cfg.Origin, "leaves", h.size, "blocks", h.blocks)
}

// checkMeta refuses a key that is not the store's.
func checkMeta(db pebble.Reader, key signingKey) error {
	row, closer, err := db.Get(metaKey())
	if errors.Is(err, pebble.ErrNotFound) {
		return fault.New(fault.Corrupt, "LEDGER_DAMAGED", "ledger: the store has no meta row: it is not a ledger's, or it is damaged")
	}
	if err != nil {
		return fmt.Errorf("ledger: meta row: %w", err)
	}
	m, err := decodeMeta(row)
	if err := errors.Join(err, closer.Close()); err != nil {
		return fault.Wrap(fault.Corrupt, fmt.Errorf("ledger: meta row: %w", err))
	}
	if m.vkey != key.vkey {
		return fault.New(fault.Conflict, "LEDGER_KEY", "ledger: the store was made with the key %s, ledger.key is %s; put the original key file back", m.vkey, key.vkey)
	}
	return nil
}

// recover reads where the log stands and checks that its newest block, its tree
// hashes and its leaves agree.
func (l *Ledger) recover() (*head, error) {
	b, err := lastBlock(l.db)
	if err != nil {
		return nil, err
	}
	if b == nil {
		l.edge = &tlogx.Edge{}
		empty := tlogx.Checkpoint{Origin: l.cfg.Origin, Root: l.edge.Root()}
		signed, err := empty.Sign(l.key.signer)
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		return &head{root: empty.Root, checkpoint: signed, time: time.Unix(0, 0).UTC()}, l.endsAt(0)
	}
	if l.edge, err = tlogx.LoadEdge(b.size(), hashReader(l.db)); err != nil {
		return nil, damaged("%w", err)
	}
	want := tlogx.Checkpoint{Origin: l.cfg.Origin, Size: b.size(), Root: l.edge.Root()}
	signed, err := tlogx.OpenCheckpoint(b.checkpoint, l.key.verifier)
	if err != nil {
		return nil, damaged("checkpoint of block %d: %w", b.index, err)
	}
	if signed != want || b.root != want.Root {
		return nil, damaged("block %d, the newest, is of size %d under a checkpoint of size %d, and the tree has another root", b.index, b.size(), signed.Size)
	}
	return &head{blocks: b.index + 1, size: b.size(), time: b.time, root: b.root, checkpoint: b.checkpoint}, l.endsAt(b.size())
}

// lastBlock returns the newest block, or nil if there is none.
func lastBlock(db pebble.Reader) (_ *blockRow, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixBlock}, UpperBound: []byte{prefixBlock + 1}})
	if err != nil {
		return nil, fmt.Errorf("ledger: newest block: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return nil, fault.Wrap(kindOf(it.Error()), it.Error())
	}
	return blockAt(it)
}

// endsAt checks that leaves and tree hashes end where the log of a size ends.
func (l *Ledger) endsAt(size int64) error {
	for prefix, count := range map[byte]int64{prefixLeaf: size, prefixHash: tlog.StoredHashCount(size)} {
		if err := endsAt(l.db, prefix, count); err != nil {
			return err
		}
	}
	return nil
}

func endsAt(db pebble.Reader, prefix byte, count int64) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	ok := it.Last()
	if err := it.Error(); err != nil {
		return fault.Wrap(kindOf(err), fmt.Errorf("ledger: %w", err))
	}
	if ok != (count > 0) || ok && !bytes.Equal(it.Key(), numberKey(prefix, count-1)) {
		return damaged("the rows %q do not end at number %d", prefix, count-1)
	}
	return nil
}

// damaged reports a store that contradicts itself.
func damaged(format string, args ...any) error {
	return fault.New(fault.Corrupt, "LEDGER_DAMAGED", "ledger: the store is damaged: %w; restore it from a copy", fmt.Errorf(format, args...))
}

// kindOf is the kind of an error that came out of the store.
func kindOf(err error) fault.Kind {
	if pebble.IsCorruptionError(err) || errors.Is(err, errRow) {
		return fault.Corrupt
	}
	return fault.KindOf(err)
}

// VerifierKey returns the log's public key as name+hash+base64
// (c2sp.org/signed-note), for publication.
func (l *Ledger) VerifierKey() string { return l.key.vkey }

// Origin returns the name of the log.
func (l *Ledger) Origin() string { return l.cfg.Origin }

// Latest returns the newest durable checkpoint, a signed note. The caller may
// keep the slice but not change it.
func (l *Ledger) Latest() []byte { return l.head.Load().checkpoint }

// Close finishes the calls that are under way, writes the fork guard and closes
// the store. Calls that come later get a Transient error. It may be called more
// than once.
func (l *Ledger) Close() error {
	l.committer.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	return errors.Join(l.guard.close(), l.db.Close())
}

// enter keeps the store open until the caller calls l.mu.RUnlock.
func (l *Ledger) enter() error {
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		return errClosed()
	}
	return nil
}

func errClosed() error {
	return fault.New(fault.Transient, "LEDGER_CLOSED", "ledger: closed")
}
