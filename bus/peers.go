package bus

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// What an archive, or a program that repairs one, has under way to another.
const (
	MaxAsksInFlight     = 16      // questions to one archive
	MaxAskBytesInFlight = 4 << 20 // of the answers, at most, to one archive

	// DefaultAskTimeout bounds one question to another archive. A thousand
	// records are read for one of them.
	DefaultAskTimeout = 15 * time.Second
)

// PeersConfig configures a view of the other archives.
type PeersConfig struct {
	// Self is the archive that asks, which is not a peer of itself.
	Self wire.ArchiveID
	// Timeout bounds one question; 0 means DefaultAskTimeout.
	Timeout time.Duration
	// Now is the clock by which archives are judged alive; nil is time.Now.
	Now func() time.Time
	// Log gets what no caller is told; nil discards.
	Log *slog.Logger
}

// Peers are the other archives as they are heard and asked over NATS. It serves
// an archive as well as a program that is none, such as a repair: that one calls
// Settle first. Its methods may be called from many goroutines; Close ends it.
type Peers struct {
	conn  *Conn
	cfg   PeersConfig
	log   *slog.Logger
	began time.Time
	stop  func()

	mu      sync.Mutex // guards all below
	heard   map[wire.ArchiveID]*heardPeer
	windows map[wire.ArchiveID]*window
}

var _ archive.Fleet = (*Peers)(nil)

// heardPeer is what is known of another archive from its hellos.
type heardPeer struct {
	hello  wire.Hello // the last one
	at     time.Time
	memory []memory // the newest generation first
}

// NewPeers begins to hear the other archives on conn. When it returns, hellos
// are heard, or will be as soon as there is a connection.
func NewPeers(conn *Conn, cfg PeersConfig) (*Peers, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultAskTimeout)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &Peers{
		conn: conn, cfg: cfg, log: orDiscard(cfg.Log), began: time.Now(),
		heard: map[wire.ArchiveID]*heardPeer{}, windows: map[wire.ArchiveID]*window{},
	}
	var err error
	p.stop, err = conn.listen(wire.SubjectHelloPrefix+"*", "", func(msg *nats.Msg) {
		if hello, ok := parseHello(msg.Subject, msg.Data); ok {
			p.hear(hello)
		}
	})
	return p, err
}

// Close ends the hearing. Questions end with their own contexts.
func (p *Peers) Close() { p.stop() }

// Settle returns when every live archive has had the time to be heard.
func (p *Peers) Settle(ctx context.Context) error {
	left := HelloTimeout - time.Since(p.began)
	if left <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(left):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hear takes a hello.
func (p *Peers) hear(hello wire.Hello) {
	if hello.ArchiveID == p.cfg.Self {
		return
	}
	news := p.verified(hello) // before the lock: signatures take time
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.heard[hello.ArchiveID]
	if h == nil {
		if len(p.heard) >= MaxEnrolled {
			return
		}
		h = &heardPeer{}
		p.heard[hello.ArchiveID] = h
	}
	h.hello, h.at = hello, p.cfg.Now()
	h.remember(hello, news, h.at)
}

// Alive returns the other archives that were heard lately, whatever their state,
// sorted.
func (p *Peers) Alive() []wire.ArchiveID {
	return p.fresh(func(wire.Hello) bool { return true })
}

// Writable returns those of Alive that take records now, sorted.
func (p *Peers) Writable() []wire.ArchiveID {
	return p.fresh(func(h wire.Hello) bool { return h.State == wire.StateUp })
}

func (p *Peers) fresh(want func(wire.Hello) bool) []wire.ArchiveID {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := []wire.ArchiveID{}
	for id, h := range p.heard {
		if now.Sub(h.at) <= HelloTimeout && want(h.hello) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Rank orders archives by rendezvous hashing of key, as a Roster does.
func (p *Peers) Rank(ids []wire.ArchiveID, key [32]byte) []wire.ArchiveID { return rank(ids, key) }

// Holders asks an aggregator who is enrolled, and returns those whose copies
// count: all but the ones in whose name another process speaks or a generation
// that was not accepted. When no aggregator answers it returns all that were ever
// heard, this archive included, and an error of kind fault.Transient.
func (p *Peers) Holders(ctx context.Context) ([]wire.ArchiveID, error) {
	roster, err := p.Roster(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		ids := slices.Collect(maps.Keys(p.heard))
		if p.cfg.Self != "" {
			ids = append(ids, p.cfg.Self)
		}
		slices.Sort(ids)
		return ids, err
	}
	ids := []wire.ArchiveID{}
	for _, m := range roster.Archives {
		h := p.heard[m.ID]
		switch {
		case m.State == StateFenced, m.State == StateUnaccepted, m.State == StateQuarantined:
		case h != nil && h.hello.Key != m.Key:
		default:
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Roll asks an aggregator who is enrolled, and returns which of the other archives
// are Alive, and which of the enrolled ones can not be said to be heard: those that
// are silent, or in whose name only another process speaks, or a generation that
// was not accepted, or two at once. When no aggregator answers, or one that was set
// up anew and knows nobody, heard is right all the same.
func (p *Peers) Roll(ctx context.Context) (heard, unheard []wire.ArchiveID, err error) {
	roster, err := p.Roster(ctx)
	if err == nil && len(roster.Archives) == 0 {
		err = fault.New(fault.Transient, CodeNoArchive, "bus: the aggregator that answers has no archive enrolled")
	}
	heard, unheard = p.Alive(), []wire.ArchiveID{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range roster.Archives {
		known := slices.Contains(heard, m.ID) && p.heard[m.ID].hello.Key == m.Key
		if m.ID != p.cfg.Self && (!known || m.State == StateFenced || m.State == StateUnaccepted || m.State == StateQuarantined) {
			unheard = append(unheard, m.ID)
		}
	}
	slices.Sort(unheard)
	return heard, unheard, err
}

// Roster asks an aggregator who is enrolled.
func (p *Peers) Roster(ctx context.Context) (wire.RosterReply, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	const from = "an aggregator"
	reply, err := p.conn.ctl.RequestMsgWithContext(ctx, &nats.Msg{Subject: wire.SubjectRosterGet})
	if err != nil {
		return wire.RosterReply{}, sendFault(err, from)
	}
	if err := replyFault(reply, from); err != nil {
		return wire.RosterReply{}, err
	}
	roster, err := wire.Decode[wire.RosterReply](reply.Data)
	if err != nil {
		return wire.RosterReply{}, fault.New(fault.Transient, CodeBadAck, "%s: unreadable roster: %w", from, err)
	}
	return roster, nil
}
