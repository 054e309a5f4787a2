package jobs

import "sync"

// hub tells waiters that a submission changed. A waiter subscribes first, then
// reads the state, then waits: what happens in between is in its channel.
type hub struct {
	mu      sync.Mutex
	waiters map[ref]map[chan struct{}]bool // guarded by mu
}

// subscribe returns a channel that gets a value after every change. stop must
// be called when the waiter leaves.
func (h *hub) subscribe(id ref) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters == nil {
		h.waiters = map[ref]map[chan struct{}]bool{}
	}
	if h.waiters[id] == nil {
		h.waiters[id] = map[chan struct{}]bool{}
	}
	h.waiters[id][c] = true
	return c, func() { h.leave(id, c) }
}

func (h *hub) leave(id ref, c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters[id], c)
	if len(h.waiters[id]) == 0 {
		delete(h.waiters, id)
	}
}

// ping wakes the waiters of a submission. It never blocks: a waiter that has
// not looked yet will see the newest state when it does.
func (h *hub) ping(id ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.waiters[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
