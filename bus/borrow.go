package bus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// borrowed is what a roster knows that is another aggregator's: it enrols nobody
// and remembers nothing by itself.
type borrowed struct {
	conn   *Conn
	holder string
	until  time.Duration // when its lease ends; the roster's mu guards it
}

// borrowShare is how much of a lease is relied on, in percent, as with mirrors.
const borrowShare = 85

// BorrowRoster returns the roster of the aggregator that enrols, for another one
// which only looks up. It hears hellos by itself, and takes from the other who is
// enrolled, which process of each is believed, and who lost records. holder names
// this process, with a random part behind it. Close gives the lease back.
//
// While [Roster.Current] says no, archives may have records of which this roster
// has not heard.
func BorrowRoster(conn *Conn, holder string, cfg RosterConfig) (*Roster, error) {
	cfg.Path, cfg.Open, cfg.Keys, cfg.write = "", false, nil, func(string, []byte) error { return nil }
	r := newRoster(cfg)
	r.borrows = &borrowed{conn: conn, holder: ownName(holder)}
	if err := r.Listen(conn); err != nil {
		return nil, err
	}
	r.done.Go(r.borrow)
	return r, nil
}

// Current reports whether the roster has every archive that may have been given a
// record. That of the aggregator which enrols always has.
func (r *Roster) Current() bool {
	if r.borrows == nil {
		return true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.leases.clock() < r.borrows.until
}

// borrow renews the lease until the roster is closed.
func (r *Roster) borrow() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.done.Go(func() {
		select {
		case <-r.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	tick := time.NewTicker(rosterLease / 3)
	defer tick.Stop()
	for {
		if err := r.borrowOnce(ctx); err != nil && ctx.Err() == nil && r.failed.now() {
			r.log.Warn("the roster can not be renewed; no answer is complete until it is", "err", err)
		}
		select {
		case <-tick.C:
		case <-r.stop:
			r.giveBack()
			return
		}
	}
}

// borrowOnce asks until it has the newest version, and a lease of that.
func (r *Roster) borrowOnce(ctx context.Context) error {
	for range 3 {
		version, sent := r.Version(), r.leases.clock()
		reply, err := r.askRoster(ctx, wire.RosterRequest{Holder: r.borrows.holder, Version: version})
		if err != nil {
			return err
		}
		if r.believe(reply, sent) {
			return nil
		}
	}
	return fault.New(fault.Transient, "", "bus: the roster changes faster than it is read")
}

// believe takes what was told of the archives, and the lease that came with it. It
// reports whether there is one.
func (r *Roster) believe(reply wire.RosterReply, sent time.Duration) (lent bool) {
	r.hearing.Lock()
	defer r.hearing.Unlock()
	file := rosterFile{Version: reply.Version}
	for _, row := range reply.Archives {
		file.Archives = append(file.Archives, rosterEntry{ID: row.ID, Key: row.Key, Generation: row.Generation})
	}
	r.adopt(file)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, row := range reply.Archives {
		m := r.members[row.ID]
		m.lent, m.memory.Lost = row.Boot, nil
		if row.State == StateLost {
			m.memory.Lost = &Loss{Reason: LossBehind, Generation: row.Generation, Wanted: row.Seq, At: wire.At(now), Detail: "told by the aggregator that enrols"}
		}
		r.note(m, now)
	}
	if reply.LeaseMs > 0 {
		r.borrows.until = sent + time.Duration(reply.LeaseMs)*time.Millisecond*borrowShare/100
	}
	return reply.LeaseMs > 0
}

// giveBack ends the lease: nobody has to wait for it.
func (r *Roster) giveBack() {
	r.mu.Lock()
	r.borrows.until = 0
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), rosterLease/3)
	defer cancel()
	if _, err := r.askRoster(ctx, wire.RosterRequest{Holder: r.borrows.holder, Release: true}); err != nil {
		r.log.Debug("the lease of the roster runs out by itself", "err", err)
	}
}

func (r *Roster) askRoster(ctx context.Context, q wire.RosterRequest) (wire.RosterReply, error) {
	data, err := wire.Encode(q)
	if err != nil {
		return wire.RosterReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rosterLease)
	defer cancel()
	msg, err := r.borrows.conn.ctl.RequestMsgWithContext(ctx, &nats.Msg{Subject: wire.SubjectRosterGet, Data: data})
	if err != nil {
		return wire.RosterReply{}, sendFault(err, "bus: roster")
	}
	if err := replyFault(msg, "the aggregator that enrols"); err != nil {
		return wire.RosterReply{}, err
	}
	reply, err := wire.Decode[wire.RosterReply](msg.Data)
	if err != nil {
		return wire.RosterReply{}, fault.New(fault.Transient, CodeBadAck, "bus: unreadable roster: %w", err)
	}
	return reply, nil
}
