package bus

import (
	"time"

	"github.com/nats-io/nats.go"
)

// onDirect takes a query that was put to this archive alone, on its ctl subject. It
// is one of the archives of which a word is expected.
func (s *ArchiveService) onDirect(msg *nats.Msg) {
	s.queue(msg, true, time.Now())
}
