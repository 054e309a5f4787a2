package bus

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// Listen starts to hear hellos on conn. Close ends it.
func (r *Roster) Listen(conn *Conn) error {
	sub, err := conn.subscribe(conn.ctl, wire.SubjectHelloPrefix+"*", "", func(msg *nats.Msg) {
		r.receive(msg.Subject, msg.Data)
	})
	if err != nil {
		return err
	}
	r.conn, r.sub = conn, sub
	r.done.Go(r.watch)
	if err := settle(conn.ctl); err != nil {
		return fmt.Errorf("bus: roster: %w", err)
	}
	return nil
}

// watch logs archives that fall silent, which no message tells.
func (r *Roster) watch() {
	tick := time.NewTicker(HelloInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.tick()
		case <-r.stop:
			return
		}
	}
}

func (r *Roster) tick() {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		r.note(m, now)
	}
}

// note logs a change of an archive's state. mu is held.
func (r *Roster) note(m *member, now time.Time) {
	state := m.state(now)
	if state == m.shown {
		return
	}
	level := slog.LevelInfo
	if state == StateSilent || state == StateQuarantined {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "archive is "+state, "archive", m.entry.ID, "was", m.shown)
	m.shown = state
}

// Close stops listening. The roster's file needs no closing.
func (r *Roster) Close() error {
	if r.sub == nil {
		return nil
	}
	select {
	case <-r.stop:
		return nil
	default:
	}
	close(r.stop)
	r.conn.unsubscribe(r.sub)
	r.done.Wait()
	return nil
}
