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

// firstProbe is how long a copy may be without an acknowledgement before the
// archive is asked for one; the next question comes after twice the time, and so
// on. It finds out about a dead archive long before StallTimeout.
const firstProbe = time.Second

// A lane carries an upload to one archive. Its goroutine alone touches what is
// below the channels.
type lane struct {
	a      *Archives
	id     wire.ArchiveID
	token  string         // of the reply subject
	frames chan *fragment // closed when the file is complete
	acks   chan *nats.Msg
	done   chan struct{} // closed when the client is closed

	pending  *fragment     // waits for credit
	credit   *claim        // of pending, in the window of the archive
	sent     []sent        // unacknowledged, in order
	received int64         // bytes the archive has acknowledged
	allowed  int64         // bytes beyond received that it lets us have under way
	complete bool          // no more frames will come
	progress time.Time     // when the archive spoke last, or sent began to fill
	probed   time.Duration // after how long without progress to ask next
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
	tick := time.NewTicker(min(firstProbe, l.a.cfg.StallTimeout) / 2)
	defer tick.Stop()
	err := l.loop(u, tick.C)
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

func (l *lane) loop(u *upload, tick <-chan time.Time) error {
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
		case msg := <-l.acks:
			if err := l.acknowledged(msg); err != nil {
				return err
			}
		case <-tick:
			if err := l.watch(u); err != nil {
				return err
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
	if len(l.sent) == 0 {
		l.progress, l.probed = time.Now(), firstProbe
	}
	l.sent = append(l.sent, sent{f.end(), credit})
	err := l.publish(u, f.off, f.buf)
	u.release(f)
	return err
}

func (l *lane) publish(u *upload, off int64, data []byte) error {
	msg := frame(l.id, wire.OpData, u.id, data)
	msg.Header.Set(wire.HeaderOffset, strconv.FormatInt(off, 10))
	msg.Reply = l.a.acks.prefix + l.token
	return sendFault(l.a.conn.bulk.PublishMsg(msg), "archive "+string(l.id))
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
