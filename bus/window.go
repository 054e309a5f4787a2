package bus

import (
	"container/list"
	"context"
	"sync"
)

// A window bounds what is under way to one peer, in messages and in bytes.
// Without it nats.go drops what a slow peer can not take, and nobody is told.
// Claims are granted in the order they were made, so that a large one is not
// starved by small ones.
type window struct {
	mu      sync.Mutex // guards all below
	msgs    int        // free messages
	bytes   int64      // free bytes
	most    int64      // bytes when nothing is under way
	waiting list.List  // of *claim
}

// A claim is a place in a window. ready is closed when it is granted.
type claim struct {
	ready chan struct{}
	bytes int64
	place *list.Element // nil once granted
}

func newWindow(msgs int, bytes int64) *window {
	return &window{msgs: msgs, bytes: bytes, most: bytes}
}

// claim asks for a place for one message of so many bytes. One that is larger
// than the whole window takes all of it. Every claim has to be released,
// granted or not.
func (w *window) claim(bytes int64) *claim {
	c := &claim{ready: make(chan struct{}), bytes: min(bytes, w.most)}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.place = w.waiting.PushBack(c)
	w.grant()
	return c
}

// release gives back the place of c, or withdraws it from the queue.
func (w *window) release(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.place != nil {
		w.waiting.Remove(c.place)
		c.place = nil
	} else {
		w.msgs++
		w.bytes += c.bytes
	}
	w.grant()
}

// grant serves the queue from its head. w.mu is held.
func (w *window) grant() {
	for e := w.waiting.Front(); e != nil; e = w.waiting.Front() {
		c := e.Value.(*claim)
		if w.msgs == 0 || w.bytes < c.bytes {
			return
		}
		w.msgs--
		w.bytes -= c.bytes
		w.waiting.Remove(e)
		c.place = nil
		close(c.ready)
	}
}

// acquire claims a place and waits for it. On a nil error the caller releases
// the claim when the peer has answered.
func (w *window) acquire(ctx context.Context, bytes int64) (*claim, error) {
	c := w.claim(bytes)
	select {
	case <-c.ready:
		return c, nil
	default:
	}
	select {
	case <-c.ready:
		return c, nil
	case <-ctx.Done():
		w.release(c)
		return nil, ctx.Err()
	}
}
