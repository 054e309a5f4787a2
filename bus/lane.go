package bus

import (
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
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

// A lane carries an upload to one archive. It keeps every fragment that the
// archive has not on disk, and sends it again when the archive comes back after a
// restart: see laneaway.go. Its goroutine alone touches what is below the channels.
type lane struct {
	a       *Archives
	id      wire.ArchiveID
	profile blob.Profile
	behind  bool           // the archive does not keep up; guarded by the upload's mu
	frames  chan *fragment // closed when the file is complete
	flush   chan struct{}  // has a value when the writer waits for memory
	acks    chan *nats.Msg
	done    chan struct{} // closed when the client is closed

	token    string        // of the reply subject
	queue    []*fragment   // that the archive has not on disk, in order
	next     int           // the first of queue that was not sent
	credit   *claim        // of that one, in the window of the archive
	sent     []sent        // unacknowledged, in order
	received int64         // bytes the archive has acknowledged
	allowed  int64         // bytes beyond received that it lets us have under way
	durable  int64         // bytes it has on disk
	asked    int64         // bytes it was asked to have there
	wanted   int64         // bytes it has to be asked for once they are sent
	complete bool          // no more frames will come
	progress time.Time     // when the archive spoke last, or began to owe something
	probed   time.Duration // after how long without progress to ask next
	kept     time.Time     // when the archive was told last that an upload goes on without bytes for it
	away     away
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
	l.away.advanced = time.Now()
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
	for !l.finished(u) {
		frames := l.frames
		if l.complete {
			frames = nil
		}
		var err error
		select {
		case f, ok := <-frames:
			l.take(f, ok)
			if !ok && u.size > MinUploadMemory {
				err = l.want(u)
			}
		case <-l.ready():
			err = l.send(u)
		case <-l.flush:
			l.takeAll()
			err = l.want(u)
		case msg := <-l.acks:
			err = l.answered(u, msg)
		case <-tick:
			err = l.watch(u)
		case <-l.away.again:
			err = l.reopen(u)
		case <-u.ended:
			return errAborted
		case <-l.done:
			u.fail(fault.New(fault.Transient, CodeDisconnected, "bus: the client was closed"))
			return errAborted
		}
		if err != nil {
			err = l.lose(u, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) take(f *fragment, ok bool) {
	if l.complete = !ok; ok {
		l.queue = append(l.queue, f)
	}
}

// takeAll takes the fragments that are there.
func (l *lane) takeAll() {
	for !l.complete {
		select {
		case f, ok := <-l.frames:
			l.take(f, ok)
		default:
			return
		}
	}
}

// finished reports whether the archive has the whole file, and that on disk if it
// was asked for it.
func (l *lane) finished(u *upload) bool {
	return l.complete && !l.away.lost && l.next == len(l.queue) && len(l.sent) == 0 && max(l.asked, l.wanted) <= l.durable
}

// ready returns a channel that is closed when the next fragment may be sent. The
// archive's own credit comes first; one fragment may always be under way, so that
// the archive gets a chance to grant more.
func (l *lane) ready() <-chan struct{} {
	if l.next == len(l.queue) || l.away.lost {
		return nil
	}
	f := l.queue[l.next]
	if len(l.sent) > 0 && f.end() > l.received+l.allowed {
		return nil
	}
	if l.credit == nil {
		l.credit = l.a.peer(l.id).blobs.claim(int64(len(f.buf)))
	}
	return l.credit.ready
}

// send publishes the next fragment, or what the archive lacks of it. nats.go
// copies the bytes.
func (l *lane) send(u *upload) error {
	f := l.queue[l.next]
	l.owing()
	l.sent = append(l.sent, sent{f.end(), l.credit})
	l.next, l.credit = l.next+1, nil
	from := max(f.off, l.received)
	return l.publish(u, from, f.buf[from-f.off:], f.sync || f.end() == l.wanted)
}

// want asks the archive to make durable all that is in memory: with the last
// fragment of it, or at once if that was sent.
func (l *lane) want(u *upload) error {
	if len(l.queue) == 0 {
		return nil
	}
	l.wanted = l.queue[len(l.queue)-1].end()
	if l.next < len(l.queue) || l.wanted <= l.asked || l.away.lost {
		return nil
	}
	l.owing()
	return l.publish(u, l.wanted, nil, true)
}

// owing notes that the archive is about to owe an answer, if it owes none yet.
func (l *lane) owing() {
	if l.owes() {
		return
	}
	l.progress, l.probed = time.Now(), firstProbe
	if l.away.since.IsZero() { // else it has been owing since
		l.away.advanced = l.progress
	}
}

func (l *lane) owes() bool { return len(l.sent) > 0 || l.asked > l.durable }

func (l *lane) publish(u *upload, off int64, data []byte, sync bool) error {
	msg := frame(l.id, wire.OpData, u.id, data)
	msg.Header.Set(wire.HeaderOffset, strconv.FormatInt(off, 10))
	if sync {
		msg.Header.Set(wire.HeaderSync, "1")
		l.asked = max(l.asked, off+int64(len(data)))
	}
	return l.post(msg)
}

// post sends a frame whose answer comes to the lane.
func (l *lane) post(msg *nats.Msg) error {
	msg.Reply = l.a.acks.prefix + l.token
	return sendFault(l.a.frames.PublishMsg(msg), "archive "+string(l.id))
}

// releaseSent gives back the credit of what is under way.
func (l *lane) releaseSent() {
	blobs := l.a.peer(l.id).blobs
	for _, s := range l.sent {
		blobs.release(s.credit)
	}
	l.sent = nil
	if l.credit != nil {
		blobs.release(l.credit)
		l.credit = nil
	}
}

// cleanup gives back what the lane holds. No frame comes after laneEnded.
func (l *lane) cleanup(u *upload) {
	l.releaseSent()
	for _, f := range l.queue {
		u.release(f)
	}
	l.queue = nil
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
	if err := l.a.frames.PublishMsg(frame(l.id, wire.OpAbort, uploadID, nil)); err != nil {
		l.a.log.Debug("could not tell an archive of an aborted upload", "archive", l.id, "err", err)
	}
}
