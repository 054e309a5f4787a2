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
	if r.prove == nil {
		r.prove = conn.proof
	}
	r.done.Go(r.watch)
	if r.borrows == nil {
		r.done.Go(r.remember)
		r.done.Go(r.proving)
	}
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
	r.readmit(now)
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
	switch state {
	case StateSilent, StateQuarantined, StateLost, StateFenced, StateUnaccepted:
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "archive is "+state, "archive", m.entry.ID, "was", m.shown)
	m.shown = state
}

func (r *Roster) closed() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// Close stops listening and makes durable what is remembered.
func (r *Roster) Close() error {
	if r.closed() {
		return nil
	}
	close(r.stop)
	if r.sub != nil {
		r.conn.unsubscribe(r.sub)
	}
	r.done.Wait()
	r.hearing.Lock() // the last hello has been heard
	defer r.hearing.Unlock()
	r.saving.Lock() // and what it showed is written, or news still
	r.mu.RLock()
	news := r.news
	r.mu.RUnlock()
	r.saving.Unlock()
	if r.borrows != nil {
		return nil
	}
	r.forgetLeases()
	if !news {
		return nil
	}
	return r.SaveMemory()
}
