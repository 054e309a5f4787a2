package bus

import (
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// What anybody may put who may publish on the bare subject, and what comes
// through an aggregator only.
func TestBareSubjectTakesNothingThatIsNotThePeers(t *testing.T) {
	for _, tt := range []struct {
		kind  wire.Kind
		body  string
		taken bool
	}{
		{"note", "anything", true},
		{wire.KindMetadata, `{"v":1}`, true},
		{wire.KindPrivateMetadata, wire.SealedMagic + "\x01...", true},
		{wire.KindPrivateMetadata, `{"plain":"secret"}`, false},
		{wire.KindPrivateMetadata, "", false},
		{wire.KindFile, "", false},
		{wire.KindShare, "", false}, {wire.KindRetain, "", false}, {wire.KindHold, "", false}, {wire.KindRelease, "", false},
	} {
		err := bareKind(&wire.PutRecord{Kind: tt.kind, Body: []byte(tt.body)})
		if tt.taken && err != nil || !tt.taken && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s %q: %v", tt.kind, tt.body, err)
		}
	}
}
