package bus

import (
	"context"
	"io"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of what is fetched before it is wanted, in fragments.
const (
	readAhead    = 4  // of one reader
	allReadAhead = 64 // of all readers of the process together
)

// wanted names what a reader reads: a file by its CID, or one block by its digest.
type wanted struct {
	op     string // wire.OpRead or wire.OpBlock
	viewer wire.TenantID
	cid    string // canonical
}

// ReadFile returns length bytes, from off, of a file from the archives that hold
// it, in that order of preference. The section must be in the file. It asks for
// the first bytes before it returns, so that a file which is not there, or not
// for this viewer, is an error here: NotFound. The viewer is a tenant, or
// wire.Public.
//
// The reader yields exactly length bytes or an error, turns to the next holder
// when one fails, and ends with ctx. Each archive checks the blocks that it
// reads from; the bytes of a section are not checked again here. It must be
// closed. A reader that is not read from holds one fragment, and a share of what
// all readers together may fetch ahead, 16 MiB.
func (a *Archives) ReadFile(ctx context.Context, ids []wire.ArchiveID, viewer wire.TenantID, cid string, off, length int64) (io.ReadCloser, error) {
	return a.readSection(ctx, ids, wanted{wire.OpRead, viewer, cid}, off, length)
}

func (a *Archives) readSection(ctx context.Context, ids []wire.ArchiveID, what wanted, off, length int64) (io.ReadCloser, error) {
	if off < 0 || length < 0 {
		return nil, fault.New(fault.Invalid, "", "bus: read %s: %d bytes from %d", what.cid, length, off)
	}
	r := &fileReader{a: a, ids: ids, wanted: what, asked: off, end: off + length}
	ctx, r.cancel = context.WithCancel(ctx)
	r.get = func(off int64) ([]byte, error) { return r.fetch(ctx, off) }
	if r.err = r.next(); r.err != nil {
		r.cancel()
		return nil, r.err
	}
	return r, nil
}

// A fileReader fetches fragments side by side and yields them in order.
type fileReader struct {
	a   *Archives
	ids []wire.ArchiveID
	wanted
	end    int64 // of the section
	cancel context.CancelFunc
	get    func(off int64) ([]byte, error)

	rest  []byte // fetched, not yet read
	asked int64  // offset up to which fragments are asked for
	queue []chan fetched
	err   error // why nothing more comes

	running sync.WaitGroup
	mu      sync.Mutex // guards good
	good    int        // index of the holder that answered last
}

type fetched struct {
	data []byte
	err  error
}

// next fetches the next fragment and asks for those behind it, as far as there is
// room for them.
func (r *fileReader) next() error {
	if len(r.queue) > 0 {
		next := <-r.queue[0] // always comes: every fetch is bounded
		r.queue = r.queue[1:]
		<-r.a.ahead
		r.rest, r.err = next.data, next.err
	} else {
		off := r.asked
		r.asked += min(wire.FragmentSize, r.end-off)
		r.rest, r.err = r.get(off)
	}
	for r.err == nil && r.asked < r.end && len(r.queue) < readAhead {
		select {
		case r.a.ahead <- struct{}{}:
			r.askAhead()
		default: // others have all the room: one fragment at a time
			return nil
		}
	}
	return r.err
}

// askAhead asks for a fragment that is not wanted yet. A place in ahead is taken.
func (r *fileReader) askAhead() {
	off := r.asked
	r.asked += min(wire.FragmentSize, r.end-off)
	ch := make(chan fetched, 1)
	r.queue = append(r.queue, ch)
	r.running.Go(func() {
		var next fetched
		next.err = guarded(func() (err error) { next.data, err = r.get(off); return err })
		ch <- next
	})
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		switch {
		case r.err != nil:
			return 0, r.err
		case len(r.queue) == 0 && r.asked == r.end:
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close gives up what is under way and waits for it. It returns nil.
func (r *fileReader) Close() error {
	r.cancel()
	r.running.Wait()
	for range r.queue {
		<-r.a.ahead
	}
	r.rest, r.queue = nil, nil
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	return nil
}

// fetch gets the fragment at off from the holder that answered last, or from the
// next one that has it.
func (r *fileReader) fetch(ctx context.Context, off int64) ([]byte, error) {
	r.mu.Lock()
	start := r.good
	r.mu.Unlock()
	var errs []error
	for i := range r.ids {
		at := (start + i) % len(r.ids)
		data, _, err := r.a.readRange(ctx, r.ids[at], r.wanted, off, min(wire.FragmentSize, r.end-off))
		if err == nil {
			r.mu.Lock()
			r.good = at
			r.mu.Unlock()
			return data, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, readFault(r.cid, errs)
}

// readRange reads exactly n bytes at off of something from one archive, and
// returns the headers beside them.
func (a *Archives) readRange(ctx context.Context, id wire.ArchiveID, what wanted, off, n int64) ([]byte, nats.Header, error) {
	data, err := wire.Encode(wire.BlobRead{Offset: off, Length: n})
	if err != nil {
		return nil, nil, err
	}
	reads := a.peer(id).reads
	credit, err := reads.acquire(ctx, n)
	if err != nil {
		return nil, nil, sendFault(err, "archive "+string(id))
	}
	defer reads.release(credit)
	msg := frame(id, what.op, "", data)
	msg.Header.Set(wire.HeaderTenant, string(what.viewer))
	msg.Header.Set(wire.HeaderCID, what.cid)
	reply, err := a.request(ctx, id, msg, a.cfg.RequestTimeout)
	if err != nil {
		return nil, nil, err
	}
	if at := reply.Header.Get(wire.HeaderOffset); at != strconv.FormatInt(off, 10) || int64(len(reply.Data)) != n {
		return nil, nil, fault.New(fault.Corrupt, CodeCorrupt, "archive %s: asked for %d bytes at %d of %s, got %d at %q", id, n, off, what.cid, len(reply.Data), at)
	}
	return reply.Data, reply.Header, nil
}
