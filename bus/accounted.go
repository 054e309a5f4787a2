package bus

import "github.com/verae/archive/wire"

// Lost returns the archives in StateLost, sorted, with what they lost.
func (r *Roster) Lost() (list []Member) {
	for _, m := range r.Snapshot() {
		if m.Lost != nil {
			list = append(list, m)
		}
	}
	return list
}

// Doubted reports whether the silence of an archive, or that it has nothing,
// means nothing: it lost records, or says itself that its log is not the one that
// it signed.
func (r *Roster) Doubted(id wire.ArchiveID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m := r.members[id]
	return m != nil && (m.memory.Lost != nil || refuted(&m.hello))
}

// refuted reports whether an archive has learned from others that it is an older
// copy of itself, or another log.
func refuted(h *wire.Hello) bool {
	return h.State == wire.StateReadonly && (h.Reason == "ROLLED_BACK" || h.Reason == "LOG_FORKED")
}

// Accounted says that what an archive acknowledged before the loss that was
// found at a time is accounted for: whole says that all of it is there, else what
// it lacks is on other archives, or listed as lost. A newer generation than the
// one that lost is trusted again then. The same one never is, unless it came
// back whole and its log is proved to continue the one remembered: then the
// right disk is back. It reports whether the archive is trusted again.
func (r *Roster) Accounted(id wire.ArchiveID, at wire.Time, boot string, whole bool) bool {
	r.mu.Lock()
	now := r.now()
	m := r.members[id]
	if m == nil || m.memory.Lost == nil || m.memory.Lost.At != at || m.hello.Boot != boot {
		r.mu.Unlock()
		return false
	}
	loss := m.memory.Lost
	back := whole && loss.Reason != LossForked && m.proved == boot && m.hello.Seq >= loss.Wanted
	if m.entry.generation() <= loss.Generation && !back {
		r.mu.Unlock()
		return false
	}
	was := m.writable(now)
	m.memory.Lost, r.news = nil, true
	r.log.Info("what an archive had acknowledged is accounted for: it is trusted again", "archive", id, "generation", m.entry.generation(), "whole", whole)
	r.note(m, now)
	if !was && m.writable(now) {
		r.announce()
	}
	r.mu.Unlock()
	r.saveNow()
	return true
}

// Alone reports whether an archive can be asked now, and nobody else answers in
// its name: its process was heard lately, and no other under its id.
func (r *Roster) Alone(id wire.ArchiveID) bool {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	m := r.members[id]
	return m != nil && m.fresh(now) && !m.quarantined(now)
}

// Former is an archive that was retired.
type Former struct {
	ID      wire.ArchiveID
	Version uint64 // of the roster that no longer had it
}

// WasRetired reports whether an archive was retired, and not taken back.
func (r *Roster) WasRetired(id wire.ArchiveID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return find(r.file.Retired, id) != nil
}

// Retired returns the archives that were retired, sorted by id.
func (r *Roster) Retired() []Former {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := []Former{}
	for _, e := range r.file.Retired {
		list = append(list, Former{e.ID, e.Retired})
	}
	return list
}
