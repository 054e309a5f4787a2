package bus

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// memory is the most that was heard of one generation of another archive's log.
type memory struct {
	key        string
	generation int
	seq        uint64
	checkpoint string
	size       int64 // leaves that the checkpoint covers
	at         time.Time
}

// about reports whether the memory is of the log that a hello tells of. A key of
// its own has a memory of its own: who speaks in another's name replaces nothing.
func (m *memory) about(hello wire.Hello) bool {
	return m.key == hello.Key && m.generation == hello.Generation
}

// A news is a checkpoint that is signed by the key of its hello.
type news struct {
	checkpoint string
	size       int64
}

// verified returns the checkpoint of a hello if it is one, and not known yet.
func (p *Peers) verified(hello wire.Hello) news {
	if hello.Checkpoint == "" {
		return news{}
	}
	p.mu.Lock()
	if h := p.heard[hello.ArchiveID]; h != nil {
		for _, m := range h.memory {
			if m.about(hello) && m.checkpoint == hello.Checkpoint {
				p.mu.Unlock()
				return news{}
			}
		}
	}
	p.mu.Unlock()
	c, err := openNote(hello.Checkpoint, hello.ArchiveID, hello.Generation, hello.Key)
	if err != nil {
		return news{}
	}
	return news{hello.Checkpoint, c.Size}
}

// remember keeps the most that was heard of each log.
func (h *heardPeer) remember(hello wire.Hello, n news, now time.Time) {
	i := slices.IndexFunc(h.memory, func(m memory) bool { return m.about(hello) })
	if i < 0 {
		h.memory = append(h.memory, memory{key: hello.Key, generation: hello.Generation})
		slices.SortStableFunc(h.memory, func(a, b memory) int { return cmp.Compare(b.generation, a.generation) })
		h.memory = h.memory[:min(len(h.memory), wire.MaxGenerations)]
		if i = slices.IndexFunc(h.memory, func(m memory) bool { return m.about(hello) }); i < 0 {
			return
		}
	}
	m := &h.memory[i]
	if hello.Seq >= m.seq {
		m.seq, m.at = hello.Seq, now
	}
	if n.checkpoint != "" && n.size >= m.size {
		m.checkpoint, m.size = n.checkpoint, n.size
	}
}

// memoryOf returns what was heard of an archive, the newest generation first.
func (p *Peers) memoryOf(id wire.ArchiveID) []wire.Remembered {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []wire.Remembered{}
	if h := p.heard[id]; h != nil {
		for _, m := range h.memory {
			out = append(out, wire.Remembered{
				By: p.cfg.Self, ArchiveID: id, Key: m.key, Generation: m.generation, Seq: m.seq,
				Checkpoint: m.checkpoint, HeardAt: wire.At(m.at),
			})
		}
	}
	return out
}

// byAggregator is in whose name the memory of an aggregator is told.
const byAggregator wire.ArchiveID = "aggregator"

// Remembered asks all live peers, and an aggregator, what they have heard an
// archive say of itself. It fails only when there are peers and nobody answered.
func (p *Peers) Remembered(ctx context.Context, id wire.ArchiveID) ([]wire.Remembered, error) {
	peers := slices.DeleteFunc(p.Alive(), func(peer wire.ArchiveID) bool { return peer == id })
	answers, errs := make([][]wire.Remembered, len(peers)+1), make([]error, len(peers)+1)
	var wg sync.WaitGroup
	for i, peer := range peers {
		wg.Go(func() { answers[i], errs[i] = p.rememberedBy(ctx, peer, id) })
	}
	wg.Go(func() { answers[len(peers)], errs[len(peers)] = p.rememberedByRoster(ctx, id) })
	wg.Wait()
	for i, peer := range peers {
		if errs[i] != nil {
			p.log.Warn("an archive did not say what it remembers", "peer", peer, "of", id, "err", errs[i])
		}
	}
	if err := errs[len(peers)]; err != nil {
		p.log.Warn("no aggregator says what it remembers; archives know only what they heard since they started", "of", id, "err", err)
	}
	if len(peers) > 0 && !slices.Contains(errs, nil) {
		return nil, fault.New(fault.Transient, CodeTimeout, "bus: none of %d archives said what it remembers of %s, nor did an aggregator: %w", len(peers), id, errs[0])
	}
	return slices.Concat(answers...), nil
}

// rememberedByRoster returns what an aggregator has on disk of an archive.
func (p *Peers) rememberedByRoster(ctx context.Context, id wire.ArchiveID) (list []wire.Remembered, err error) {
	roster, err := p.Roster(ctx)
	for _, m := range roster.Archives {
		if m.ID == id {
			list = append(list, RememberedOf(m)...)
		}
	}
	return list, err
}

// RememberedOf returns what an aggregator remembers of one archive: of the
// generation that it accepted and, if a restored one was accepted whose numbers
// nobody has heard yet, of those before.
func RememberedOf(m wire.RosterMember) []wire.Remembered {
	list := []wire.Remembered{{By: byAggregator, ArchiveID: m.ID, Key: m.Key, Generation: m.Generation, Seq: m.Seq, Checkpoint: m.Checkpoint}}
	if m.Before > 0 && m.Generation > 1 {
		list = append(list, wire.Remembered{By: byAggregator, ArchiveID: m.ID, Generation: m.Generation - 1, Seq: m.Before})
	}
	return list
}

func (p *Peers) rememberedBy(ctx context.Context, peer, id wire.ArchiveID) ([]wire.Remembered, error) {
	answer, err := question[wire.SyncMemory](ctx, p, peer, wire.SubjectSyncPrefix, wire.OpRemembered, wire.SyncRemembered{ArchiveID: id}, 0)
	if err != nil {
		return nil, err
	}
	if len(answer.Remembered) > wire.MaxGenerations {
		return nil, wrong(peer, "it remembers %d generations", len(answer.Remembered))
	}
	for _, m := range answer.Remembered {
		if m.By != peer || m.ArchiveID != id {
			return nil, wrong(peer, "asked what it remembers of %s, it tells what %s does of %s", id, m.By, m.ArchiveID)
		}
	}
	return answer.Remembered, nil
}
