package bus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// MaxUploadMemory bounds the fragments, in bytes, that one upload holds in
// memory, whatever the number of copies: one is being filled, the others wait
// for the slowest archive.
const MaxUploadMemory = 2 << 20

// retryPlacement is what a sender is told to wait when too few archives can take
// an upload.
const retryPlacement = time.Second

var (
	_ splitter.Uploader = (*Archives)(nil)
	_ splitter.Upload   = (*upload)(nil)
)

var errAborted = errors.New("bus: the upload was aborted")

// fragments are recycled over all uploads of the process.
var fragments = sync.Pool{New: func() any { return &fragment{buf: make([]byte, 0, wire.FragmentSize)} }}

// A fragment is a piece of a file on its way to several archives.
type fragment struct {
	buf  []byte // at most wire.FragmentSize
	off  int64  // of buf in the file
	refs atomic.Int32
}

func (f *fragment) end() int64 { return f.off + int64(len(f.buf)) }

// An upload sends one file to several archives at once. Each copy has a lane
// with a goroutine of its own; the slowest one sets the pace.
type upload struct {
	id    string
	min   int           // lanes that have to remain
	slots chan struct{} // one for every fragment in memory
	ended chan struct{} // closed when the upload failed or was aborted
	idle  chan struct{} // closed when no lane runs any more
	free  func() bool   // detaches the upload from the context of its opening

	cur  *fragment // being filled; only Write and Finish use it
	size int64     // bytes written; likewise

	mu       sync.Mutex // guards all below
	lanes    []*lane    // those that have not failed
	running  int
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

// next gets an empty fragment.
func (u *upload) next() error {
	select {
	case u.slots <- struct{}{}:
	case <-u.ended:
		return u.err()
	}
	u.cur = fragments.Get().(*fragment)
	u.cur.buf, u.cur.off = u.cur.buf[:0], u.size
	return nil
}

// dispatch hands the current fragment to every lane.
func (u *upload) dispatch() error {
	f := u.cur
	u.cur = nil
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.stopped(); err != nil {
		f.refs.Store(1)
		u.release(f)
		return err
	}
	f.refs.Store(int32(len(u.lanes)))
	for _, l := range u.lanes {
		l.frames <- f // has room for every slot
	}
	return nil
}

// release returns one reference to f.
func (u *upload) release(f *fragment) {
	if f.refs.Add(-1) == 0 {
		fragments.Put(f)
		<-u.slots
	}
}

// Finish sends what is left and returns the archives that have written every
// byte, in the order of the ranking; they are PUT_MIN_COPIES at least. Nothing
// is committed yet.
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

func without(lanes []*lane, gone *lane) []*lane {
	out := make([]*lane, 0, len(lanes))
	for _, l := range lanes {
		if l != gone {
			out = append(out, l)
		}
	}
	return out
}
