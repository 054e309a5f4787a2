package bus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/wire"
)

// Metrics returns the service's collectors, labelled with the archive's id.
func (s *ArchiveService) Metrics() []prometheus.Collector { return s.metrics.all }

type serviceMetrics struct {
	queries  *prometheus.CounterVec // by outcome
	silent   prometheus.Counter     // of queries: the filter said absent
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
		queries:  counters("archive_queries_total", "Queries heard.", "outcome", fixed),
		pages:    counter("archive_reply_pages_total", "Messages sent as replies to queries.", fixed),
		puts:     counters("archive_puts_total", "Puts heard.", "outcome", fixed),
		frames:   counters("archive_blob_frames_total", "Blob frames heard.", "outcome", fixed),
		unsent:   counter("archive_answers_unsent_total", "Answers that could not be sent.", fixed),
		failures: counter("archive_failures_total", "Requests that failed for reasons of our own.", fixed),
		twins:    counter("archive_twin_hellos_total", "Hellos of another process with this archive's id.", fixed),
	}
	m.silent = m.queries.WithLabelValues("absent")
	m.all = []prometheus.Collector{m.queries, m.pages, m.puts, m.frames, m.unsent, m.failures, m.twins}
	return m
}
