package bus

import (
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// rosterLease is how long a roster that was asked for may be relied upon.
const rosterLease = HelloTimeout

// ServeRoster answers those who ask who the archives are, and what is remembered
// of them. stop ends it. When it returns, questions are heard.
func (r *Roster) ServeRoster(conn *Conn) (stop func(), err error) {
	return conn.listen(wire.SubjectRosterGet, "", func(msg *nats.Msg) {
		if msg.Reply == "" {
			return
		}
		data, err := wire.Encode(r.reply())
		if err == nil {
			err = msg.Respond(data)
		}
		if err != nil && r.failed.now() {
			r.log.Warn("could not tell who the archives are", "err", err)
		}
	})
}

// reply is the roster as it is now.
func (r *Roster) reply() wire.RosterReply {
	out := wire.RosterReply{Version: r.Version(), Archives: []wire.RosterMember{}, LeaseMs: rosterLease.Milliseconds()}
	for _, m := range r.Snapshot() {
		row := wire.RosterMember{
			ID: m.ID, Key: m.Key, Generation: m.Accepted, Seq: m.Remembered, Checkpoint: m.Checkpoint, State: m.State,
		}
		if m.Lost != nil && m.Lost.Generation < m.Accepted {
			row.Before = m.Lost.Wanted
		}
		out.Archives = append(out.Archives, row)
	}
	return out
}
