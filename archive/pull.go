package archive

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of pulls.
const (
	maxPulls     = 4096        // under way, waiting, or ended and not asked for yet
	pullSlots    = 16          // records being fetched or stored at a time
	fileSlots    = 4           // files being fetched at a time
	keptOutcomes = time.Minute // how long the end of a pull is kept for who asks again
)

// PullFiles is what a pull needs of the store of files; *blob.Store has it.
type PullFiles interface {
	Open(id string, profile blob.Profile) error
	Write(id string, offset int64, data []byte) (received int64, err error)
	Commit(ctx context.Context, id string, size int64, sha256 [32]byte, cid string) (duplicate bool, err error)
	Abort(id string) error
}

// Pulled is what became of one record.
type Pulled struct {
	ID        wire.RecordID
	Seq       uint64 // where it rests now; 0 with an error
	Duplicate bool   // it was here before
	Err       error
}

// Puller fetches records, and the files they name, from other archives. The
// bytes of a file come first, through the same upload and commit as any other,
// so that its digest and CID are computed here; then the record, whose id is
// computed here too, is put as any other. It is harmless to fetch what is here,
// and what was cut short goes on where it was.
type Puller struct {
	node    *Node
	files   PullFiles
	peers   Peers
	log     *slog.Logger
	metrics pullMetrics

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	slots chan struct{}
	bulky chan struct{}
	each  singleflight.Group // one fetch of a file at a time

	mu      sync.Mutex // guards all below
	closed  bool
	pulls   map[wire.RecordID]*pull
	running sync.WaitGroup
}

// pull is one record on its way here.
type pull struct {
	done  chan struct{} // closed when out is set
	out   Pulled
	ended time.Time
}

// NewPuller returns a puller that stores in node and files. Close ends it,
// before node and files are closed. A nil log discards.
func NewPuller(node *Node, files PullFiles, peers Peers, log *slog.Logger) *Puller {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Puller{
		node: node, files: files, peers: peers, log: log.With("archive", string(node.cfg.ID)),
		metrics: newPullMetrics(node.cfg.ID), ctx: ctx, stop: stop,
		slots: make(chan struct{}, pullSlots), bulky: make(chan struct{}, fileSlots),
		pulls: map[wire.RecordID]*pull{},
	}
}

// Pull fetches records from the archives of from, tried in that order. It
// returns when all have ended or ctx has; those that have not go on, and are
// answered as fault.Transient with code CodePullPending: ask again. A record
// that somebody else is pulling is waited for.
//
// Every other error tells why the record is not here: fault.Transient if another
// try, or another archive, may help.
func (p *Puller) Pull(ctx context.Context, ids []wire.RecordID, from []wire.ArchiveID) []Pulled {
	out, pulls := make([]Pulled, len(ids)), make([]*pull, len(ids))
	for i, id := range ids {
		var err error
		if pulls[i], err = p.start(id, from); err != nil {
			out[i] = Pulled{ID: id, Err: err}
		}
	}
	for i, one := range pulls {
		if one == nil {
			continue
		}
		select {
		case <-one.done:
			out[i] = p.collect(ids[i], one)
			continue
		default:
		}
		select {
		case <-one.done:
			out[i] = p.collect(ids[i], one)
		case <-ctx.Done():
			out[i] = Pulled{ID: ids[i], Err: fault.New(fault.Transient, CodePullPending, "archive: record %s is still being fetched; ask again", ids[i]).After(time.Second)}
		}
	}
	return out
}

// start returns the pull of a record: one that there is, or a new one.
func (p *Puller) start(id wire.RecordID, from []wire.ArchiveID) (*pull, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fault.New(fault.Transient, "CLOSED", "archive: it is shutting down and fetches no more records")
	}
	p.forget(p.node.cfg.Now())
	if one := p.pulls[id]; one != nil {
		return one, nil
	}
	if len(p.pulls) >= maxPulls {
		return nil, fault.New(fault.Transient, "BUSY", "archive: %d records are being fetched, as many as may be at a time", maxPulls).After(time.Second)
	}
	one := &pull{done: make(chan struct{})}
	p.pulls[id] = one
	p.running.Go(func() {
		out := p.pull(p.ctx, id, from)
		p.metrics.pull(out)
		p.mu.Lock()
		one.out, one.ended = out, p.node.cfg.Now()
		p.mu.Unlock()
		close(one.done)
	})
	return one, nil
}

// forget drops outcomes that nobody asked for in time. mu is held.
func (p *Puller) forget(now time.Time) {
	if len(p.pulls) < maxPulls/2 {
		return
	}
	for id, one := range p.pulls {
		if !one.ended.IsZero() && now.Sub(one.ended) > keptOutcomes {
			delete(p.pulls, id)
		}
	}
}

// collect returns the outcome of a pull that has ended; the next who asks for
// the record starts a new one.
func (p *Puller) collect(id wire.RecordID, one *pull) Pulled {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulls[id] == one {
		delete(p.pulls, id)
	}
	return one.out
}

// Close gives up what is under way and waits for its end. Files that were being
// fetched stay as open uploads until the store sweeps them.
func (p *Puller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.running.Wait()
}

// pull brings one record here. While its file is fetched, which may take long, it
// takes no slot from others; it is small then, for it has no body.
func (p *Puller) pull(ctx context.Context, id wire.RecordID, from []wire.ArchiveID) (out Pulled) {
	out.ID = id
	var rec wire.PutRecord
	out.Err = p.inSlot(ctx, func() (err error) {
		var here bool
		if rec, here, err = p.local(ctx, id); err == nil && !here {
			if err = p.node.health.accepting(); err == nil { // else all would be fetched for nothing
				rec, err = p.record(ctx, id, from)
			}
		}
		if err == nil && rec.File == nil {
			err = p.put(ctx, rec, &out)
		}
		return err
	})
	if out.Err != nil || rec.File == nil {
		return out
	}
	if out.Err = p.file(ctx, rec.File, from); out.Err == nil {
		p.node.regainedFile(ctx, rec.File.SHA256)
		out.Err = p.inSlot(ctx, func() error { return p.put(ctx, rec, &out) })
	}
	return out
}

// inSlot calls f when there is room for its memory.
func (p *Puller) inSlot(ctx context.Context, f func() error) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
		return f()
	case <-ctx.Done():
		return fault.Wrap(fault.Transient, ctx.Err())
	}
}

// put stores a record.
func (p *Puller) put(ctx context.Context, rec wire.PutRecord, out *Pulled) error {
	ack, err := p.node.Put(ctx, wire.Put{Record: rec})
	out.Seq, out.Duplicate = ack.Seq, ack.Duplicate
	return err
}
