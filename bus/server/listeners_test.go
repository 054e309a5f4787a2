package server

import (
	"net/url"
	"slices"
	"testing"

	embedded "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const asked = "verae.archive.query"

// names returns who listens, and whether that is everybody.
func (s *Server) names(t *testing.T) (list []string, whole bool) {
	t.Helper()
	all, whole, err := s.Listeners(asked)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		list = append(list, l.Name+" "+l.Subject)
	}
	return list, whole
}

func (s *Server) version(t *testing.T) uint64 {
	t.Helper()
	v, err := s.Version()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A census names everybody whom a message would reach, also by a wildcard or in a
// queue group, and nobody else; and each change of that is a new version.
func TestListenersAreThoseWhomAMessageReaches(t *testing.T) {
	s := start(t, Config{})
	pipe := dial(t, "", nats.InProcessServer(s), nats.Name("pipe"))
	tcp := dial(t, s.ClientURL(), nats.Name("tcp"))
	seen := map[uint64]bool{s.version(t): true}
	var subs []*nats.Subscription
	for _, step := range []struct {
		subscribe func() (*nats.Subscription, error)
		want      []string
	}{
		{func() (*nats.Subscription, error) { return pipe.SubscribeSync(asked) }, []string{"pipe " + asked}},
		{func() (*nats.Subscription, error) { return tcp.SubscribeSync("verae.archive.put") }, []string{"pipe " + asked}},
		{func() (*nats.Subscription, error) { return tcp.SubscribeSync("verae.*.query") }, []string{"pipe " + asked, "tcp verae.*.query"}},
		{func() (*nats.Subscription, error) { return tcp.QueueSubscribeSync(asked, "q") }, []string{"pipe " + asked, "tcp verae.*.query", "tcp " + asked}},
	} {
		sub, err := step.subscribe()
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
		s.seen(t, seen, pipe, tcp)
		got, whole := s.names(t)
		if !whole || !slices.Equal(sorted(got), sorted(step.want)) {
			t.Errorf("%q, whole %v; want %q", got, whole, step.want)
		}
	}
	// One goes and another comes: as many as before, and another version.
	if err := subs[0].Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	s.seen(t, seen, pipe, tcp)
	gone := make(chan struct{})
	tcp.SetClosedHandler(func(*nats.Conn) { close(gone) })
	tcp.Close()
	<-gone
	for got, _ := s.names(t); len(got) > 0; got, _ = s.names(t) {
		if err := pipe.Flush(); err != nil { // the server has yet to notice
			t.Fatal(err)
		}
	}
	s.seen(t, seen, pipe)
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// seen waits until the server knows what the clients sent, and checks that its
// version is a new one and stays.
func (s *Server) seen(t *testing.T, versions map[uint64]bool, clients ...*nats.Conn) {
	t.Helper()
	for _, nc := range clients {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	v := s.version(t)
	if versions[v] || v != s.version(t) {
		t.Errorf("version %d was there before, or does not stay", v)
	}
	versions[v] = true
}

// Other servers have listeners that nobody here can see.
func TestCensusIsNotWholeBesideOtherServers(t *testing.T) {
	remote := []*url.URL{{Scheme: "nats", Host: "127.0.0.1:1"}}
	for name, c := range map[string]struct {
		options func(*embedded.Options)
		whole   bool
	}{
		"alone": {nil, true},
		"routes": {func(o *embedded.Options) {
			o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "c", DefaultHost, RandomPort
		}, false},
		"gateway": {func(o *embedded.Options) {
			o.Gateway.Name, o.Gateway.Host, o.Gateway.Port = "g", DefaultHost, RandomPort
			o.Cluster.Name = "g"
		}, false},
		"leaf nodes":   {func(o *embedded.Options) { o.LeafNode.Host, o.LeafNode.Port = DefaultHost, RandomPort }, false},
		"a leaf of it": {func(o *embedded.Options) { o.LeafNode.Remotes = []*embedded.RemoteLeafOpts{{URLs: remote}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Config{options: c.options})
			if _, whole := s.names(t); whole != c.whole {
				t.Errorf("whole is %v, want %v", whole, c.whole)
			}
		})
	}
}
