package bus

import (
	"sync"
	"sync/atomic"

	"github.com/verae/archive/wire"
)

// What uploads hold in memory, in bytes, whatever the number of copies: what an
// archive has not made durable has to be kept, to be sent again if it restarts.
const (
	MaxUploadMemory  = 16 << 20 // of one upload
	MinUploadMemory  = 1 << 20  // that one upload can have, however many there are
	MaxUploadsMemory = 64 << 20 // of all uploads together, beyond MinUploadMemory each
)

// fragments are recycled over all uploads of the process.
var fragments = sync.Pool{New: func() any { return &fragment{buf: make([]byte, 0, wire.FragmentSize)} }}

// A fragment is a piece of a file on its way to several archives.
type fragment struct {
	buf  []byte // at most wire.FragmentSize
	off  int64  // of buf in the file
	sync bool   // archives are asked to make everything up to it durable
	refs atomic.Int32
}

func (f *fragment) end() int64 { return f.off + int64(len(f.buf)) }

// A room counts the fragments that an upload holds. The first few are its own,
// the others it has from what all uploads share, and gives back first.
type room struct {
	shared chan struct{} // one for every fragment that some upload holds of it
	freed  chan struct{} // has a value after a fragment was let go

	mu    sync.Mutex // guards all below
	held  int        // fragments
	extra int        // of them, from what is shared
}

const (
	roomMost = MaxUploadMemory / wire.FragmentSize
	roomOwn  = MinUploadMemory / wire.FragmentSize
)

func newShared() chan struct{} { return make(chan struct{}, MaxUploadsMemory/wire.FragmentSize) }

func newRoom(shared chan struct{}) *room {
	return &room{shared: shared, freed: make(chan struct{}, 1)}
}

// try takes a place if there is one.
func (r *room) try() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.held == roomMost:
		return false
	case r.held-r.extra < roomOwn:
		r.held++
		return true
	}
	select {
	case r.shared <- struct{}{}:
		r.held++
		r.extra++
		return true
	default:
		return false
	}
}

// take takes a place and waits for it, until ended is closed. Only one goroutine
// takes places.
func (r *room) take(ended <-chan struct{}) bool {
	for !r.try() {
		shared := r.shared
		r.mu.Lock()
		if r.held == roomMost {
			shared = nil
		}
		r.mu.Unlock()
		select {
		case shared <- struct{}{}:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.held++
			r.extra++
			return true
		case <-r.freed:
		case <-ended:
			return false
		}
	}
	return true
}

// free gives a place back.
func (r *room) free() {
	r.mu.Lock()
	r.held--
	if r.extra > 0 {
		r.extra--
		<-r.shared
	}
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// limit is how many fragments the upload could hold now.
func (r *room) limit() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(roomMost, roomOwn+r.extra+cap(r.shared)-len(r.shared))
}

func (r *room) holds() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}
