package bus

import (
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// onDirect takes a query that was put to this archive alone, on its ctl subject. It
// is one of the archives of which a word is expected.
func (s *ArchiveService) onDirect(msg *nats.Msg) {
	msg.Header.Set(wire.HeaderExpect, string(s.id))
	s.onQuery(msg)
}
