package server

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Port == 0 {
		cfg.Port = RandomPort
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestListensOnLoopbackOnly(t *testing.T) {
	s := start(t, Config{})
	u, err := url.Parse(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		t.Fatalf("listens on %s, want a loopback address", u.Host)
	}
	if u.Port() == "4222" || u.Port() == "0" {
		t.Fatalf("port %s is not a random one", u.Port())
	}
}

func TestTCPAndPipeReachTheSameServer(t *testing.T) {
	s := start(t, Config{})
	tcp := dial(t, s.ClientURL())
	pipe := dial(t, "", nats.InProcessServer(s))
	sub, err := tcp.SubscribeSync("greeting")
	if err != nil {
		t.Fatal(err)
	}
	if err := tcp.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Publish("greeting", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	msg, err := sub.NextMsgWithContext(t.Context())
	if err != nil || string(msg.Data) != "hello" {
		t.Fatalf("got %v, %v", msg, err)
	}
}

func TestMaxPayloadIsAnnounced(t *testing.T) {
	for _, want := range []int32{0, 600 << 10} {
		s := start(t, Config{MaxPayload: want})
		if want == 0 {
			want = DefaultMaxPayload
		}
		if got := dial(t, s.ClientURL()).MaxPayload(); got != int64(want) {
			t.Errorf("MaxPayload %d, want %d", got, want)
		}
	}
}

func TestNoStoreAndNoJetStream(t *testing.T) {
	s := start(t, Config{})
	if s.nats.JetStreamEnabled() {
		t.Error("JetStream is on")
	}
	if s.nats.MonitorAddr() != nil {
		t.Error("monitoring port is open")
	}
}

// A taken port must be an error of Start, not the end of the process.
func TestTakenPortFailsTheStart(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	_, err = Start(Config{Port: port, StartTimeout: time.Minute})
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Fatalf("got %v, want an error that names port %d", err, port)
	}
}

func TestShutdownClosesClientsAndMayBeRepeated(t *testing.T) {
	s := start(t, Config{})
	closed := make(chan struct{})
	dial(t, s.ClientURL(), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	for range 2 {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-closed
	if _, err := s.InProcessConn(); err == nil {
		t.Error("a server that is down gave out a connection")
	}
}

func TestShutdownIsBoundedByItsContext(t *testing.T) {
	s := start(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
