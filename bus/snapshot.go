package bus

import (
	"time"

	"github.com/verae/archive/wire"
)

// Member is what the roster knows of one archive.
type Member struct {
	ID         wire.ArchiveID
	State      string    // a state of wire.Hello, or one of the States of this package
	Key        string    // Ed25519 public key, standard base64
	Enrolled   uint64    // the roster version that brought it in
	LastHello  time.Time // zero: none since this process started
	Reason     string    // why it is readonly, a code such as DISK_FULL; empty: it is not, or did not say
	Generation int       // of the last hello, as all below
	Boot       string
	Seq        uint64
	ControlSeq uint64
	Records    uint64

	Stubs      uint64   // records whose leaf it proves and whose bytes it lost, by its own word
	Accepted   int      // the generation that is admitted
	Remembered uint64   // the most that it acknowledged or told in it
	Checkpoint string   // the newest that it signed in it; empty: none
	Lost       *Loss    // nil: nothing is known to be lost
	Waiting    *Waiting // a live process of a newer generation; nil: none
	Twin       *Twin    // another process that used this id a moment ago; nil: none

	Mirror *MirrorState // of its filter; nil: this aggregator keeps no mirrors
}

// Twin is a process that uses the id of an archive together with it.
type Twin struct {
	Generation int
	Boot       string
}

// Waiting is a generation that an operator may accept.
type Waiting struct {
	Generation int
	Key        string // Ed25519 public key, standard base64
}

// Snapshot returns all enrolled archives, sorted by id.
func (r *Roster) Snapshot() []Member {
	now, mirrors := r.now(), r.mirrors.Load()
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Member, 0, len(r.ids))
	for _, id := range r.ids {
		m := r.members[id]
		row := Member{
			ID: id, State: m.state(now), Key: m.entry.Key, Enrolled: m.entry.Enrolled, LastHello: m.heard,
			Generation: m.hello.Generation, Boot: m.hello.Boot, Seq: m.hello.Seq,
			ControlSeq: m.hello.ControlSeq, Records: m.hello.Records,
			Stubs: m.hello.Lost, Accepted: m.entry.generation(),
		}
		if row.State == wire.StateReadonly {
			row.Reason = m.hello.Reason
		}
		if m.memory.Generation == row.Accepted {
			row.Remembered, row.Checkpoint = m.memory.Seq, m.memory.Checkpoint
		}
		if m.memory.Lost != nil {
			row.Lost = new(*m.memory.Lost)
		}
		if lately(m.waitingAt, now) {
			row.Waiting = &Waiting{m.waiting.Generation, m.waiting.Key}
		}
		if m.quarantined(now) {
			row.Twin = &Twin{m.twin.Generation, m.twin.Boot}
		}
		if mirrors != nil {
			row.Mirror = new(mirrors.State(id))
		}
		out = append(out, row)
	}
	return out
}
