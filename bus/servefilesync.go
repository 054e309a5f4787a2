package bus

import (
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// SyncBytes is after how many bytes of an upload an archive makes them durable
// without being asked.
const SyncBytes = 8 << 20

// uploadSyncs make uploads durable beside the handling of their fragments, each
// by one goroutine, which lives while there is something to do.
type uploadSyncs struct {
	mu      sync.Mutex // guards uploads and what they point to
	uploads map[string]*uploadSync
	running sync.WaitGroup
}

// An uploadSync is a run of one upload, and the fragment after which comes another.
type uploadSync struct {
	from int64 // bytes received when the run began
	next *nats.Msg
	at   int64 // bytes received with next
}

// start has run called for the upload of msg, a fragment with which so many bytes
// are received: at once, or after the run under way if the sender asked for it or
// there is enough to do then.
func (s *uploadSyncs) start(upload string, msg *nats.Msg, received int64, asked bool, run func(upload string, msg *nats.Msg)) {
	msg = &nats.Msg{Subject: msg.Subject, Reply: msg.Reply, Sub: msg.Sub} // its bytes are not kept
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.uploads[upload]; u != nil {
		if asked || received-u.from >= SyncBytes {
			u.next, u.at = msg, received
		}
		return
	}
	if s.uploads == nil {
		s.uploads = map[string]*uploadSync{}
	}
	s.uploads[upload] = &uploadSync{from: received}
	s.running.Go(func() {
		for msg != nil {
			run(upload, msg)
			msg = s.next(upload)
		}
	})
}

// next ends a run and returns the fragment after which comes another.
func (s *uploadSyncs) next(upload string) *nats.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[upload]
	msg := u.next
	if u.from, u.next = u.at, nil; msg == nil {
		delete(s.uploads, upload)
	}
	return msg
}

// sync makes an upload durable and tells its sender. One that has ended meanwhile
// needs nothing.
func (s *ArchiveService) sync(upload string, msg *nats.Msg) {
	durable, err := s.blobs.Sync(upload)
	switch {
	case err == nil:
		s.respond(msg, wire.BlobAck{Received: durable, Credit: UploadWindow, Durable: durable})
	case !fault.Is(err, fault.NotFound):
		s.finish(msg, err)
	}
}
