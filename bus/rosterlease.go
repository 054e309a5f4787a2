package bus

import (
	"errors"
	"os"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

const (
	// rosterLease is how long a version of the roster may be relied upon by who
	// holds a lease of it, and with that how long an archive which was just enrolled
	// waits for its first record if he does not come back.
	rosterLease = HelloTimeout

	// MaxRosterHolders is how many leases of a roster may be out at a time.
	MaxRosterHolders = 64
)

// rosterLeases are the leases of the roster that are out: their holders look up,
// and call complete what every archive of their version has answered. So no
// archive is given a record that one of them may not know of. The roster's mu
// guards all but the clock.
type rosterLeases struct {
	clock   mirror.Clock
	holders map[string]rosterHolder
	grace   time.Duration // until then others may be out, of which this process does not know
	noted   bool          // the file that says that some may be out is there
}

type rosterHolder struct {
	version uint64
	until   time.Duration
}

// leasesPath is a file that is there while leases of the roster may be out.
func (r *Roster) leasesPath() string { return r.path + ".leases" }

// recallLeases makes a roster whose last process may have had leases out wait for
// one: whoever holds one may not know of the archive that was enrolled last.
func (r *Roster) recallLeases() error {
	_, err := os.Lstat(r.leasesPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases.noted = true
	r.leases.grace = r.leases.clock() + rosterLease
	for _, m := range r.members {
		m.unready = true
	}
	return nil
}

// forgetLeases says, at the end of the process, that none is out, if that is so.
func (r *Roster) forgetLeases() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.leases.clock()
	if !r.leases.noted || r.leases.lowest(now, 0) != 0 || now < r.leases.grace {
		return
	}
	if err := os.Remove(r.leasesPath()); err != nil {
		r.log.Warn("archives get their first records somewhat later after the next start", "err", err)
	}
}

// lowest ends the leases that have run out, and returns the lowest version that
// somebody relies on, or none.
func (l *rosterLeases) lowest(now time.Duration, none uint64) uint64 {
	low := none
	for id, h := range l.holders {
		switch {
		case now >= h.until:
			delete(l.holders, id)
		case low == none || h.version < low:
			low = h.version
		}
	}
	return low
}

// lend gives a lease of the roster to who has its newest version, and returns how
// long it is; 0 for others, who have to take the newest first.
func (r *Roster) lend(q wire.RosterRequest) (time.Duration, error) {
	if q.Holder == "" || r.borrows != nil {
		return 0, nil
	}
	if err := r.noteLeases(q); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.readmit(r.now()) }()
	now := r.leases.clock()
	r.leases.lowest(now, 0)
	_, known := r.leases.holders[q.Holder]
	switch {
	case q.Release:
		delete(r.leases.holders, q.Holder)
		return 0, nil
	case q.Version != r.file.Version:
		return 0, nil
	case !known && len(r.leases.holders) >= MaxRosterHolders:
		return 0, fault.New(fault.Transient, CodeBusy, "bus: %d aggregators have leases of the roster, and there are no more", MaxRosterHolders).After(rosterLease)
	}
	r.leases.holders[q.Holder] = rosterHolder{q.Version, now + rosterLease}
	return rosterLease, nil
}

// noteLeases makes durable that leases may be out, before the first.
func (r *Roster) noteLeases(q wire.RosterRequest) error {
	r.hearing.Lock()
	defer r.hearing.Unlock()
	if r.leases.noted || q.Release {
		return nil
	}
	if err := r.write(r.leasesPath(), []byte("verae-roster-leases/1: leases of the roster may be out\n")); err != nil {
		return fault.New(fault.Transient, "", "bus: the lease of the roster could not be noted: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases.noted = true
	return nil
}

// readmit lets archives have records once nobody relies on a roster without them.
// mu is held.
func (r *Roster) readmit(now time.Time) {
	at := r.leases.clock()
	low := r.leases.lowest(at, r.file.Version)
	news := false
	for _, m := range r.members {
		if m.unready && m.since <= low && at >= r.leases.grace {
			m.unready = false
			news = news || m.writable(now)
			r.note(m, now)
		}
	}
	if news {
		r.announce()
	}
}

// hold gives an archive that was enrolled by the newest version no records while somebody relies on
// a roster without it.
func (r *Roster) hold(id wire.ArchiveID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[id]
	m.unready, m.since = true, r.file.Version
	r.readmit(r.now())
}
