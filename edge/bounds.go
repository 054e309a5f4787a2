package edge

import (
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
)

// bounds counts what each key has under way. A key that has nothing under way
// takes no memory.
type bounds struct {
	inFlight, uploads int // limits of one key

	mu    sync.Mutex
	loads map[string]*load // by key id; guarded by mu, with what they point to
}

type load struct{ inFlight, uploads int }

// enter counts a request of a key in. leave must be called once it is done.
func (b *bounds) enter(keyID string) (leave func(), err error) {
	return b.take(keyID, func(l *load) *int { return &l.inFlight }, b.inFlight, codeTooManyRequests,
		"this key has %d requests under way, as many as it may; send the next when one is answered")
}

// openUpload counts an upload of a key in. done must be called once it ended.
func (b *bounds) openUpload(keyID string) (done func(), err error) {
	return b.take(keyID, func(l *load) *int { return &l.uploads }, b.uploads, codeTooManyUploads,
		"this key has %d uploads under way, as many as it may; send the next when one is answered")
}

func (b *bounds) take(keyID string, counter func(*load) *int, most int, code, message string) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.loads[keyID]
	if l == nil {
		l = &load{}
	}
	n := counter(l)
	if *n >= most {
		return nil, fault.New(fault.Transient, code, message, most).After(time.Second)
	}
	*n++
	if b.loads == nil {
		b.loads = map[string]*load{}
	}
	b.loads[keyID] = l
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if *n--; *l == (load{}) {
			delete(b.loads, keyID)
		}
	}), nil
}
