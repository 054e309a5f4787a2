package bus

import (
	"slices"
	"sort"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// How often an archive that is away is asked whether an upload goes on there.
const (
	firstReopen  = 50 * time.Millisecond // after it went away; then after twice the time, and so on
	lastReopen   = time.Second           // at most
	reopenAnswer = 3 * time.Second       // how long its answer is waited for: it says so if reading takes longer
)

// away is what a lane knows of an archive that does not keep up.
type away struct {
	lost     bool      // the upload has to be resumed before anything is sent
	asked    bool      // it was asked to; until then answers are to what was sent before
	since    time.Time // when it was lost first since bytes advanced; zero: it was not
	advanced time.Time // when bytes advanced, or began to be owed
	cause    error     // why it was lost
	wait     time.Duration
	again    <-chan time.Time // when to ask next; nil: it is not lost
}

// awayCodes are those of refusals after which an upload may go on. Of all others
// the upload is gone there, or would be again.
var awayCodes = []string{
	CodeUnreachable, CodeTimeout, CodeDisconnected, CodeBusy, CodeUnknownUpload,
	blob.CodeBadOffset, // a fragment was lost
	blob.CodeClosed, blob.CodeResuming,
}

// lose takes an error. When nobody answers for the archive, or it was restarted,
// or fragments were lost, the upload can be resumed; else the error is returned.
func (l *lane) lose(u *upload, err error) error {
	code := fault.CodeOf(err)
	switch {
	case !slices.Contains(awayCodes, code):
		return err
	case l.away.lost && code == CodeUnknownUpload:
		return err // it has not the bytes that it had on disk: it is another archive, or was set back
	case code == blob.CodeResuming:
		l.away.advanced = time.Now() // it reads
	}
	now := time.Now()
	if !l.away.lost {
		l.a.metrics.away.Inc()
		l.a.log.Debug("an archive went away from an upload", "archive", l.id, "upload", u.id, "err", err)
	}
	if l.away.since.IsZero() {
		l.away.since, l.away.wait = now, firstReopen
		u.setBehind(l, true)
	}
	l.away.lost, l.away.cause = true, err
	l.releaseSent()
	l.away.again = time.After(l.away.wait)
	l.away.wait = min(2*l.away.wait, lastReopen)
	return l.givenUp(u)
}

// givenUp returns an error if the archive has been away for too long.
func (l *lane) givenUp(u *upload) error {
	gone := time.Since(l.away.advanced) >= l.a.cfg.UploadIdle
	if gone || time.Since(l.away.since) >= l.a.cfg.AwayTimeout && u.spares(l) {
		return fault.New(fault.Transient, CodeNoArchive, "archive %s: away from the upload for %v: %w", l.id, time.Since(l.away.since).Round(time.Millisecond), l.away.cause)
	}
	return nil
}

// reopen asks the archive to go on with what it has on disk. Its answer comes to
// a new reply subject, so that no older one is taken for it.
func (l *lane) reopen(u *upload) error {
	if err := l.givenUp(u); err != nil {
		return err
	}
	data, err := wire.Encode(wire.BlobOpen{ChunkSize: l.profile.ChunkSize, MaxLinks: l.profile.MaxLinks, Resume: true, Offset: l.durable})
	if err != nil {
		return err
	}
	l.a.acks.remove(l.token)
	l.token = l.a.laneToken()
	if !l.a.acks.add(l.token, l, nil) {
		u.fail(fault.New(fault.Transient, CodeDisconnected, "bus: the client was closed"))
		return errAborted
	}
	l.away.asked, l.away.again = true, time.After(reopenAnswer)
	return l.post(frame(l.id, wire.OpOpen, u.id, data))
}

// resumed takes the answer of an archive that is back, and sends again what it
// lacks.
func (l *lane) resumed(u *upload, ack wire.BlobAck) error {
	end := l.durable
	if n := len(l.queue); n > 0 {
		end = l.queue[n-1].end()
	}
	if ack.Received < l.durable || ack.Received > end || ack.Durable > ack.Received {
		return fault.New(fault.Internal, CodeBadAck, "archive %s: goes on at %d, with %d bytes on disk; it was sent %d and had %d there", l.id, ack.Received, ack.Durable, end, l.durable)
	}
	l.a.metrics.resumed.Inc()
	l.away.lost, l.away.asked, l.away.again = false, false, nil
	l.received, l.allowed, l.asked = ack.Received, max(0, ack.Credit), 0
	l.next = sort.Search(len(l.queue), func(i int) bool { return l.queue[i].end() > ack.Received })
	l.forget(u, ack.Durable)
	l.progress, l.probed = time.Now(), firstProbe
	switch {
	case l.next < len(l.queue):
	case l.wanted > l.durable:
		return l.publish(u, l.received, nil, true)
	default: // it lacks nothing
		l.advance(u)
	}
	return nil
}

// advance notes that bytes got further.
func (l *lane) advance(u *upload) {
	l.progress = time.Now()
	l.away.advanced = l.progress
	if !l.away.since.IsZero() {
		l.away.since = time.Time{}
		u.setBehind(l, false)
	}
}
