package server

import (
	"cmp"
	"fmt"
	"slices"

	nats "github.com/nats-io/nats-server/v2/server"
)

// maxListeners is how many subscriptions a census lists; with more it is not
// whole.
const maxListeners = 1 << 14

// A Listener is a subscription that a message would reach.
type Listener struct {
	Conn    uint64 // number of its connection
	Name    string // that the connection gave itself; empty: none
	Addr    string // where it comes from; empty: from this process
	Subject string // subscribed to: the one asked about, or a wildcard
}

// Listeners returns the subscriptions that a message on subject would reach, by
// connection. whole says that these are all of them: another server that is
// connected to this one, by route, gateway or leaf node, may have others that
// nobody here can see.
func (s *Server) Listeners(subject string) (list []Listener, whole bool, err error) {
	found, err := s.nats.Subsz(&nats.SubszOptions{Test: subject, Subscriptions: true, Limit: maxListeners, Account: s.nats.GlobalAccount().GetName()})
	if err != nil {
		return nil, false, fmt.Errorf("bus/server: listeners of %s: %w", subject, err)
	}
	for _, sub := range found.Subs {
		client := s.nats.GetClient(sub.Cid)
		if client == nil {
			continue // it has gone, which is a change
		}
		l := Listener{Conn: sub.Cid, Name: client.GetName(), Subject: sub.Subject}
		if addr := client.RemoteAddress(); addr != nil {
			l.Addr = addr.String()
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Listener) int { return cmp.Compare(a.Conn, b.Conn) })
	return list, s.alone() && found.Total <= maxListeners, nil
}

// alone reports whether no other server is connected to this one, and none can
// be.
func (s *Server) alone() bool {
	return !s.linked && s.nats.NumRoutes() == 0 && s.nats.NumLeafNodes() == 0 && s.nats.NumOutboundGateways() == 0
}

// linked reports whether a server with these options connects to other servers,
// or lets them connect.
func linked(o *nats.Options) bool {
	return o.Cluster.Port != 0 || len(o.Routes) > 0 || o.Gateway.Name != "" || o.LeafNode.Port != 0 || len(o.LeafNode.Remotes) > 0
}

// Version is a number that changes whenever a subscription comes or goes, alone
// or with its connection: what Listeners said holds while it stays. It takes
// some microseconds.
func (s *Server) Version() (uint64, error) {
	stats, err := s.nats.Subsz(&nats.SubszOptions{Account: s.nats.GlobalAccount().GetName()})
	if err != nil {
		return 0, fmt.Errorf("bus/server: count of subscriptions: %w", err)
	}
	return stats.NumInserts + stats.NumRemoves, nil
}
