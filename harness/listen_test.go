package main

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// listener hears verae.zapier.jobs.events as middleware does, from outside the
// project, and keeps what it is told.
type listener struct {
	t    *testing.T
	conn *nats.Conn

	mu     sync.Mutex // guards the fields below
	bodies map[wire.EventID][]byte
	ends   map[wire.SubmissionID]wire.Event // the event that told of a submission's end
	heard  int
	over   bool // the test has ended
}

// listen hears events until the test ends, also after the bus was away.
func listen(t *testing.T, w *world.World) *listener {
	t.Helper()
	l := &listener{t: t, bodies: map[wire.EventID][]byte{}, ends: map[wire.SubmissionID]wire.Event{}}
	nc, err := nats.Connect(w.Ready().NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
	})
	if _, err := nc.Subscribe("verae.zapier.jobs.events", func(m *nats.Msg) { l.hear(m.Data) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l.conn = nc
	return l
}

// hear insists that an event is told in the same bytes whenever it is told, and
// that a submission ends once.
func (l *listener) hear(body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	event, err := wire.Decode[wire.Event](body)
	if err != nil {
		l.t.Errorf("an event can not be read: %v: %s", err, body)
		return
	}
	l.heard++
	if before, told := l.bodies[event.ID]; told && !bytes.Equal(before, body) {
		l.t.Errorf("event %s was told with two bodies:\n%s\n%s", event.ID, before, body)
	}
	l.bodies[event.ID] = bytes.Clone(body)
	if event.Event != wire.EventCompleted && event.Event != wire.EventFailed {
		return
	}
	if before, ended := l.ends[event.SubmissionID]; ended && before.ID != event.ID {
		l.t.Errorf("submission %s ended twice: %s %s, then %s %s", event.SubmissionID, before.Event, before.ID, event.Event, event.ID)
	}
	l.ends[event.SubmissionID] = event
}

// stop hears what is under way, and checks that anything was told, and nothing
// else of what was accepted than that it is completed.
func (l *listener) stop(all [][]acceptedPart) {
	l.t.Helper()
	if err := l.conn.Flush(); err != nil {
		l.t.Errorf("the listener is not connected: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) == 0 {
		l.t.Error("no event was heard: the test shows nothing of them")
	}
	told := 0
	for _, parts := range all {
		for _, p := range parts {
			if event, ok := l.ends[p.accepted.SubmissionID]; ok {
				told++
				if event.Event != wire.EventCompleted || event.SHA256 != p.digest || event.TenantID != p.tenant {
					l.t.Errorf("submission %s was accepted, its event is %+v", p.accepted.SubmissionID, event)
				}
			}
		}
	}
	l.t.Logf("%d announcements of %d events were heard, the end of %d accepted submissions among them", l.heard, len(l.bodies), told)
}
