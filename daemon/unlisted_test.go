package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// knowing is a roster of fixed ids.
type knowing struct {
	ids     []wire.ArchiveID
	version uint64
}

func (k *knowing) Knows(id wire.ArchiveID) bool { return slices.Contains(k.ids, id) }
func (k *knowing) Version() uint64              { return k.version }

// Who listens without being enrolled is known at once: as soon as the server has
// a subscription, or has lost it, also where as many are left as before.
func TestCensusKnowsWhoListensAtOnce(t *testing.T) {
	srv, err := server.Start(server.Config{Port: server.RandomPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(t.Context()) })
	dial := func(name string) *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL(), nats.Name(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	listen := func(nc *nats.Conn, subject string) *nats.Subscription {
		sub, err := nc.SubscribeSync(subject)
		if err == nil {
			err = nc.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	silence := func(nc *nats.Conn, sub *nats.Subscription) {
		if err := errors.Join(sub.Unsubscribe(), nc.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	roster := &knowing{ids: []wire.ArchiveID{"archive-a", "archive-b"}, version: 1}
	c := &census{server: srv, roster: roster, log: slog.New(slog.NewTextHandler(&log, nil))}
	expect := func(what string, want int) {
		t.Helper()
		if got := c.take(); got != want || c.unlisted() != (want != 0) {
			t.Errorf("%s: %d listeners, want %d", what, got, want)
		}
	}

	expect("nobody", 0)
	a, err := bus.Connect(bus.Config{URL: srv.ClientURL(), Name: "archive-c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	own := dial("archive-a/control")
	listen(own, wire.SubjectQuery)
	listen(dial("middleware"), wire.SubjectJobsEvents)
	expect("an enrolled archive", 0)
	later := dial("archive-c/control")
	sub := listen(later, wire.SubjectQuery)
	expect("an archive before it is enrolled", 1)
	roster.ids, roster.version = append(roster.ids, "archive-c"), 2
	expect("the same, enrolled", 0)

	seed := dial("")
	first := listen(seed, wire.SubjectQuery)
	expect("a seed-only archive", 1)
	other := dial("archive-a") // the name alone is not how our programs name their connections
	second := listen(other, "verae.archive.>")
	expect("and one with a wildcard", 2)
	silence(seed, first)
	expect("one left", 1)
	silence(later, sub)
	listen(seed, wire.SubjectQuery)
	silence(other, second)
	expect("one came for one that left", 1)
	gone := make(chan struct{})
	seed.SetClosedHandler(func(*nats.Conn) { close(gone) })
	seed.Close()
	<-gone
	for c.unlisted() { // until the server has noticed, which takes it no time of ours
		if err := own.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	expect("all left", 0)
	if text := log.String(); strings.Count(text, "level=WARN") < 3 || strings.Count(text, "level=INFO") < 2 || !strings.Contains(text, "verae.archive.>") {
		t.Errorf("log:\n%s", text)
	}
}

// counting is a server that counts how often it is looked at.
type counting struct {
	version uint64
	whole   bool
	err     error
	list    []server.Listener
	looks   int
}

func (s *counting) Version() (uint64, error) { return s.version, s.err }
func (s *counting) Listeners(string) ([]server.Listener, bool, error) {
	s.looks++
	return slices.Clone(s.list), s.whole, s.err
}

// A census is kept while nothing changes, and who can not be counted may be there.
func TestCensusIsKeptAndDoubts(t *testing.T) {
	srv, roster := &counting{whole: true, list: []server.Listener{{Name: "archive-a/control"}}}, &knowing{ids: []wire.ArchiveID{"archive-a"}}
	c := &census{server: srv, roster: roster, log: slog.New(slog.DiscardHandler)}
	for _, step := range []struct {
		name   string
		change func()
		want   int
		looks  int // more than before
	}{
		{"first", func() {}, 0, 1},
		{"again", func() {}, 0, 0},
		{"a subscription came", func() { srv.version++; srv.list = append(srv.list, server.Listener{Name: "seed"}) }, 1, 1},
		{"again with one", func() {}, 1, 0},
		{"the roster changed", func() { roster.version++ }, 1, 1},
		{"it left", func() { srv.version++; srv.list = srv.list[:1] }, 0, 1},
		{"another server joined", func() { srv.version++; srv.whole = false }, uncounted, 1},
		{"it left again", func() { srv.version++; srv.whole = true }, 0, 1},
		{"the server does not say", func() { srv.err = errors.New("down") }, uncounted, 1},
		{"and again", func() {}, uncounted, 1},
		{"it says again", func() { srv.err = nil }, 0, 1},
	} {
		before := srv.looks
		step.change()
		if got := c.take(); got != step.want || srv.looks-before != step.looks {
			t.Errorf("%s: %d, %d looks; want %d, %d", step.name, got, srv.looks-before, step.want, step.looks)
		}
	}
}

// What UNLISTED_ARCHIVES means where.
func TestUnlistedArchivesSetting(t *testing.T) {
	embedded := &server.Server{}
	for _, tc := range []struct {
		setting, url string
		server       *server.Server
		asks         string // nobody, always, census
		warns        bool
	}{
		{"auto", "", embedded, "census", false},
		{"census", "", embedded, "census", false},
		{"wait", "", embedded, "always", true},
		{"none", "", embedded, "nobody", false},
		{"auto", "nats://elsewhere", nil, "always", true},
		{"wait", "nats://elsewhere", nil, "always", true},
		{"none", "nats://elsewhere", nil, "nobody", false},
		{"census", "nats://elsewhere", nil, "refused", false},
	} {
		t.Run(tc.setting+tc.url, func(t *testing.T) {
			var cfg Aggregator
			if err := parse(t, &cfg, []string{"UNLISTED_ARCHIVES=" + tc.setting, "NATS_URL=" + tc.url}); err != nil {
				t.Fatal(err)
			}
			if err := cfg.Check(); tc.asks == "refused" {
				if !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != "UNLISTED_ARCHIVES" {
					t.Errorf("it is taken: %v", err)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			a := &aggregator{Aggregator: cfg, nats: tc.server, log: slog.New(slog.NewTextHandler(&log, nil))}
			ask := a.unlisted()
			got := "nobody"
			switch {
			case a.census != nil:
				got = "census"
			case ask != nil && ask():
				got = "always"
			}
			if got != tc.asks || strings.Contains(log.String(), "1500") != tc.warns || (a.census.metrics() != nil) != (got == "census") {
				t.Errorf("it asks %s, want %s; log %q", got, tc.asks, log.String())
			}
		})
	}
	var cfg Aggregator
	if err := parse(t, &cfg, []string{"UNLISTED_ARCHIVES=some"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("another value: %v", err)
	}
}
