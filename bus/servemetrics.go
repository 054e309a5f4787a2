package bus

import (
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/wire"
)

// Metrics returns the service's collectors, labelled with the archive's id.
func (s *ArchiveService) Metrics() []prometheus.Collector { return s.metrics.all }

type serviceMetrics struct {
	queries  *prometheus.CounterVec // by outcome
	silent   prometheus.Counter     // of queries: the filter said absent
	unseen   *unseen
	pages    prometheus.Counter
	puts     *prometheus.CounterVec // by outcome
	frames   *prometheus.CounterVec // by outcome
	unsent   prometheus.Counter
	failures prometheus.Counter
	twins    prometheus.Counter
	all      []prometheus.Collector
}

func newServiceMetrics(id wire.ArchiveID) serviceMetrics {
	fixed := prometheus.Labels{"archive": string(id)}
	m := serviceMetrics{
		unseen:   &unseen{},
		queries:  counters("archive_queries_total", "Queries heard, by outcome: absent (the filter denies it), silent (nothing for the caller), empty (the same, and a word was expected), answered, failed, dropped (too many wait; nobody answers it), expired (nobody waits for it any more), malformed, bad-correlation-id, unsent.", "outcome", fixed),
		pages:    counter("archive_reply_pages_total", "Messages sent as replies to queries.", fixed),
		puts:     counters("archive_puts_total", "Puts heard.", "outcome", fixed),
		frames:   counters("archive_blob_frames_total", "Blob frames heard.", "outcome", fixed),
		unsent:   counter("archive_answers_unsent_total", "Answers that could not be sent.", fixed),
		failures: counter("archive_failures_total", "Requests that failed for reasons of our own.", fixed),
		twins:    counter("archive_twin_hellos_total", "Hellos of another process with this archive's id.", fixed),
	}
	m.silent = m.queries.WithLabelValues("absent")
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: "archive_queries_unseen_total", ConstLabels: fixed,
		Help: "Queries that came and were dropped before the archive took them, because too many waited.",
	}, m.unseen.read)
	m.all = []prometheus.Collector{m.queries, dropped, m.pages, m.puts, m.frames, m.unsent, m.failures, m.twins}
	return m
}

// unseen counts the queries that nats.go dropped because too many waited on the
// subscription.
type unseen struct {
	mu    sync.Mutex // guards all below
	sub   *nats.Subscription
	total float64 // as last read; an ended subscription tells no more
}

// of says which subscription it is.
func (u *unseen) of(sub *nats.Subscription) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sub = sub
}

func (u *unseen) read() float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total = max(u.total, float64(droppedBy(u.sub)))
	return u.total
}
