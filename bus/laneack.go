package bus

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// watch looks after an archive that owes an acknowledgement. An empty fragment
// of what it has already is acknowledged when it comes to it; if its process is
// gone, the server says so at once.
func (l *lane) watch(u *upload) error {
	if l.away.lost || !l.away.since.IsZero() {
		if err := l.givenUp(u); err != nil {
			return err
		}
	}
	if l.away.lost {
		return nil
	}
	if !l.owes() {
		return l.keep(u)
	}
	switch idle := time.Since(l.progress); {
	case idle >= l.a.cfg.StallTimeout:
		return fault.New(fault.Transient, CodeTimeout, "archive %s: no acknowledgement of a fragment in %v", l.id, l.a.cfg.StallTimeout)
	case idle >= l.probed:
		l.probed *= 2
		return l.publish(u, l.received, nil, l.asked > l.durable)
	}
	return nil
}

// keep has the archive hear of an upload that waits for another archive: it removes
// one of which it hears nothing for UploadIdle.
func (l *lane) keep(u *upload) error {
	quiet := l.a.cfg.UploadIdle / 4
	if time.Since(l.progress) < quiet || time.Since(l.kept) < quiet || !u.waits() {
		return nil
	}
	l.kept = time.Now()
	return l.publish(u, l.received, nil, false)
}

// answered takes an answer to a fragment, or to the question whether the upload
// goes on. One to what was sent before the archive went away says nothing now: a
// process that is new refuses every fragment that was under way.
func (l *lane) answered(u *upload, msg *nats.Msg) error {
	if msg.Subject != l.a.acks.prefix+l.token || l.away.lost && !l.away.asked {
		return nil
	}
	from := "archive " + string(l.id)
	if unheard(msg) {
		return sendFault(nats.ErrNoResponders, from)
	}
	if err := replyFault(msg, from); err != nil {
		return err
	}
	ack, err := decodeAck(l.id, msg)
	if err != nil {
		return err
	}
	if l.away.lost {
		return l.resumed(u, ack)
	}
	return l.acknowledged(u, ack)
}

// acknowledged takes the answer to a fragment.
func (l *lane) acknowledged(u *upload, ack wire.BlobAck) error {
	if n := len(l.sent); ack.Received > l.received && (n == 0 || ack.Received > l.sent[n-1].end) || ack.Durable > max(l.received, ack.Received) {
		return fault.New(fault.Internal, CodeBadAck, "archive %s: acknowledged %d bytes, %d of them on disk, more than were sent", l.id, ack.Received, ack.Durable)
	}
	l.probed = firstProbe
	if ack.Received > l.received || ack.Durable > l.durable {
		l.advance(u)
	}
	l.received, l.allowed = max(l.received, ack.Received), max(0, ack.Credit)
	for len(l.sent) > 0 && l.sent[0].end <= l.received {
		l.a.peer(l.id).blobs.release(l.sent[0].credit)
		l.sent = l.sent[1:]
	}
	l.forget(u, ack.Durable)
	return nil
}

// forget lets go of the fragments that the archive has on disk.
func (l *lane) forget(u *upload, durable int64) {
	l.durable = max(l.durable, durable)
	n := 0
	for n < l.next && l.queue[n].end() <= l.durable {
		u.release(l.queue[n])
		l.queue[n] = nil
		n++
	}
	l.queue, l.next = l.queue[n:], l.next-n
}
