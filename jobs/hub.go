package jobs

import (
	"maps"
	"slices"
	"sync"

	"github.com/verae/archive/receipts"
)

// hub tells waiters that a submission changed. A waiter subscribes first, then
// reads the state, then waits: what happens in between is in its channel.
type hub struct {
	mu      sync.Mutex
	waiters map[ref]map[*waiter]bool // guarded by mu
}

// waiter is one wait for a submission.
type waiter struct {
	changed chan struct{}      // gets a value after every change
	found   *receipts.Gathered // what the archives said at the end; guarded by hub.mu
}

// subscribe adds a waiter. stop must be called when it leaves.
func (h *hub) subscribe(id ref) (w *waiter, stop func()) {
	w = &waiter{changed: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters == nil {
		h.waiters = map[ref]map[*waiter]bool{}
	}
	if h.waiters[id] == nil {
		h.waiters[id] = map[*waiter]bool{}
	}
	h.waiters[id][w] = true
	return w, func() { h.leave(id, w) }
}

func (h *hub) leave(id ref, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters[id], w)
	if len(h.waiters[id]) == 0 {
		delete(h.waiters, id)
	}
}

// present returns who waits for a submission now.
func (h *hub) present(id ref) []*waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.waiters[id]))
}

// hand gives waiters what the archives said. It is kept by nobody else.
func (h *hub) hand(to []*waiter, found *receipts.Gathered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range to {
		w.found = found
	}
}

// handed returns what a waiter was given, or nil.
func (h *hub) handed(w *waiter) *receipts.Gathered {
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.found
}

// ping wakes the waiters of a submission. It never blocks: a waiter that has
// not looked yet will see the newest state when it does.
func (h *hub) ping(id ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.waiters[id] {
		signal(w.changed)
	}
}
