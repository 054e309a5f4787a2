package bus

import (
	"crypto/rand"
	"io"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of the copies of a filter that are under way.
const (
	MaxCopies = 4                // at a time
	CopyIdle  = 10 * time.Second // after which one is ended that nobody asked for
)

// Codes of the faults that copies of a filter are refused with.
const CodeSnapshotGone = "SNAPSHOT_GONE" // the copy has ended, or never was; begin anew

// copyings are the copies of the filter that are under way.
type copyings struct {
	open func() (wire.SnapshotHead, func(io.Writer) (int64, error), error)

	mu     sync.Mutex // guards all below
	closed bool
	all    map[string]*copying
	done   sync.WaitGroup // what writes them
}

// A copying is one copy. Its writer fills a pipe, so that never more than a
// fragment is in memory beside the filter.
type copying struct {
	head  wire.SnapshotHead
	from  *io.PipeReader
	timer *time.Timer // ends it when nobody asks

	mu   sync.Mutex // guards all below, and reading
	at   uint64     // where last begins
	last []byte     // the fragment that was given out last; nil: none yet
}

func newCopyings(open func() (wire.SnapshotHead, func(io.Writer) (int64, error), error)) *copyings {
	return &copyings{open: open, all: map[string]*copying{}}
}

// begin starts a copy. Beyond MaxCopies one that was read to its end gives way,
// and then the answer is BUSY.
func (c *copyings) begin() (wire.SnapshotHead, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return wire.SnapshotHead{}, busy("copies of the filter")
	}
	for id, k := range c.all {
		if len(c.all) >= MaxCopies && k.read() {
			c.end(id)
		}
	}
	if len(c.all) >= MaxCopies {
		return wire.SnapshotHead{}, fault.New(fault.Transient, CodeBusy, "%d copies of the filter are under way, and there are no more", MaxCopies).After(time.Second)
	}
	head, write, err := c.open()
	if err != nil {
		return wire.SnapshotHead{}, err
	}
	head.Session = rand.Text()
	from, to := io.Pipe()
	k := &copying{head: head, from: from}
	k.timer = time.AfterFunc(CopyIdle, func() { c.endNow(head.Session) })
	c.all[head.Session] = k
	c.done.Go(func() {
		_, err := write(to)
		to.CloseWithError(err)
	})
	return head, nil
}

// fragment returns the bytes of a copy from an offset on, and the size of the
// whole: the next ones, or the last ones again.
func (c *copyings) fragment(session string, at uint64) (data []byte, size uint64, err error) {
	c.mu.Lock()
	k := c.all[session]
	if k != nil {
		k.timer.Reset(CopyIdle)
	}
	c.mu.Unlock()
	if k == nil {
		return nil, 0, gone("it has ended")
	}
	if data, err = k.next(at); err != nil {
		c.endNow(session)
	}
	return data, k.head.Size, err
}

func gone(why string, args ...any) error {
	return fault.New(fault.NotFound, CodeSnapshotGone, "the copy of the filter can not go on, "+why+"; begin anew", args...)
}

// next returns the fragment at an offset.
func (k *copying) next(at uint64) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last != nil && at == k.at {
		return k.last, nil
	}
	if end := k.at + uint64(len(k.last)); at != end || at >= k.head.Size {
		return nil, gone("the byte at %d was asked for, and that at %d of %d is the next", at, end, k.head.Size)
	}
	// Not the memory of the last one: that may be on its way still.
	data := make([]byte, min(wire.FragmentSize, k.head.Size-at))
	if _, err := io.ReadFull(k.from, data); err != nil {
		return nil, gone("it could not be written: %w", err)
	}
	k.at, k.last = at, data
	return data, nil
}

// read reports whether all was given out.
func (k *copying) read() bool {
	if !k.mu.TryLock() {
		return false
	}
	defer k.mu.Unlock()
	return k.last != nil && k.at+uint64(len(k.last)) >= k.head.Size
}

func (c *copyings) endNow(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(session)
}

// end ends a copy: its writer fails. mu is held.
func (c *copyings) end(session string) {
	if k := c.all[session]; k != nil {
		k.timer.Stop()
		// It never fails.
		_ = k.from.CloseWithError(io.ErrClosedPipe)
		delete(c.all, session)
	}
}

// close ends all copies and waits for their writers.
func (c *copyings) close() {
	c.mu.Lock()
	c.closed = true
	for session := range c.all {
		c.end(session)
	}
	c.mu.Unlock()
	c.done.Wait()
}

// count returns how many are under way.
func (c *copyings) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}
