package bus

import (
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// SetState changes the state of the archive and announces it.
func (s *ArchiveService) SetState(state string) {
	s.node.SetState(state)
	s.Announce()
}

// Announce sends a hello soon, beside those at every HelloInterval.
func (s *ArchiveService) Announce() {
	select {
	case s.nudge <- struct{}{}:
	default: // one is due already
	}
}

// sayHellos sends hellos until stop is closed.
func (s *ArchiveService) sayHellos(stop <-chan struct{}) {
	tick := time.NewTicker(HelloInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.nudge:
		case <-stop:
			return
		}
		s.sayHello()
	}
}

// sayHello sends a hello. Without a connection it is not sent; the next one is,
// as soon as there is one.
func (s *ArchiveService) sayHello() {
	s.say.Lock()
	defer s.say.Unlock()
	hello := s.node.Hello()
	hello.Proto = helloProto
	data, err := wire.Encode(hello)
	if err == nil {
		err = s.conn.ctl.Publish(wire.SubjectHelloPrefix+string(s.id), data)
	}
	s.sent(err)
}

// onHello remembers the other archives, and notices one that claims this id.
func (s *ArchiveService) onHello(msg *nats.Msg) {
	hello, ok := parseHello(msg.Subject, msg.Data)
	if !ok {
		return
	}
	if hello.ArchiveID != s.id {
		s.others.hear(hello)
		return
	}
	if mine := s.node.Hello(); hello.Boot != mine.Boot {
		s.metrics.twins.Inc()
		if s.failed.now() {
			s.log.Error("another process says hello with this archive's id; stop one of them", "boot", hello.Boot, "mine", mine.Boot)
		}
	}
}

// owns reports whether this archive is among those that keep a record which
// named no archive: the first copies of its own view of who is alive.
func (s *ArchiveService) owns(key [32]byte) bool {
	alive := s.others.alive()
	if s.node.Hello().State == wire.StateUp {
		alive = append(alive, s.id)
	}
	order := rank(alive, key)
	return slices.Contains(order[:min(s.copies, len(order))], s.id)
}

// presence is an archive's view of the other archives.
type presence struct {
	now func() time.Time

	mu    sync.Mutex // guards heard
	heard map[wire.ArchiveID]time.Time
}

func newPresence(now func() time.Time) *presence {
	if now == nil {
		now = time.Now
	}
	return &presence{now: now, heard: map[wire.ArchiveID]time.Time{}}
}

// hear takes a hello of another archive. One that takes no puts is as good as
// dead here.
func (p *presence) hear(hello wire.Hello) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hello.State != wire.StateUp {
		delete(p.heard, hello.ArchiveID)
		return
	}
	if _, known := p.heard[hello.ArchiveID]; known || len(p.heard) < MaxEnrolled {
		p.heard[hello.ArchiveID] = p.now()
	}
}

// alive returns the others that were heard lately, and forgets the rest.
func (p *presence) alive() []wire.ArchiveID {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]wire.ArchiveID, 0, len(p.heard)+1)
	for id, at := range p.heard {
		if now.Sub(at) > HelloTimeout {
			delete(p.heard, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
