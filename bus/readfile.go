package bus

import (
	"context"
	"io"
	"strconv"
	"sync"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// readAhead is how many fragments a reader fetches at the same time.
const readAhead = 4

// ReadFile returns the bytes of a file from the archives that hold it, in that
// order of preference. It asks for the first bytes before it returns, so that a
// file which is not there, or not for this tenant, is an error here: NotFound.
// The reader yields exactly size bytes or an error, turns to the next holder
// when one fails, and ends with ctx. It must be closed.
func (a *Archives) ReadFile(ctx context.Context, ids []wire.ArchiveID, tenant wire.TenantID, cid string, size int64) (io.ReadCloser, error) {
	if size < 0 {
		return nil, fault.New(fault.Invalid, "", "bus: read %s: size %d", cid, size)
	}
	r := &fileReader{a: a, ids: ids, tenant: tenant, cid: cid, size: size}
	first, err := r.fetch(ctx, 0)
	if err != nil {
		return nil, err
	}
	r.rest, r.asked = first, int64(len(first))
	ctx, r.cancel = context.WithCancel(ctx)
	r.ask = func() { r.ahead(ctx) }
	for range readAhead {
		r.ask()
	}
	return r, nil
}

// A fileReader fetches fragments side by side and yields them in order.
type fileReader struct {
	a      *Archives
	ids    []wire.ArchiveID
	tenant wire.TenantID
	cid    string
	size   int64
	cancel context.CancelFunc
	ask    func() // asks for the next fragment

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

// ahead asks for the next fragment, if there is one.
func (r *fileReader) ahead(ctx context.Context) {
	if r.asked == r.size {
		return
	}
	off := r.asked
	r.asked += min(wire.FragmentSize, r.size-off)
	ch := make(chan fetched, 1)
	r.queue = append(r.queue, ch)
	r.running.Go(func() {
		data, err := r.fetch(ctx, off)
		ch <- fetched{data, err}
	})
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		switch {
		case r.err != nil:
			return 0, r.err
		case len(r.queue) == 0:
			return 0, io.EOF
		}
		next := <-r.queue[0] // always comes: every fetch is bounded
		r.queue = r.queue[1:]
		r.rest, r.err = next.data, next.err
		if r.err == nil {
			r.ask()
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
		data, err := r.a.readRange(ctx, r.ids[at], r.tenant, r.cid, off, min(wire.FragmentSize, r.size-off))
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

// readRange reads exactly n bytes at off of a file from one archive.
func (a *Archives) readRange(ctx context.Context, id wire.ArchiveID, tenant wire.TenantID, cid string, off, n int64) ([]byte, error) {
	data, err := wire.Encode(wire.BlobRead{Offset: off, Length: n})
	if err != nil {
		return nil, err
	}
	reads := a.peer(id).reads
	credit, err := reads.acquire(ctx, n)
	if err != nil {
		return nil, sendFault(err, "archive "+string(id))
	}
	defer reads.release(credit)
	msg := frame(id, wire.OpRead, "", data)
	msg.Header.Set(wire.HeaderTenant, string(tenant))
	msg.Header.Set(wire.HeaderCID, cid)
	reply, err := a.request(ctx, id, msg, a.cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	if at := reply.Header.Get(wire.HeaderOffset); at != strconv.FormatInt(off, 10) || int64(len(reply.Data)) != n {
		return nil, fault.New(fault.Corrupt, CodeCorrupt, "archive %s: asked for %d bytes at %d of %s, got %d at %q", id, n, off, cid, len(reply.Data), at)
	}
	return reply.Data, nil
}
