package bus

import (
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
)

// TestManyRefusalsOfOneRestart: an archive restarts so fast that several fragments
// reach its new process, and each of them is refused.
func TestManyRefusalsOfOneRestart(t *testing.T) {
	const first, last = 8 * frag, 11 * frag
	synctest.Test(t, func(t *testing.T) {
		n := startNet(t, steady, "archive-a", "archive-b")
		var held []*nats.Msg
		done := false
		n.onFrame = func(p *netPeer, msg *nats.Msg) []*nats.Msg {
			if p.id != "archive-b" || done || len(held) == 0 && !dataAt(msg, first) {
				return []*nats.Msg{msg}
			}
			if held = append(held, msg); !dataAt(msg, last) {
				return nil
			}
			done = true
			p.stop()
			p.start(false)
			return held
		}
		data := content(8 << 20)
		u := n.open(t.Context(), 2, blob.Default)
		defer u.Abort()
		if _, err := u.Write(data); err != nil {
			t.Fatal(err)
		}
		if on, err := u.Finish(t.Context()); err != nil || len(on) != 2 || !done {
			t.Fatal(on, err, done)
		}
		for _, p := range n.peers {
			if err := p.commit(u, data, blob.Default); err != nil {
				t.Errorf("%s: %v", p.id, err)
			}
		}
	})
}
