package ledger

import (
	"errors"
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

	unwitnessed atomic.Bool               // it was restored: see probation.go
	held        atomic.Pointer[startWait] // nil unless it has just started: see probation.go

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

// VerifierKey returns the log's public key as name+hash+base64
// (c2sp.org/signed-note), for publication.
func (l *Ledger) VerifierKey() string { return l.key.vkey }

// Origin returns the name of the log.
func (l *Ledger) Origin() string { return l.cfg.Origin }

// Latest returns the newest durable checkpoint, a signed note. The caller may
// keep the slice but not change it.
func (l *Ledger) Latest() []byte { return l.head.Load().checkpoint }

// Ready returns nil while the ledger seals, else why it does not: what to do is
// in the text. While it waits for witnesses at its start it is ready: its callers
// wait with it.
func (l *Ledger) Ready() error {
	if l.isStopped() {
		return l.stopError()
	}
	if l.unwitnessed.Load() {
		return errUnwitnessed()
	}
	return nil
}

// Close finishes the calls that are under way, writes the fork guard and closes
// the store. Calls that come later get a Transient error. It may be called more
// than once.
func (l *Ledger) Close() error {
	l.committer.Close()
	l.release() // those who wait learn that it is closed
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
