package archive

import (
	"log/slog"
	"sync"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// health is what an archive thinks of itself. Damage, failed writes and what
// others prove are for ever: only a new process, which has read the disk again,
// is well.
type health struct {
	log  *slog.Logger
	dead chan struct{} // closed by the first fail

	mu      sync.Mutex
	wanted  string         // what SetState said
	sick    string         // why it is read-only; empty if it is not
	failed  error          // of a write with an unknown outcome
	refuted error          // what others remember proves the log to be older, or another
	shut    error          // why the store was opened read-only; nil if it was not
	passing []func() error // conditions that come and go: each is nil, or transient with a code
	changed func()         // called after what lasts has changed; may be nil
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, dead: make(chan struct{}), wanted: wire.StateUp}
}

// watch makes the archive read-only while fn returns an error, which is
// fault.Transient and whose code is the reason that hellos tell. fn must be quick.
func (h *health) watch(fn func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passing = append(h.passing, fn)
}

// onChange has fn called whenever what lasts has changed. It must be quick.
func (h *health) onChange(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = fn
}

// update changes what lasts by f, with mu held, and tells that it did.
func (h *health) update(f func()) {
	h.mu.Lock()
	f()
	changed := h.changed
	h.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// doubt returns why nothing may be concluded from what the archive does not have, or
// nil: it is damaged, not what it was, or about to end.
func (h *health) doubt() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.failed != nil, h.refuted != nil, h.sick != "", h.wanted == wire.StateDraining:
		err := h.lasting()
		return fault.New(fault.Transient, fault.CodeOf(err), "archive: nobody may rely on its filter: %w", err)
	}
	return nil
}

// openedReadOnly says that nothing can be written before the store is opened
// anew.
func (h *health) openedReadOnly(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = why
	h.log.Error("the store is open for reading only", "err", why)
}

// readOnly returns why the store was opened read-only, or nil.
func (h *health) readOnly() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shut
}

// lasting returns what no time heals: why puts are refused until there is a new
// process, or until SetState says otherwise. The caller holds mu.
func (h *health) lasting() error {
	switch {
	case h.failed != nil:
		return h.failed
	case h.refuted != nil:
		return h.refuted
	case h.sick != "":
		return fault.New(fault.Corrupt, "DAMAGED",
			"archive: something stored is not what was written: %s; what is whole is answered; run archived check, then archived repair", h.sick)
	case h.shut != nil:
		return h.shut
	case h.wanted == wire.StateDraining:
		return fault.New(fault.Transient, "DRAINING", "archive: it is shutting down and takes no more records")
	case h.wanted != wire.StateUp:
		return fault.New(fault.Transient, "READONLY", "archive: it was told to be %s and takes no records", h.wanted)
	}
	return nil
}

// trouble returns why the archive is not up, with a code, or nil.
func (h *health) trouble() error {
	h.mu.Lock()
	err, passing := h.lasting(), h.passing
	h.mu.Unlock()
	for _, fn := range passing {
		if err == nil {
			err = fn()
		}
	}
	return err
}

// state returns the state to announce and the code of the reason if it is not up.
// Unknown wishes count as read-only.
func (h *health) state() (state, reason string) {
	switch err := h.trouble(); {
	case err == nil:
		return wire.StateUp, ""
	case fault.CodeOf(err) == "DRAINING":
		return wire.StateDraining, "DRAINING"
	default:
		return wire.StateReadonly, fault.CodeOf(err)
	}
}

func (h *health) set(state string) {
	h.update(func() {
		if h.wanted != state {
			h.log.Info("state", "state", state)
		}
		h.wanted = state
	})
}

// quarantine makes the archive read-only because something stored is not what
// was written. What is whole is still answered.
func (h *health) quarantine(reason string) {
	h.update(func() {
		if h.sick == "" {
			h.sick = reason
			h.log.Error("damaged: the archive is read-only", "err", reason)
		}
	})
}

// refute makes the archive read-only because its log is not the one that it
// signed. What it has is still answered.
func (h *health) refute(why error) {
	h.update(func() {
		if h.refuted == nil {
			h.refuted = why
			h.log.Error("not what it was: the archive is read-only", "err", why)
		}
	})
}

// fail makes the archive read-only because a write has failed and nobody knows
// what of it is on disk.
func (h *health) fail(reason string) {
	h.update(func() {
		if h.failed == nil {
			h.failed = fault.New(fault.Internal, "STORE_FAILED", "archive: the store failed: %s; start the program again: opening the store decides what is on disk", reason)
			h.log.Error("write failed: the archive is read-only", "err", reason)
			close(h.dead)
		}
	})
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

// accepting returns nil if puts may come to the committer. A refused put may go
// to another archive at once. Conditions that pass are the committer's to look
// at: what needs no room, as a duplicate, is acknowledged all the same.
func (h *health) accepting() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch err := h.lasting(); {
	case err == nil, fault.Is(err, fault.Transient):
		return err
	default:
		return fault.New(fault.Transient, "READONLY", "archive: it takes no records: %w", err)
	}
}
