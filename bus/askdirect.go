package bus

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// headerSubject is where a server's word that nobody listens names the subject.
// Older servers do not say it.
const headerSubject = "Nats-Subject"

// A Ranker may also know of which archives nothing was heard lately: see
// Roster.unheard.
type listener interface {
	unheard(ids []wire.ArchiveID) []wire.ArchiveID
}

// unheard returns those of ids that are enrolled and have said no hello for
// HelloTimeout, or none to this process.
func (r *Roster) unheard(ids []wire.ArchiveID) (silent []wire.ArchiveID) {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, id := range ids {
		if m := r.members[id]; m != nil && !m.fresh(now) {
			silent = append(silent, id)
		}
	}
	return silent
}

// send publishes the query to everybody, or to the named one by one, but for those
// that are asked by probe.
func (k *ask) send(named, away []wire.ArchiveID) error {
	if !k.alone {
		return k.a.conn.ctl.PublishMsg(k.msg)
	}
	header := k.directHeader()
	for _, id := range named {
		if slices.Contains(away, id) {
			continue
		}
		msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + string(id), Reply: k.msg.Reply, Data: k.msg.Data, Header: header}
		if err := k.a.conn.ctl.PublishMsg(msg); err != nil {
			return err
		}
	}
	return nil
}

// directHeader is the header of the query as it is put to one archive.
func (k *ask) directHeader() nats.Header {
	header := nats.Header{wire.HeaderOp: {wire.OpDirect}}
	if left := k.msg.Header[wire.HeaderDeadline]; left != nil {
		header[wire.HeaderDeadline] = left
	}
	return header
}

// nobody takes a message that says that nobody listens: to queries, or to one
// archive.
func (k *ask) nobody(msg *nats.Msg) {
	id, direct := strings.CutPrefix(msg.Header.Get(headerSubject), wire.SubjectCtlPrefix)
	k.mu.Lock()
	switch {
	case direct && k.named[id] != nil:
		k.miss(wire.ArchiveID(id))
	case !direct && !k.alone:
		k.doubt = true
	}
	k.mu.Unlock()
	k.kick()
}

// miss has a named archive probed, once. mu is held.
func (k *ask) miss(id wire.ArchiveID) {
	if k.seen[id] {
		return
	}
	if k.seen == nil {
		k.seen = map[wire.ArchiveID]bool{}
	}
	k.seen[id] = true
	k.away = append(k.away, id)
}

// probe puts the query to one archive, with an answer to a subject that nobody else
// knows: whoever heard a query can say that nobody listens, and must not take an
// archive out of it. One that is there answers as it answers any query.
func (k *ask) probe(ctx context.Context, id wire.ArchiveID) {
	msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + string(id), Data: k.msg.Data, Header: k.directHeader()}
	_, err := k.a.conn.ctl.RequestMsgWithContext(ctx, msg)
	if errors.Is(err, nats.ErrNoResponders) {
		k.a.metrics.gone.Inc()
		k.mu.Lock()
		k.gone = append(k.gone, id)
		k.mu.Unlock()
		k.kick()
	}
}
