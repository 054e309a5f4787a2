package archive

import (
	"log/slog"
	"sync"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// health is what an archive thinks of itself. Getting worse is for ever: only a
// new process, which has read the disk again, is well.
type health struct {
	log  *slog.Logger
	dead chan struct{} // closed by the first fail

	mu     sync.Mutex
	wanted string // what SetState said
	sick   string // why it is read-only; empty if it is not
	failed error  // of a write with an unknown outcome
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, dead: make(chan struct{}), wanted: wire.StateUp}
}

// state returns the state to announce. Unknown wishes count as read-only.
func (h *health) state() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.sick != "" || h.failed != nil:
		return wire.StateReadonly
	case h.wanted == wire.StateUp || h.wanted == wire.StateDraining:
		return h.wanted
	}
	return wire.StateReadonly
}

func (h *health) set(state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted != state {
		h.log.Info("state", "state", state)
	}
	h.wanted = state
}

// quarantine makes the archive read-only because something stored is not what
// was written. What is whole is still answered.
func (h *health) quarantine(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sick == "" {
		h.sick = reason
		h.log.Error("damaged: the archive is read-only", "err", reason)
	}
}

// fail makes the archive read-only because a write has failed and nobody knows
// what of it is on disk.
func (h *health) fail(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = fault.New(fault.Internal, "STORE_FAILED", "archive: the store failed: %s", reason)
		h.log.Error("write failed: the archive is read-only", "err", reason)
		close(h.dead)
	}
}

// failure returns the failed write, if there was one.
func (h *health) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// damage returns why the archive is in quarantine, or "".
func (h *health) damage() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sick
}

// accepting returns nil if the archive takes puts. A refused put may go to
// another archive at once.
func (h *health) accepting() error {
	switch state := h.state(); state {
	case wire.StateUp:
		return nil
	case wire.StateDraining:
		return fault.New(fault.Transient, "DRAINING", "archive: it is shutting down and takes no more records")
	default:
		return fault.New(fault.Transient, "READONLY", "archive: it is %s and takes no records", state)
	}
}
