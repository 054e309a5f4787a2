package bus

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestConnectRefusesWhatCannotWork(t *testing.T) {
	leakCheck(t)
	small := startServer(t, server.Config{MaxPayload: MinPayload - 1})
	enough := startServer(t, server.Config{MaxPayload: MinPayload})
	seed := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(seed, []byte("no seed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg   Config
		field string
		text  string
	}{
		"no server":     {Config{Name: "edge"}, "NATS_URL", "NATS_URL"},
		"no name":       {Config{URL: enough.ClientURL()}, "name", "match"},
		"odd name":      {Config{URL: enough.ClientURL(), Name: "a.b"}, "name", "a.b"},
		"small payload": {Config{URL: small.ClientURL(), Name: "edge"}, "", "524287"},
		"no seed":       {Config{URL: enough.ClientURL(), Name: "edge", NKeyFile: seed}, "NATS_NKEY_FILE", seed},
		"no seed file":  {Config{URL: enough.ClientURL(), Name: "edge", NKeyFile: seed + "x"}, "NATS_NKEY_FILE", seed},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Connect(tc.cfg)
			if err == nil {
				c.Close()
			}
			if !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != tc.field {
				t.Fatalf("got %v (field %q)", err, fault.FieldOf(err))
			}
			wantText(t, err, tc.text)
		})
	}
	c, err := Connect(Config{URL: enough.ClientURL(), Name: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A program may start before its server. Nothing that is published meanwhile is
// pretended to be sent.
func TestConnectBeforeTheServerIsThere(t *testing.T) {
	leakCheck(t)
	first := startServer(t, server.Config{})
	u, err := url.Parse(first.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(Config{URL: first.ClientURL(), Name: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if c.Connected() {
		t.Fatal("connected to nothing")
	}
	heard := make(chan []byte, 1)
	stop, err := c.SubscribeEvents(func(event []byte) { heard <- event })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	wantFault(t, c.PublishEvent([]byte("lost")), fault.Transient, CodeDisconnected)

	startServer(t, server.Config{Port: port})
	eventually(t, "connected", c.Connected)
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.PublishEvent([]byte("heard")); err != nil {
		t.Fatal(err)
	}
	if got := string(<-heard); got != "heard" {
		t.Errorf("heard %q", got)
	}
}

// Control goes through the pipe, bulk over TCP, and both reach each other.
func TestInProcessConnectionCarriesControl(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	for name, cfg := range map[string]Config{
		"pipe and TCP":  {Name: "aggregator", URL: s.ClientURL(), InProcess: s},
		"pipe for both": {Name: "aggregator", InProcess: s},
	} {
		c, err := Connect(cfg)
		if err != nil {
			t.Fatal(name, err)
		}
		sub, err := c.ctl.SubscribeSync("x")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.bulk.Publish("x", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.NextMsgWithContext(t.Context()); err != nil {
			t.Error(name, err)
		}
		if piped := c.bulk.Opts.InProcessServer != nil; piped != (cfg.URL == "") || c.ctl.Opts.InProcessServer == nil {
			t.Errorf("%s: bulk by pipe: %v", name, piped)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReconnectIsCountedAndHooksRun(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "edge")
	up := make(chan struct{}, 10)
	remove := c.onUp(func() { up <- struct{}{} })
	for n := range 3 {
		if err := c.ctl.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "reconnected", func() bool { return count(c.metrics.reconnects) == n+1 })
		<-up
	}
	remove()
	if len(c.ups) != 0 {
		t.Error("the hook is still there")
	}
}

// nats.go reports the first message of a series that it dropped; all count.
func TestMessagesDroppedByTheLibraryAreCounted(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "edge")
	block := make(chan struct{})
	sub, err := c.subscribe(c.ctl, "flood", "", func(*nats.Msg) { <-block })
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(10, -1); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := c.bulk.Publish("flood", nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the rest is counted", func() bool { return c.metrics.dropped.total() == 90 })
	eventually(t, "the report is counted", func() bool { return count(c.metrics.errors.WithLabelValues("slow-consumer")) > 0 })
	close(block)
	c.unsubscribe(sub)
	if n := c.metrics.dropped.total(); n != 90 {
		t.Errorf("%d after the subscription ended", n)
	}
}

func TestCloseAndDrainEndForGood(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{
		"close": (*Conn).Close,
		"drain": func(c *Conn) error { return c.Drain(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			s := startServer(t, server.Config{})
			c := connect(t, s, "edge")
			var handled atomic.Int64
			if _, err := c.subscribe(c.ctl, "x", "", func(*nats.Msg) { handled.Add(1) }); err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 1000 {
				if err := c.ctl.Publish("x", nil); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // again is safe
				if err := end(c); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-c.Lost():
			default:
				t.Error("not lost")
			}
			if name == "drain" && handled.Load() != 1000 {
				t.Errorf("%d of 1000 messages handled before the drain ended", handled.Load())
			}
			wantFault(t, c.PublishWatch(wire.Watch{}), fault.Transient, CodeDisconnected)
			wantFault(t, c.Flush(context.Background()), fault.Transient, CodeDisconnected)
		})
	}
}

// What has arrived when a drain begins is handled before the drain ends.
func TestDrainHandlesWhatHasArrived(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "edge")
	block := make(chan struct{})
	var handled atomic.Int64
	sub, err := c.subscribe(c.ctl, "x", "", func(*nats.Msg) { <-block; handled.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := c.ctl.Publish("x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	drained := make(chan error, 1)
	go func() { drained <- c.drain(t.Context(), sub) }()
	eventually(t, "the drain has begun", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.subs) == 0
	})
	close(block)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if n := handled.Load(); n != 10 {
		t.Errorf("%d of 10 messages handled", n)
	}
	if err := c.drain(t.Context(), sub); err != nil { // again is safe
		t.Error(err)
	}
}

// A program that is stopped while its server is away has nothing left to send,
// and ends in order.
func TestDrainWithoutAServer(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "edge")
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both parts have noticed", func() bool { return !c.ctl.IsConnected() && !c.bulk.IsConnected() })
	if err := c.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Lost():
	default:
		t.Error("not lost")
	}
}

func TestDrainIsBoundedByItsContext(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "edge")
	block, in := make(chan struct{}), make(chan struct{})
	if _, err := c.subscribe(c.ctl, "x", "", func(*nats.Msg) { close(in); <-block }); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.ctl.Publish("x", nil); err != nil {
		t.Fatal(err)
	}
	<-in
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Drain(ctx); !fault.Is(err, fault.Transient) {
		t.Errorf("got %v", err)
	}
	close(block)
}

// The answers of a role travel below its own inbox prefix, so that permissions
// can keep others away from them.
func TestAnswersTravelBelowTheRolesInbox(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "archive-a")
	for _, nc := range []*nats.Conn{c.ctl, c.bulk} {
		if inbox := nc.NewInbox(); len(inbox) < 20 || inbox[:len("_INBOX_archive-a.")] != "_INBOX_archive-a." {
			t.Error(inbox)
		}
	}
}

func TestWatchesGoToOnePollerAndEventsToAll(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	const listeners, messages = 3, 50
	var watches, events atomic.Int64
	for i := range listeners {
		c := connect(t, s, fmt.Sprintf("aggregator-%d", i))
		stopWatch, err := c.SubscribeWatch(func(w wire.Watch) {
			if w.TenantID != tenantA {
				t.Errorf("got %+v", w)
			}
			watches.Add(1)
		})
		if err != nil {
			t.Fatal(err)
		}
		stopEvents, err := c.SubscribeEvents(func(event []byte) {
			if string(event) != `{"n": 1.0}` { // the exact bytes
				t.Errorf("got %s", event)
			}
			events.Add(1)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopWatch(); stopEvents() })
	}
	c := connect(t, s, "edge")
	watch := wire.Watch{JobID: wire.NewJobID(), SubmissionID: wire.NewSubmissionID(), SHA256: digestOf("x"), TenantID: tenantA}
	for range messages {
		if err := c.PublishWatch(watch); err != nil {
			t.Fatal(err)
		}
		if err := c.PublishEvent([]byte(`{"n": 1.0}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"", "null", "{}", `{"jobId":"x"}`} {
		if err := c.ctl.Publish(wire.SubjectJobsWatch, []byte(bad)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are heard", func() bool { return watches.Load() == messages && events.Load() == messages*listeners })
	err := c.PublishEvent(make([]byte, server.DefaultMaxPayload+1))
	wantFault(t, err, fault.Invalid, CodeTooLarge)
}

// NA-03: subscribed means heard, also by publishers on other connections.
func TestSubscribedMeansHeard(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c, other := connect(t, s, "edge"), connect(t, s, "poller")
	for i := range 500 {
		heard := make(chan struct{})
		stop, err := c.SubscribeEvents(func([]byte) { close(heard) })
		if err != nil {
			t.Fatal(err)
		}
		if err := other.PublishEvent(nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-time.After(30 * time.Second):
			t.Fatalf("event %d was missed", i)
		}
		stop()
	}
}
