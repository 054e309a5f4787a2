package bus

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// TestArchivesKeepAnUploadThatWaitsForAnother: one of two that are needed reads
// back what it has, for longer than an archive keeps an upload of which it hears
// nothing.
func TestArchivesKeepAnUploadThatWaitsForAnother(t *testing.T) {
	const reads = 3 * DefaultUploadIdle
	synctest.Test(t, func(t *testing.T) {
		n := startNet(t, steady, "archive-a", "archive-b")
		var since time.Time // when archive-b went away
		n.onFrame = func(p *netPeer, msg *nats.Msg) []*nats.Msg {
			if p.id == "archive-b" && since.IsZero() && dataAt(msg, 6*frag) {
				since = time.Now()
				p.stop()
				p.start(false)
			}
			return []*nats.Msg{msg}
		}
		n.onReply = func(p *netPeer, msg *nats.Msg) []*nats.Msg {
			if p.id == "archive-b" && !since.IsZero() && time.Since(since) < reads && msg.Header.Get(wire.HeaderProblem) == "" {
				msg.Header.Set(wire.HeaderProblem, blob.CodeResuming)
				msg.Data = encode(t, ProblemOf(fault.New(fault.Transient, blob.CodeResuming, "it is being read back")))
			}
			return []*nats.Msg{msg}
		}
		n.running.Go(func() {
			for range 2 * reads / time.Second {
				time.Sleep(time.Second)
				if _, err := n.peers["archive-a"].store.Sweep(DefaultUploadIdle); err != nil {
					t.Error(err)
				}
			}
		})
		data := content(MaxUploadMemory + 8<<20)
		u := n.open(t.Context(), 2, blob.Default)
		defer u.Abort()
		if _, err := u.Write(data); err != nil {
			t.Fatal(err)
		}
		if on, err := u.Finish(t.Context()); err != nil || len(on) != 2 || time.Since(since) < reads {
			t.Fatal(on, err, time.Since(since))
		}
		for _, p := range n.peers {
			if err := p.commit(u, data, blob.Default); err != nil {
				t.Errorf("%s: %v", p.id, err)
			}
		}
		time.Sleep(2 * reads)
	})
}
