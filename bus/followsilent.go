package bus

import (
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// How long filters are not copied after a contradiction: the first time this long,
// and twice as long each time it happens again.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 10 * time.Minute
)

// A candidate is a mirror that may be asked, and whose process it is of.
type candidate struct {
	id   wire.ArchiveID
	copy *copied
}

// Silent returns those of archives that surely have nothing under digest which
// tenant may see, of all that was acknowledged when it is called. Archives whose
// mirror is not to be trusted at this moment, or that the roster does not trust,
// are not among them.
func (m *Mirrors) Silent(tenant wire.TenantID, digest wire.Digest, archives []wire.ArchiveID) []mirror.Silence {
	var room [16]candidate
	asked := room[:0]
	followers := *m.followers.Load()
	for _, id := range archives {
		if f := followers[id]; f != nil {
			if c := f.serving.Load(); c != nil {
				asked = append(asked, candidate{id, c})
			}
		}
	}
	if asked = m.roster.vouched(asked); len(asked) == 0 {
		return nil
	}
	own := mirror.Pair(m.cfg.Secret.Key, tenant, digest)
	public := bloom.HashKey(m.public, digest)
	silent := make([]mirror.Silence, 0, len(asked))
	now := m.cfg.Clock()
	for _, a := range asked {
		if seq, ok := a.copy.mirror.AbsentAt(now, own, public); ok {
			silent = append(silent, mirror.Silence{ID: a.id, Boot: a.copy.boot, Seq: seq})
		}
	}
	return silent
}

// vouched returns those candidates, in the same memory, whose archives are heard
// as the process that is mirrored, and as one whose word counts.
func (r *Roster) vouched(list []candidate) []candidate {
	if len(list) == 0 {
		return nil
	}
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	kept := list[:0]
	for _, c := range list {
		if m := r.members[c.id]; m != nil && m.sound(now) && m.fresh(now) && m.hello.Boot == c.copy.boot {
			kept = append(kept, c)
		}
	}
	return kept
}

// sound reports whether it means anything what an archive says that it does not have.
func (m *member) sound(now time.Time) bool {
	return !m.quarantined(now) && m.memory.Lost == nil && !refuted(&m.hello)
}

// A sight is what the roster knows of an archive that a mirror depends on.
type sight struct {
	enrolled bool
	heard    bool // lately
	sound    bool
	boot     string
	state    string
	keyID    string // of its filter; empty: none of a fleet
}

func (r *Roster) sight(id wire.ArchiveID) sight {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	m := r.members[id]
	if m == nil {
		return sight{}
	}
	return sight{
		enrolled: true, heard: m.fresh(now), sound: m.sound(now),
		boot: m.hello.Boot, state: m.hello.State, keyID: m.hello.Filter.KeyID,
	}
}

// Contradicted tells that an archive showed a record which its mirror denied. No
// mirror is believed then until it is copied anew.
func (m *Mirrors) Contradicted(s mirror.Silence, record wire.RecordID) {
	m.log.Error("a mirror denied a record that its archive has; all mirrors are copied anew",
		"archive", s.ID, "boot", s.Boot, "seq", s.Seq, "record", record)
	m.wrong("record")
}

// acked takes an acknowledgement for a put of this process. It is the second lock
// on the first: the archive waits for us before it acknowledges.
func (m *Mirrors) acked(id wire.ArchiveID, boot string, seq uint64) {
	f := (*m.followers.Load())[id]
	if f == nil {
		return
	}
	if c := f.serving.Load(); c != nil && c.mirror.Acked(boot, seq) {
		m.log.Error("an archive acknowledged a put before its mirror knew of it; all mirrors are copied anew",
			"archive", id, "boot", boot, "seq", seq)
		m.wrong("acknowledgement")
	}
}

// wrong drops all mirrors.
func (m *Mirrors) wrong(by string) {
	m.metrics.contradictions.WithLabelValues(by).Inc()
	m.mu.Lock()
	m.wrongs++
	m.pause = time.Now().Add(min(firstPause<<min(m.wrongs-1, 16), maxPause))
	m.mu.Unlock()
	for _, f := range *m.followers.Load() {
		f.drop("contradiction")
	}
}
