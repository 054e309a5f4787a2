package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// retryPlacement is what a sender is told to wait when too few archives can take
// an upload.
const retryPlacement = time.Second

var (
	_ splitter.Uploader = (*Archives)(nil)
	_ splitter.Upload   = (*upload)(nil)
)

var errAborted = errors.New("bus: the upload was aborted")

// An upload sends one file to several archives at once. Each copy has a lane
// with a goroutine of its own; the slowest one sets the pace.
type upload struct {
	id    string
	min   int // lanes that have to remain
	room  *room
	ended chan struct{} // closed when the upload failed or was aborted
	idle  chan struct{} // closed when no lane runs any more
	free  func() bool   // detaches the upload from the context of its opening

	cur     *fragment // being filled; only Write and Finish use it, as all here
	size    int64     // bytes written
	unasked int       // fragments since archives were asked for a sync

	mu       sync.Mutex // guards all below
	lanes    []*lane    // those that have not failed
	running  int
	waiting  bool // the writer waits for memory
	finished bool
	cause    error // why ended is closed
	lost     error // what the lanes failed of
}

// ID names the upload in commits and aborts.
func (u *upload) ID() string { return u.id }

// Write sends the next bytes of the file. It waits for memory and credit, and
// returns Transient, NO_ARCHIVE once fewer than PUT_MIN_COPIES archives keep up.
func (u *upload) Write(p []byte) (n int, err error) {
	if err := u.err(); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		if u.cur == nil {
			if err := u.next(); err != nil {
				return n, err
			}
		}
		room := p[:min(len(p), wire.FragmentSize-len(u.cur.buf))]
		u.cur.buf = append(u.cur.buf, room...)
		n, p = n+len(room), p[len(room):]
		u.size += int64(len(room))
		if len(u.cur.buf) == wire.FragmentSize {
			if err := u.dispatch(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// next gets an empty fragment. If there is no memory for one, the archives are
// asked to make durable what they have.
func (u *upload) next() error {
	if !u.room.try() && !u.wait() {
		return u.err()
	}
	u.cur = fragments.Get().(*fragment)
	u.cur.buf, u.cur.off, u.cur.sync = u.cur.buf[:0], u.size, false
	return nil
}

// wait waits for memory, and reports false if the upload ends.
func (u *upload) wait() bool {
	u.mu.Lock()
	u.waiting, u.unasked = true, 0
	for _, l := range u.lanes {
		select {
		case l.flush <- struct{}{}:
		default:
		}
	}
	u.mu.Unlock()
	taken := u.room.take(u.ended)
	u.mu.Lock()
	u.waiting = false
	u.mu.Unlock()
	return taken
}

// dispatch hands the current fragment to every lane.
func (u *upload) dispatch() error {
	f := u.cur
	u.cur = nil
	if u.unasked++; u.unasked*2 >= u.room.limit() {
		f.sync, u.unasked = true, 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.stopped(); err != nil {
		f.refs.Store(1)
		u.release(f)
		return err
	}
	f.refs.Store(int32(len(u.lanes)))
	for _, l := range u.lanes {
		l.frames <- f // has room for all that the upload may hold
	}
	return nil
}

// release returns one reference to f.
func (u *upload) release(f *fragment) {
	if f.refs.Add(-1) == 0 {
		fragments.Put(f)
		u.room.free()
	}
}

// Finish sends what is left and returns the archives that have written every
// byte, in the order of the ranking; they are PUT_MIN_COPIES at least. Of a file
// of more than MinUploadMemory they have every byte on disk: a smaller one, whose
// commit syncs it soon, would be lost with their power, and is cheap to send
// again. Nothing is committed yet.
func (u *upload) Finish(ctx context.Context) ([]wire.ArchiveID, error) {
	if u.cur != nil {
		if err := u.dispatch(); err != nil {
			return nil, err
		}
	}
	u.mu.Lock()
	if !u.finished && u.cause == nil {
		u.finished = true
		for _, l := range u.lanes {
			close(l.frames)
		}
	}
	u.mu.Unlock()
	select {
	case <-u.idle:
	case <-u.ended:
	case <-ctx.Done():
		u.fail(fault.New(fault.Transient, CodeTimeout, "bus: finish upload %s: %w", u.id, context.Cause(ctx)))
	}
	u.free()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cause != nil {
		return nil, u.cause
	}
	ids := make([]wire.ArchiveID, len(u.lanes))
	for i, l := range u.lanes {
		ids[i] = l.id
	}
	return ids, nil
}

// Abort ends the upload and tells the archives, also when the context of its
// opening is done. It does not wait for them.
func (u *upload) Abort() {
	u.fail(errAborted)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.free != nil {
		u.free()
	}
	for _, l := range u.lanes {
		l.abandon(u.id)
	}
	u.lanes = nil
	if u.cur != nil {
		u.cur.refs.Store(1)
		u.release(u.cur)
		u.cur = nil
	}
}

// fail ends the upload, once.
func (u *upload) fail(cause error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failLocked(cause)
}

func (u *upload) failLocked(cause error) {
	if u.cause == nil {
		u.cause = cause
		close(u.ended)
	}
}

func (u *upload) err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stopped()
}

// stopped says why nothing more is taken, if so. mu is held.
func (u *upload) stopped() error {
	if u.cause == nil && u.finished {
		return errors.New("bus: write after finish of upload " + u.id)
	}
	return u.cause
}

// laneEnded is called once by every lane: with nil when the archive has written
// all bytes, else with what went wrong. A lane that failed is dropped while
// enough remain.
func (u *upload) laneEnded(l *lane, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil && u.cause == nil {
		u.lanes = without(u.lanes, l)
		u.lost = errors.Join(u.lost, err)
		if len(u.lanes) < u.min {
			u.failLocked(fault.New(fault.Transient, CodeNoArchive, "bus: upload %s: %d of at least %d archives keep up: %w",
				u.id, len(u.lanes), u.min, u.lost).After(retryPlacement))
		}
	}
	if u.running--; u.running == 0 {
		close(u.idle)
	}
}

// spares reports whether the upload need not wait for l any longer, to which its
// archive is lost: others are enough, and all that they can get before it comes
// back they have.
func (u *upload) spares(l *lane) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	others := 0
	for _, o := range u.lanes {
		if o != l && !o.behind {
			others++
		}
	}
	return others >= u.min && (u.waiting || u.finished)
}

// waits reports whether the writer waits for memory: some archive is behind.
func (u *upload) waits() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.waiting
}

// setBehind notes whether the archive of l keeps up.
func (u *upload) setBehind(l *lane, behind bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.behind = behind
}

func without(lanes []*lane, gone *lane) []*lane {
	out := make([]*lane, 0, len(lanes))
	for _, l := range lanes {
		if l != gone {
			out = append(out, l)
		}
	}
	return out
}
