package bus

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/boottime"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// How liveness is judged.
const (
	// HelloInterval is how often an archive says that it is there.
	HelloInterval = 500 * time.Millisecond
	// HelloTimeout is how long an archive counts as alive after a hello: three of
	// them may be missed.
	HelloTimeout = 3 * HelloInterval
	// QuarantineTime is how long one of two processes with the same id must have
	// been alone before puts are offered to it again.
	QuarantineTime = 10 * time.Second
)

// States of an archive in a roster, beside those of its hellos (wire.StateUp,
// wire.StateDraining, wire.StateReadonly).
const (
	StateSilent      = "silent"       // enrolled, and no hello for HelloTimeout
	StateQuarantined = "quarantined"  // two live processes use this id
	StateLost        = "lost-records" // it has less than it acknowledged: no puts, and its silence means nothing
	StateFenced      = "fenced"       // only a process of a generation that was replaced says hello
	StateUnaccepted  = "unaccepted"   // only a process of a newer generation says hello, which nobody accepted yet
)

// RosterConfig configures a roster.
type RosterConfig struct {
	// Path of the roster's file. Its directory must exist.
	Path string
	// Create allows a new, empty roster where there is no file. Set it only when
	// the program's data directory is new: a lost roster makes incomplete answers
	// look complete.
	Create bool
	// Open enrols every archive that says hello (ENROL=open). Otherwise only
	// those whose key is in Keys are.
	Open bool
	// Keys are Ed25519 public keys, in standard base64, of archives that may
	// enrol. Archives enrolled before need not be listed.
	Keys []string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Clock counts leases of the roster; nil is the machine's.
	Clock mirror.Clock
	// Log gets enrolments and changes of state; nil discards.
	Log *slog.Logger

	write func(path string, data []byte) error // nil is writeSealed
}

// Roster knows the archives: which are enrolled (durably, with their keys; dead
// ones stay, so that their silence is seen), which are alive, which of them own a
// key, and what is remembered of their logs. Its methods may be called from many
// goroutines.
type Roster struct {
	path    string
	write   func(path string, data []byte) error
	open    bool
	keys    map[string]bool
	now     func() time.Time
	log     *slog.Logger
	metrics rosterMetrics

	leases  rosterLeases
	borrows *borrowed // nil: this roster enrols by itself

	hearing sync.Mutex      // serialises hellos and decisions, and with them the roster's file
	seen    map[string]bool // refusals that have been logged; guarded by hearing
	saving  sync.Mutex      // serialises writes of the memory's file; taken before mu
	failed  throttle        // log lines about writes of it

	mirrors atomic.Pointer[Mirrors] // that are kept of its archives; nil: none

	mu      sync.RWMutex // guards all below
	news    bool         // the memory holds what its file does not
	file    rosterFile
	ids     []wire.ArchiveID // sorted
	members map[wire.ArchiveID]*member
	wake    chan struct{}              // closed and replaced when an archive becomes writable
	watches map[chan struct{}]struct{} // of Changes

	conn  *Conn
	sub   *nats.Subscription
	prove prover // asks for consistency proofs; nil before Listen
	stop  chan struct{}
	done  sync.WaitGroup
}

// OpenRoster reads the roster at cfg.Path and the memory beside it. A damaged or
// missing file of either is an error of kind Corrupt; see RosterConfig.Create.
func OpenRoster(cfg RosterConfig) (*Roster, error) {
	r := newRoster(cfg)
	for _, key := range cfg.Keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		r.keys[key] = true
	}
	file, err := loadRoster(cfg.Path, cfg.Create, r.write)
	if err != nil {
		return nil, err
	}
	memory, found, err := loadMemory(MemoryPath(cfg.Path), &file)
	if err != nil {
		return nil, err
	}
	r.adopt(file)
	r.recall(memory)
	if err := r.recallLeases(); err != nil {
		return nil, err
	}
	if !found {
		return r, r.SaveMemory() // before anybody is enrolled
	}
	return r, nil
}

func newRoster(cfg RosterConfig) *Roster {
	r := &Roster{
		path: cfg.Path, open: cfg.Open, keys: map[string]bool{},
		now: cfg.Now, log: orDiscard(cfg.Log), write: cfg.write,
		leases: rosterLeases{clock: cfg.Clock, holders: map[string]rosterHolder{}},
		seen:   map[string]bool{}, members: map[wire.ArchiveID]*member{},
		wake: make(chan struct{}), watches: map[chan struct{}]struct{}{},
		stop: make(chan struct{}),
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.leases.clock == nil {
		r.leases.clock = boottime.Now
	}
	if r.write == nil {
		r.write = writeSealed
	}
	r.metrics = newRosterMetrics(r)
	return r
}

// adopt makes a file that is on disk the one in force.
func (r *Roster) adopt(file rosterFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file = file
	r.ids = make([]wire.ArchiveID, 0, len(file.Archives))
	members := make(map[wire.ArchiveID]*member, len(file.Archives))
	for _, e := range file.Archives {
		r.ids = append(r.ids, e.ID)
		m := r.members[e.ID]
		if m == nil {
			m = &member{shown: StateSilent, memory: remembered{ID: e.ID}}
		}
		m.entry, members[e.ID] = e, m
	}
	r.members = members
}

// Enrolled returns the ids of all enrolled archives, alive or not, sorted.
func (r *Roster) Enrolled() []wire.ArchiveID {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.ids)
}

// Version returns the roster's version; it is 0 while nobody is enrolled.
func (r *Roster) Version() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.file.Version
}

// Knows reports whether an archive is enrolled, or was until it was retired.
func (r *Roster) Knows(id wire.ArchiveID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.members[id] != nil || find(r.file.Retired, id) != nil
}

// Alive returns the archives that may be offered a put now, sorted: enrolled,
// heard within HelloTimeout, in state up, not quarantined.
func (r *Roster) Alive() []wire.ArchiveID {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]wire.ArchiveID, 0, len(r.ids))
	for _, id := range r.ids {
		if r.members[id].writable(now) {
			out = append(out, id)
		}
	}
	return out
}

// Speaks reports whether a message of the process boot is one of the archive
// enrolled as id: its hellos carry the enrolled key. Another process under the
// same id, say of an archive that was made anew by mistake, speaks for itself.
// Nobody is believed before his first hello to this process, which is due within
// HelloInterval of his connecting.
func (r *Roster) Speaks(id wire.ArchiveID, boot string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m := r.members[id]
	return m != nil && !m.heard.IsZero() && m.hello.Boot == boot && (r.borrows == nil || m.lent == boot)
}

// Reachable returns how many archives may be offered a put now.
func (r *Roster) Reachable() int { return len(r.Alive()) }

// Rank orders the archives that may be offered a put now by rendezvous hashing
// of key: the first PUT_COPIES own it, the next take over on failure.
func (r *Roster) Rank(key [32]byte) []wire.ArchiveID { return rank(r.Alive(), key) }

// Changes returns a channel that gets a value after an archive became writable;
// several changes may be one value. stop ends it.
func (r *Roster) Changes() (changes <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[ch] = struct{}{}
	return ch, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, ch)
	}
}

// announce tells everybody who waits that an archive became writable. mu is held.
func (r *Roster) announce() {
	close(r.wake)
	r.wake = make(chan struct{})
	for ch := range r.watches {
		select {
		case ch <- struct{}{}:
		default: // the last one has not been read yet
		}
	}
}

// WaitAlive returns when n archives may be offered a put. If ctx is done first
// the error is Transient and says how many there are.
func (r *Roster) WaitAlive(ctx context.Context, n int) error {
	for {
		r.mu.RLock()
		wake := r.wake
		r.mu.RUnlock()
		alive := r.Reachable()
		if alive >= n {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return fault.New(fault.Transient, CodeNoArchive, "bus: %d of %d archives are alive: %w", alive, n, ctx.Err())
		}
	}
}
