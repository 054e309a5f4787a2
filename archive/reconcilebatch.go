package archive

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// How patient a reconciliation is with other archives.
const (
	askTries   = 3           // times that an archive is asked before it counts as not there
	askPause   = time.Second // between them, and between questions about a pull under way
	pullsAside = 8           // archives that pull at the same time
	asksAside  = 8           // archives that are asked at the same time
)

// batch is one step of a reconciliation.
type batch struct {
	r   *Reconciler
	all bool

	self     wire.ArchiveID
	want     int              // copies that a record should have; no more than there are archives
	live     []wire.ArchiveID // archives whose copies count, and that answered: this one too
	writable []wire.ArchiveID // those of them that take records

	mu                      sync.Mutex // guards all below
	missing, copied, failed uint64
	last                    error // the last copy that failed
}

// wish is a record that has too few live copies.
type wish struct {
	entry
	holders    []wire.ArchiveID // live copies; this archive first, if it is one
	candidates []wire.ArchiveID // who may still be told to pull, the best first
	need       int              // copies that are to be made
	last       error            // why the last candidate failed
}

// run sees to the records of the batch that have too few live copies.
func (b *batch) run(ctx context.Context, entries []entry) error {
	b.self = b.r.cfg.Node.cfg.ID
	have, err := b.ask(ctx, entries)
	if err != nil {
		return err
	}
	var wishes []*wish
	for i, e := range entries {
		if w := b.wish(e, have[i]); w != nil {
			wishes = append(wishes, w)
		}
	}
	b.missing = uint64(len(wishes))
	for {
		jobs := b.assign(wishes)
		if len(jobs) == 0 {
			break
		}
		slots := make(chan struct{}, pullsAside)
		var wg sync.WaitGroup
		for target, list := range jobs {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				b.fulfil(ctx, target, list)
			})
		}
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, w := range wishes {
		if w.need > 0 {
			b.failed += uint64(w.need)
			b.last = w.reason()
			b.r.log.Warn("a record has too few live copies", "record", w.id, "copies", len(w.holders), "err", b.last)
		}
	}
	return nil
}

func (w *wish) reason() error {
	if w.last != nil {
		return w.last
	}
	return fault.New(fault.Transient, "NO_ARCHIVE", "archive: record %s has %d live copies, and no further archive takes records", w.id, len(w.holders))
}

// ask finds out who is there and which of the records each has. The holders of
// each entry do not include this archive.
func (b *batch) ask(ctx context.Context, entries []entry) (have [][]wire.ArchiveID, err error) {
	fleet := b.r.cfg.Fleet
	counted, err := fleet.Holders(ctx)
	if err != nil {
		b.r.log.Warn("no aggregator says which archives are enrolled; those that are heard count", "err", err)
	}
	ids := make([]wire.RecordID, len(entries))
	for i, e := range entries {
		ids[i] = e.id
	}
	b.want = min(b.r.cfg.Copies, len(counted))
	if !slices.Contains(counted, b.self) {
		b.want = min(b.r.cfg.Copies, len(counted)+1)
	}
	peers := slices.DeleteFunc(fleet.Alive(), func(id wire.ArchiveID) bool { return id == b.self || !slices.Contains(counted, id) })
	answers := b.askAll(ctx, peers, ids)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	have = make([][]wire.ArchiveID, len(entries))
	b.live = []wire.ArchiveID{b.self}
	defer func() {
		if err == nil && !b.all {
			err = b.r.patient(counted, b.live)
		}
	}()
	for p, peer := range peers {
		if answers[p] == nil {
			continue
		}
		b.live = append(b.live, peer)
		for i, has := range answers[p] {
			if has {
				have[i] = append(have[i], peer)
			}
		}
	}
	for _, id := range fleet.Writable() {
		if slices.Contains(b.live, id) && id != b.self {
			b.writable = append(b.writable, id)
		}
	}
	if b.r.cfg.Node.Hello().State == wire.StateUp {
		b.writable = append(b.writable, b.self)
	}
	return have, nil
}

// askAll asks archives which of the records they have, some at the same time. The
// answer of one that does not say is nil.
func (b *batch) askAll(ctx context.Context, peers []wire.ArchiveID, ids []wire.RecordID) [][]bool {
	answers := make([][]bool, len(peers))
	slots := make(chan struct{}, asksAside)
	var wg sync.WaitGroup
	for i, peer := range peers {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			got, err := b.has(ctx, peer, ids)
			switch {
			case err == nil:
				answers[i] = got
			case ctx.Err() == nil:
				b.r.log.Warn("an archive does not say what it has; its copies do not count now", "peer", peer, "err", err)
			}
		})
	}
	wg.Wait()
	return answers
}

// has asks one archive, more than once if need be.
func (b *batch) has(ctx context.Context, peer wire.ArchiveID, ids []wire.RecordID) (got []bool, err error) {
	for try := range askTries {
		if try > 0 && !b.r.pause(ctx, askPause) {
			break
		}
		got, err = b.r.cfg.Fleet.Has(ctx, peer, ids)
		if err == nil && len(got) != len(ids) {
			err = wrongAnswer(peer, "asked for %d records, answered for %d", len(ids), len(got))
		}
		if !fault.Is(err, fault.Transient) {
			break
		}
	}
	return got, err
}

// pause waits, and reports false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// wish returns what is to be done for a record, or nil.
func (b *batch) wish(e entry, others []wire.ArchiveID) *wish {
	w := &wish{entry: e}
	if e.whole {
		w.holders = append(w.holders, b.self)
	}
	w.holders = append(w.holders, others...)
	want := b.want
	if e.control {
		want = len(b.live)
	}
	if w.need = want - len(w.holders); w.need <= 0 {
		return nil
	}
	if !b.all && len(w.holders) > 0 && e.whole {
		if first := b.r.cfg.Fleet.Rank(w.holders, e.key); first[0] != b.self {
			return nil // its own reconciliation sees to it
		}
	}
	for _, id := range b.r.cfg.Fleet.Rank(b.writable, e.key) {
		if !slices.Contains(w.holders, id) {
			w.candidates = append(w.candidates, id)
		}
	}
	if len(w.holders) == 0 {
		w.candidates = nil // nobody could give it
	}
	return w
}

// assign takes the next candidate of every wish that is open, and returns what
// each of them is to pull.
func (b *batch) assign(wishes []*wish) map[wire.ArchiveID][]*wish {
	jobs := map[wire.ArchiveID][]*wish{}
	for _, w := range wishes {
		if w.need > 0 && len(w.candidates) > 0 {
			target := w.candidates[0]
			w.candidates = w.candidates[1:]
			jobs[target] = append(jobs[target], w)
		}
	}
	return jobs
}
