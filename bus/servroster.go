package bus

import (
	"bytes"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// ServeRoster answers those who ask who the archives are, and what is remembered
// of them. stop ends it. When it returns, questions are heard.
func (r *Roster) ServeRoster(conn *Conn) (stop func(), err error) {
	return conn.listen(wire.SubjectRosterGet, "", func(msg *nats.Msg) {
		if msg.Reply == "" {
			return
		}
		if err := r.tell(msg); err != nil && r.failed.now() {
			r.log.Warn("could not tell who the archives are", "err", err)
		}
	})
}

// tell answers one question.
func (r *Roster) tell(msg *nats.Msg) error {
	var q wire.RosterRequest
	if len(bytes.TrimSpace(msg.Data)) > 0 {
		var err error
		if q, err = wire.Decode[wire.RosterRequest](msg.Data); err == nil {
			err = q.Check()
		}
		if err != nil {
			return respondProblem(msg, ProblemOf(fault.New(fault.Invalid, CodeMalformed, "bus: roster: %w", err)))
		}
	}
	lease, err := r.lend(q)
	if err != nil {
		return respondProblem(msg, ProblemOf(err))
	}
	reply := r.reply()
	if reply.Version == q.Version {
		reply.LeaseMs = lease.Milliseconds()
	}
	data, err := wire.Encode(reply)
	if err != nil {
		return err
	}
	return msg.Respond(data)
}

// reply is the roster as it is now.
func (r *Roster) reply() wire.RosterReply {
	out := wire.RosterReply{Version: r.Version(), Archives: []wire.RosterMember{}}
	for _, m := range r.Snapshot() {
		row := wire.RosterMember{
			ID: m.ID, Key: m.Key, Generation: m.Accepted, Seq: m.Remembered, Checkpoint: m.Checkpoint, State: m.State, Boot: m.Boot,
		}
		if m.Lost != nil && m.Lost.Generation < m.Accepted {
			row.Before = m.Lost.Wanted
		}
		out.Archives = append(out.Archives, row)
	}
	return out
}
