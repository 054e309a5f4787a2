package archive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
)

const (
	// markEvery is the shortest time between two writes of the mark, unless a put
	// asks for one.
	markEvery = time.Second
	// markOverdue is how long a durable record may be without a mark before puts
	// are refused.
	markOverdue = 10 * time.Second
)

// treeHead is a state of the log: its last number, how many leaves the tree of
// the generation has, and the root over them.
type treeHead struct {
	seq  uint64
	size int64
	root tlog.Hash
}

// mark is a checkpoint that is on disk outside the store.
type mark struct {
	treeHead
	note string // signed
}

// keeper writes the mark in the background: at once when it has been quiet for
// the time every, else when that time has passed, and at once when somebody
// waits for it. A failed write is repeated until it succeeds.
type keeper struct {
	every time.Duration
	// write makes a head durable outside the store, with the bones of the records
	// that it is the first to cover. After an error it is called with all of them
	// again, and more.
	write func(bones []bone, head treeHead) (mark, error)
	fail  func(error) // told of each failed write

	published atomic.Pointer[mark]
	wake      chan struct{} // capacity 1: something may be to write
	urgent    chan struct{} // capacity 1: somebody waits
	closing   chan struct{}
	done      chan struct{}
	closed    error // of the last write; set before done is closed

	mu      sync.Mutex
	bones   []bone        // not written yet
	head    treeHead      // newest
	oldest  time.Time     // when the first was offered that no mark covers
	next    time.Time     // the same of those that the write under way does not have
	changed chan struct{} // closed when a mark is published
}

// newKeeper starts a keeper that knows the mark on disk.
func newKeeper(every time.Duration, known mark, write func([]bone, treeHead) (mark, error), fail func(error)) *keeper {
	k := &keeper{
		every: every, write: write, fail: fail, head: known.treeHead,
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		closing: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
	}
	k.published.Store(&known)
	go k.run()
	return k
}

// offer makes head the newest state of the log, which is durable, with the
// records that it adds. It never blocks for long. Calls come in the order of the
// log.
func (k *keeper) offer(bones []bone, head treeHead) {
	k.mu.Lock()
	k.bones, k.head = append(k.bones, bones...), head
	switch now := time.Now(); {
	case k.oldest.IsZero():
		k.oldest = now
	case k.next.IsZero():
		k.next = now
	}
	k.mu.Unlock()
	signal(k.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await returns when a mark covers seq, and its note. It hurries the keeper, and
// gives up with it: when the mark would be overdue.
func (k *keeper) await(ctx context.Context, seq uint64) (string, error) {
	late := time.After(markOverdue)
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if m := k.published.Load(); m.seq >= seq {
			return m.note, nil
		}
		signal(k.urgent)
		signal(k.wake)
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fault.New(fault.Transient, codeUnknown, "archive: stored, but no mark covers it yet: %w", ctx.Err())
		case <-late:
			return "", fault.New(fault.Transient, "MARK_STALE", "archive: stored, but the mark can not be written, so none covers it yet: see the archive's log")
		case <-k.done:
			if m := k.published.Load(); m.seq >= seq {
				return m.note, nil
			}
			return "", fault.New(fault.Transient, "CLOSED", "archive: stored, but closed before a mark covered it")
		}
	}
}

// age returns for how long the oldest durable record without a mark has been
// waiting for one; 0 if there is none.
func (k *keeper) age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.oldest.IsZero() {
		return 0
	}
	return time.Since(k.oldest)
}

// overdue is a condition of health: nil, or why no more records are taken.
func (k *keeper) overdue() error {
	if age := k.age(); age > markOverdue {
		return fault.New(fault.Transient, "MARK_STALE",
			"archive: for %s the mark could not be written, and more records could be lost unseen; look at the disk of the archive's directory", age.Round(time.Second))
	}
	return nil
}

// close writes what is still to be written and ends the goroutine. It returns
// why that could not be written. It may be called more than once.
func (k *keeper) close() error {
	k.mu.Lock()
	select {
	case <-k.closing:
	default:
		close(k.closing)
	}
	k.mu.Unlock()
	<-k.done
	return k.closed
}

func (k *keeper) run() {
	defer close(k.done)
	for {
		select {
		case <-k.wake:
		case <-k.closing:
			k.closed = k.flush()
			return
		}
		if err := k.flush(); err != nil {
			k.fail(err)
			signal(k.wake)
		}
		select {
		case <-time.After(k.every):
		case <-k.urgent:
		case <-k.closing:
		}
	}
}

// flush writes the newest state if it is not written yet.
func (k *keeper) flush() error {
	k.mu.Lock()
	bones, head := k.bones, k.head
	due := !k.oldest.IsZero()
	k.next = time.Time{}
	k.mu.Unlock()
	if !due {
		return nil
	}
	m, err := k.write(bones, head)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		return err
	}
	k.bones = append([]bone(nil), k.bones[len(bones):]...)
	k.oldest, k.next = k.next, time.Time{}
	k.published.Store(&m)
	close(k.changed)
	k.changed = make(chan struct{})
	return nil
}
