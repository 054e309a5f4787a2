package pebblex

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// ErrClosed is returned by Submit after Close.
var ErrClosed = errors.New("pebblex: the committer is closed")

// CommitterConfig says how items become batches.
type CommitterConfig[T any] struct {
	// Queue is how many items may wait; Submit blocks when it is full. At
	// least 1.
	Queue int
	// MaxItems bounds the items of a batch. At least 1.
	MaxItems int
	// MaxBytes bounds the sum of Size over a batch; an item that is larger by
	// itself is a batch of its own. 0 means no bound.
	MaxBytes int
	// Size returns the cost of an item; needed only with MaxBytes.
	Size func(T) int
	// Commit handles a batch, in the order of Submit, and answers every item in
	// it. It runs on one goroutine and must not keep the slice.
	Commit func(items []T)
}

// Committer hands items to one goroutine in batches. While a batch is being
// committed the next one gathers by itself: many concurrent writers share one
// fsync, a single writer never waits for company.
type Committer[T any] struct {
	cfg     CommitterConfig[T]
	queue   chan T
	closing chan struct{}
	done    chan struct{}
	once    sync.Once

	mu     sync.RWMutex // held for reading while sending to queue, so that Close may close it
	closed bool
}

// NewCommitter starts a committer. Values below 1 for Queue and MaxItems count
// as 1.
func NewCommitter[T any](cfg CommitterConfig[T]) *Committer[T] {
	cfg.MaxItems = max(cfg.MaxItems, 1)
	c := &Committer[T]{
		cfg:     cfg,
		queue:   make(chan T, max(cfg.Queue, 1)),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	go c.run()
	return c
}

// Submit queues item. Nil means that it will be passed to Commit exactly once.
// Otherwise it never will: ErrClosed after Close, or the error of ctx if it
// ended while the queue was full.
func (c *Committer[T]) Submit(ctx context.Context, item T) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return ErrClosed
	}
	select {
	case c.queue <- item:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closing:
		return ErrClosed
	}
}

// Close stops the intake, commits what is queued and returns when the goroutine
// has ended. It may be called more than once, but not from Commit.
func (c *Committer[T]) Close() {
	c.once.Do(func() {
		close(c.closing)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
		close(c.queue)
	})
	<-c.done
}

func (c *Committer[T]) run() {
	defer close(c.done)
	var (
		batch   = make([]T, 0, c.cfg.MaxItems)
		next    T    // taken from the queue, but too large for the batch before
		pending bool // next is set
	)
	for {
		if !pending {
			item, ok := <-c.queue
			if !ok {
				return
			}
			next = item
			// Those who were answered by the batch before are about to come
			// again: letting them run first nearly doubles the batches of a
			// few writers, and costs a lone writer nothing.
			runtime.Gosched()
		}
		batch, next, pending = c.gather(append(batch, next))
		c.cfg.Commit(batch)
		clear(batch) // no reference to an item that was answered
		batch = batch[:0]
	}
}

// gather fills batch, which has one item, with what is waiting. It returns an
// item that no longer fitted, if there is one.
func (c *Committer[T]) gather(batch []T) (_ []T, next T, pending bool) {
	size := c.size(batch[0])
	for len(batch) < c.cfg.MaxItems {
		select {
		case item, ok := <-c.queue:
			if !ok {
				return batch, next, false
			}
			n := c.size(item)
			if c.cfg.MaxBytes > 0 && size+n > c.cfg.MaxBytes {
				return batch, item, true
			}
			size += n
			batch = append(batch, item)
		default:
			return batch, next, false
		}
	}
	return batch, next, false
}

func (c *Committer[T]) size(item T) int {
	if c.cfg.Size == nil {
		return 0
	}
	return c.cfg.Size(item)
}
