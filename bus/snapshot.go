package bus

import (
	"time"

	"github.com/verae/archive/wire"
)

// Member is what the roster knows of one archive.
type Member struct {
	ID         wire.ArchiveID
	State      string    // a state of wire.Hello, StateSilent or StateQuarantined
	Key        string    // Ed25519 public key, standard base64
	Enrolled   uint64    // the roster version that brought it in
	LastHello  time.Time // zero: none since this process started
	Generation int       // of the last hello, as all below
	Boot       string
	Seq        uint64
	ControlSeq uint64
	Records    uint64
}

// Snapshot returns all enrolled archives, sorted by id.
func (r *Roster) Snapshot() []Member {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Member, 0, len(r.ids))
	for _, id := range r.ids {
		m := r.members[id]
		out = append(out, Member{
			ID: id, State: m.state(now), Key: m.entry.Key, Enrolled: m.entry.Enrolled, LastHello: m.heard,
			Generation: m.hello.Generation, Boot: m.hello.Boot, Seq: m.hello.Seq,
			ControlSeq: m.hello.ControlSeq, Records: m.hello.Records,
		})
	}
	return out
}
