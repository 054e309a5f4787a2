package bus

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// A receiver gets the messages for one token.
type receiver interface {
	deliver(*nats.Msg) // must not block
	shut()             // ends the receiver; it must end its goroutines then, and start none
}

// A mux spreads the messages of ONE wildcard subscription, made at start, over
// receivers by the last token of the subject. A subscription per request would
// travel over every route of a cluster, and loses answers across gateways.
type mux struct {
	prefix string // ends in a dot
	late   prometheus.Counter

	running sync.WaitGroup // goroutines of receivers
	mu      sync.RWMutex   // guards all below
	open    map[string]receiver
	closed  bool
}

func newMux(prefix string, late prometheus.Counter) *mux {
	return &mux{prefix: prefix, late: late, open: map[string]receiver{}}
}

// add registers r for token and starts run, its goroutine, if it has one. It reports
// false when the token is taken or the mux is closed.
func (m *mux) add(token string, r receiver, run func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.open[token]; taken || m.closed {
		return false
	}
	m.open[token] = r
	if run != nil {
		m.running.Go(run)
	}
	return true
}

// remove ends the registration of token. A message under way then counts as late.
func (m *mux) remove(token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, token)
}

// close shuts all receivers and waits for their goroutines.
func (m *mux) close() {
	m.mu.Lock()
	m.closed = true
	all := slices.Collect(maps.Values(m.open))
	m.mu.Unlock()
	for _, r := range all {
		r.shut()
	}
	m.running.Wait()
}

// dispatch is the handler of the subscription.
func (m *mux) dispatch(msg *nats.Msg) {
	m.mu.RLock()
	r := m.open[strings.TrimPrefix(msg.Subject, m.prefix)]
	m.mu.RUnlock()
	if r == nil {
		m.late.Inc()
		return
	}
	r.deliver(msg)
}

// unheard reports whether msg is the server's word that nobody listens: an empty
// message with status 503, which only a publish with a reply subject gets.
func unheard(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}
