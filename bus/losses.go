package bus

import (
	"fmt"
	"time"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// memoryInterval is the shortest time between two writes of the memory that no
// loss asks for.
const memoryInterval = time.Second

// Acknowledged remembers what an archive acknowledged to this aggregator. A
// process that is not the accepted archive's is not believed, and one that was
// superseded only as far as its successor has to have what it acknowledged.
func (r *Roster) Acknowledged(id wire.ArchiveID, ack wire.PutAck) {
	r.learn(id, ack.Boot, ack.Checkpoint, func(m *member) {
		switch {
		case ack.Generation != m.entry.generation():
		case ack.Boot != m.hello.Boot:
			m.owe(ack.Boot, ack.Seq, r.now())
		case m.memory.saw(ack.Generation, ack.Boot, ack.Seq):
			r.news = true
		}
	})
	if mirrors := r.mirrors.Load(); mirrors != nil {
		mirrors.acked(id, ack.Boot, ack.Seq)
	}
}

// Told remembers a checkpoint that came with a message of the process boot.
func (r *Roster) Told(id wire.ArchiveID, boot, note string) { r.learn(id, boot, note, nil) }

// learn remembers a checkpoint of the newest process of an archive, and what
// remember adds. A checkpoint that came before costs a comparison.
func (r *Roster) learn(id wire.ArchiveID, boot, note string, remember func(*member)) {
	r.mu.RLock()
	m := r.members[id]
	r.mu.RUnlock()
	if m == nil {
		return
	}
	c := r.checkpointOf(m, note, boot, byMessage)
	if c == nil && remember == nil {
		return
	}
	r.mu.Lock()
	lost := false
	if !m.heard.IsZero() && remember != nil {
		remember(m)
	}
	if !m.heard.IsZero() && m.hello.Boot == boot && c != nil && m.memory.Generation == m.entry.generation() {
		lost = r.comparing(m, *c, false, m.hello.Seq, r.now())
	}
	r.mu.Unlock()
	if lost {
		r.saveNow()
	}
}

// Ways by which a checkpoint comes.
const (
	byHello = iota
	byMessage
)

// checkpointOf verifies a note. It returns nil for the one that came last in this
// way, and for one that is not signed by the enrolled key. No lock is held.
func (r *Roster) checkpointOf(m *member, note, boot string, way int) *signed {
	this := boot + "\n" + note
	r.mu.RLock()
	entry, seen := m.entry, m.told[way] == this
	r.mu.RUnlock()
	if note == "" || seen {
		return nil
	}
	c, err := openNote(note, entry.ID, entry.generation(), entry.Key)
	r.mu.Lock()
	m.told[way] = this
	r.mu.Unlock()
	if err != nil {
		r.metrics.refused.WithLabelValues("checkpoint").Inc()
		if r.failed.now() {
			r.log.Error("an archive sent a checkpoint that its enrolled key did not sign", "archive", entry.ID, "boot", boot, "err", err)
		}
		return nil
	}
	return &signed{note: note, boot: boot, Checkpoint: c}
}

// judge compares a hello of the newest process of an archive with what is
// remembered, and remembers what it adds. It reports whether a loss showed. mu
// is held.
func (r *Roster) judge(m *member, h *wire.Hello, c *signed, now time.Time) (lost bool) {
	if r.borrows != nil {
		return false // who enrols remembers, and tells
	}
	k := &m.memory
	if m.proved != "" && m.proved != h.Boot {
		m.proved = ""
	}
	if loss := k.behind(h, now); loss != nil {
		lost = r.lose(m, loss)
	}
	if k.saw(h.Generation, h.Boot, h.Seq) {
		r.news = true
	}
	// A process that lives beside its successor would have been heard by now.
	if m.owed > m.back && now.Sub(m.owedAt) >= HelloTimeout {
		loss := k.loss(LossBehind, m.back, now, "it acknowledged seq %d before it came back with seq %d", m.owed, m.back)
		loss.Wanted, m.owed = m.owed, 0
		lost = r.lose(m, loss) || lost
	}
	if c != nil && k.Generation == h.Generation {
		lost = r.comparing(m, *c, true, h.Seq, now) || lost
	}
	return lost
}

// comparing compares a verified checkpoint with those remembered. mu is held.
func (r *Roster) comparing(m *member, c signed, later bool, seq uint64, now time.Time) (lost bool) {
	news, loss := m.memory.compare(c, later, seq, now)
	r.news = r.news || news
	return loss != nil && r.lose(m, loss)
}

// lose puts an archive into StateLost, and reports whether that is new. A fork is
// worse than being behind: it takes the place of the earlier reason. mu is held.
func (r *Roster) lose(m *member, loss *Loss) bool {
	if old := m.memory.Lost; old != nil && (old.Reason == loss.Reason || loss.Reason != LossForked) {
		return false
	}
	m.memory.Lost, m.proved, r.news = loss, "", true
	r.log.Error("an archive lost records: it is not trusted and gets no puts; what it acknowledged is healed from other copies",
		"archive", m.entry.ID, "reason", loss.Reason, "detail", loss.Detail, "generation", loss.Generation, "wanted", loss.Wanted, "seq", loss.Seq)
	r.note(m, r.now())
	return true
}

// recall gives the members what the memory's file has of them.
func (r *Roster) recall(f memoryFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range f.Archives {
		m := r.members[k.ID]
		if m == nil {
			r.news = true // retired; the file is not rid of it yet
			continue
		}
		if err := k.read(m.entry.Key); err != nil || k.Generation != m.entry.generation() {
			// The end of a crash between a memory and its roster: the sequence
			// numbers and the loss count, the notes are of another key.
			k.Checkpoint, k.CheckpointBoot, k.Proved = "", "", ""
			k.newest, k.proved = tlogx.Checkpoint{}, tlogx.Checkpoint{}
		}
		if accepted := m.entry.generation(); k.Generation > 0 && k.Generation < accepted && k.Lost == nil {
			// A memory from before the acceptance, as of a backup that was made
			// meanwhile, does not know what the acceptance has put in doubt.
			k, r.news = k.replacedBy(k.Generation, accepted, r.now()), true
		}
		m.memory = k
		if k.Lost != nil {
			r.log.Error("an archive has lost records, as was found before", "archive", k.ID, "reason", k.Lost.Reason, "detail", k.Lost.Detail)
		}
	}
}

// SaveMemory makes durable what is remembered.
func (r *Roster) SaveMemory() error { return r.saveMemoryWith() }

// saveMemoryWith is SaveMemory with archives that are not enrolled yet.
func (r *Roster) saveMemoryWith(more ...remembered) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	var f memoryFile
	for _, m := range r.members {
		f.Archives = append(f.Archives, m.memory)
	}
	for _, k := range more {
		if r.members[k.ID] == nil {
			f.Archives = append(f.Archives, k)
		}
	}
	r.news = false
	r.mu.Unlock()
	data, err := f.encode()
	if err == nil {
		err = r.write(MemoryPath(r.path), data)
	}
	if err != nil {
		r.mu.Lock()
		r.news = true
		r.mu.Unlock()
		return fmt.Errorf("bus: the memory of the archives: %w", err)
	}
	return nil
}

// saveNow is SaveMemory for what must not wait. What can not be written is kept
// in this process and tried again every second.
func (r *Roster) saveNow() {
	if err := r.SaveMemory(); err != nil {
		r.metrics.unsaved.Inc()
		if r.failed.now() {
			r.log.Error("cannot write what is remembered of the archives; it is tried again", "err", err)
		}
	}
}

// remember writes the memory while there is news, until the roster is closed.
func (r *Roster) remember() {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.mu.RLock()
			news := r.news
			r.mu.RUnlock()
			if news {
				r.saveNow()
			}
		case <-r.stop:
			return
		}
	}
}
