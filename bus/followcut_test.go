package bus

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A bridge carries connections to a server, until it is cut.
type bridge struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards all below
	cut   bool
	conns []net.Conn
	done  sync.WaitGroup
}

func newBridge(t testing.TB, to string) *bridge {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{listener: l, to: u.Host}
	b.done.Go(b.serve)
	t.Cleanup(func() {
		l.Close()
		b.set(true)
		b.done.Wait()
	})
	return b
}

func (b *bridge) serve() {
	for {
		in, err := b.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", b.to)
		b.mu.Lock()
		if err != nil || b.cut {
			in.Close()
			if out != nil {
				out.Close()
			}
		} else {
			b.conns = append(b.conns, in, out)
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				b.done.Go(func() {
					io.Copy(pair[0], pair[1])
					pair[0].Close()
				})
			}
		}
		b.mu.Unlock()
	}
}

// set cuts the bridge, or mends it.
func (b *bridge) set(cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut = cut; !cut {
		return
	}
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// An aggregator that is cut off believes nothing that was acknowledged meanwhile
// to be absent, and needs the deltas alone when it is back.
func TestAnAggregatorThatWasCutOffCatchesUp(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, 300*time.Millisecond)
	g := newGallery(t, a)
	between := newBridge(t, g.server.ClientURL())
	conn, err := Connect(Config{URL: "nats://" + between.listener.Addr().String(), Name: "aggregator-far"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	eventually(t, "the far one is connected", conn.Connected)
	far, near := g.aggregatorOn(conn, nil), g.aggregator(nil)
	far.trusts(t, "archive-a")
	near.trusts(t, "archive-a")
	between.set(true)
	for _, subject := range []string{"x", "y", "z"} {
		g.put(near, "archive-a", subject)
		if far.silent("archive-a", subject) {
			t.Errorf("%s was acknowledged, and who is cut off denies it", subject)
		}
	}
	between.set(false)
	far.trusts(t, "archive-a")
	for _, subject := range []string{"x", "y", "z"} {
		if far.silent("archive-a", subject) {
			t.Errorf("%s is denied after the reunion", subject)
		}
	}
	if n := count(far.mirrors.metrics.loads.WithLabelValues("loaded")); n != 1 {
		t.Errorf("the filter was copied %d times", n)
	}
}
