package bus

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
)

// watch looks after an archive that owes an acknowledgement. An empty fragment
// of what it has already is acknowledged when it comes to it; if its process is
// gone, the server says so at once.
func (l *lane) watch(u *upload) error {
	if len(l.sent) == 0 {
		return nil
	}
	switch idle := time.Since(l.progress); {
	case idle >= l.a.cfg.StallTimeout:
		return fault.New(fault.Transient, CodeTimeout, "archive %s: no acknowledgement of a fragment in %v", l.id, l.a.cfg.StallTimeout)
	case idle >= l.probed:
		l.probed *= 2
		return l.publish(u, l.received, nil)
	}
	return nil
}

// acknowledged takes an answer to a fragment.
func (l *lane) acknowledged(msg *nats.Msg) error {
	if unheard(msg) {
		return sendFault(nats.ErrNoResponders, "archive "+string(l.id))
	}
	if err := replyFault(msg, "archive "+string(l.id)); err != nil {
		return err
	}
	ack, err := decodeAck(l.id, msg)
	if err != nil {
		return err
	}
	if n := len(l.sent); ack.Received > l.received && (n == 0 || ack.Received > l.sent[n-1].end) {
		return fault.New(fault.Internal, CodeBadAck, "archive %s: acknowledged %d bytes, more than were sent", l.id, ack.Received)
	}
	l.progress, l.probed = time.Now(), firstProbe
	l.received, l.allowed = max(l.received, ack.Received), max(0, ack.Credit)
	for len(l.sent) > 0 && l.sent[0].end <= l.received {
		l.a.peer(l.id).blobs.release(l.sent[0].credit)
		l.sent = l.sent[1:]
	}
	return nil
}
