package bus

import (
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// queuedAcks bounds the acknowledgements that may wait for a lane; there are
// never more than fragments under way.
const queuedAcks = 64

// A lane carries an upload to one archive. Its goroutine alone touches what is
// below the channels.
type lane struct {
	a      *Archives
	id     wire.ArchiveID
	token  string         // of the reply subject
	frames chan *fragment // closed when the file is complete
	acks   chan *nats.Msg
	done   chan struct{} // closed when the client is closed

	pending  *fragment // waits for credit
	credit   *claim    // of pending, in the window of the archive
	sent     []sent    // unacknowledged, in order
	received int64     // bytes the archive has acknowledged
	allowed  int64     // bytes beyond received that it lets us have under way
	complete bool      // no more frames will come
}

// A sent fragment is under way.
type sent struct {
	end    int64
	credit *claim
}

// deliver takes an acknowledgement. Acknowledgements are cumulative, so that
// losing one to a flood is no loss.
func (l *lane) deliver(msg *nats.Msg) {
	select {
	case l.acks <- msg:
	default:
		l.a.metrics.badReplies.WithLabelValues("ack-flood").Inc()
	}
}

func (l *lane) shut() { close(l.done) }

// run sends fragments as credit allows until all are acknowledged, the archive
// fails, or the upload ends.
func (l *lane) run(u *upload) {
	timer := time.NewTimer(l.a.cfg.StallTimeout)
	defer timer.Stop()
	err := l.loop(u, timer)
	l.a.acks.remove(l.token)
	switch {
	case err == nil:
		l.a.metrics.lanes.WithLabelValues("complete").Inc()
	case errors.Is(err, errAborted):
		l.a.metrics.lanes.WithLabelValues("aborted").Inc()
	default:
		l.a.metrics.lanes.WithLabelValues("failed").Inc()
		l.abandon(u.id)
	}
	u.laneEnded(l, err)
	l.cleanup(u)
}

func (l *lane) loop(u *upload, timer *time.Timer) error {
	for {
		if l.complete && l.pending == nil && len(l.sent) == 0 {
			return nil
		}
		frames, ready := l.frames, l.ready()
		if l.pending != nil || l.complete {
			frames = nil
		}
		select {
		case f, ok := <-frames:
			l.pending, l.complete = f, !ok
		case <-ready:
			if err := l.send(u); err != nil {
				return err
			}
			if len(l.sent) == 1 {
				timer.Reset(l.a.cfg.StallTimeout)
			}
		case msg := <-l.acks:
			if err := l.acknowledged(msg); err != nil {
				return err
			}
			timer.Reset(l.a.cfg.StallTimeout)
		case <-timer.C:
			if len(l.sent) > 0 {
				return fault.New(fault.Transient, CodeTimeout, "archive %s: no acknowledgement of a fragment in %v", l.id, l.a.cfg.StallTimeout)
			}
		case <-u.ended:
			return errAborted
		case <-l.done:
			u.fail(fault.New(fault.Transient, CodeDisconnected, "bus: the client was closed"))
			return errAborted
		}
	}
}

// ready returns a channel that is closed when pending may be sent. The archive's
// own credit comes first; one fragment may always be under way, so that the
// archive gets a chance to grant more.
func (l *lane) ready() <-chan struct{} {
	if l.pending == nil {
		return nil
	}
	if len(l.sent) > 0 && l.pending.end() > l.received+l.allowed {
		return nil
	}
	if l.credit == nil {
		l.credit = l.a.peer(l.id).blobs.claim(int64(len(l.pending.buf)))
	}
	return l.credit.ready
}

// send publishes pending. nats.go copies the bytes, so the fragment is free then.
func (l *lane) send(u *upload) error {
	f, credit := l.pending, l.credit
	l.pending, l.credit = nil, nil
	l.sent = append(l.sent, sent{f.end(), credit})
	msg := frame(l.id, wire.OpData, u.id, f.buf)
	msg.Header.Set(wire.HeaderOffset, strconv.FormatInt(f.off, 10))
	msg.Reply = l.a.acks.prefix + l.token
	err := l.a.conn.bulk.PublishMsg(msg)
	u.release(f)
	return sendFault(err, "archive "+string(l.id))
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
	l.received, l.allowed = max(l.received, ack.Received), max(0, ack.Credit)
	for len(l.sent) > 0 && l.sent[0].end <= l.received {
		l.a.peer(l.id).blobs.release(l.sent[0].credit)
		l.sent = l.sent[1:]
	}
	return nil
}

// cleanup gives back what the lane holds. No frame comes after laneEnded.
func (l *lane) cleanup(u *upload) {
	blobs := l.a.peer(l.id).blobs
	for _, s := range l.sent {
		blobs.release(s.credit)
	}
	if l.credit != nil {
		blobs.release(l.credit)
	}
	if l.pending != nil {
		u.release(l.pending)
	}
	for {
		select {
		case f, ok := <-l.frames:
			if !ok {
				return
			}
			u.release(f)
		default:
			return
		}
	}
}

// abandon tells the archive to drop the upload. Nobody waits for an answer: an
// archive that does not hear it drops the upload when it has been idle.
func (l *lane) abandon(uploadID string) {
	if err := l.a.conn.bulk.PublishMsg(frame(l.id, wire.OpAbort, uploadID, nil)); err != nil {
		l.a.log.Debug("could not tell an archive of an aborted upload", "archive", l.id, "err", err)
	}
}
