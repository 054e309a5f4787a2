package bus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/wire"
)

// Metrics returns the client's collectors.
func (a *Archives) Metrics() []prometheus.Collector { return a.metrics.all }

type clientMetrics struct {
	puts       *prometheus.CounterVec // by outcome
	asks       prometheus.Counter
	unheard    prometheus.Counter
	gone       prometheus.Counter
	late       prometheus.Counter
	lateAcks   prometheus.Counter
	badReplies *prometheus.CounterVec // by reason
	lanes      *prometheus.CounterVec // by outcome
	away       prometheus.Counter
	resumed    prometheus.Counter
	all        []prometheus.Collector
}

func newClientMetrics(a *Archives) clientMetrics {
	m := clientMetrics{
		puts:       counters("puts_total", "Puts sent to archives.", "outcome", nil),
		asks:       counter("queries_total", "Queries published.", nil),
		unheard:    counter("queries_unheard_total", "Queries that nobody listened to.", nil),
		gone:       counter("queries_gone_total", "Named archives that a query did not reach: nobody listened for them.", nil),
		late:       counter("replies_late_total", "Replies to queries that had ended, or never were.", nil),
		lateAcks:   counter("upload_acks_late_total", "Acknowledgements for uploads that had ended.", nil),
		badReplies: counters("replies_dropped_total", "Replies that were not passed on.", "reason", nil),
		lanes:      counters("upload_copies_total", "Copies of uploads by how they ended.", "outcome", nil),
		away:       counter("upload_copies_away_total", "Times that an archive went away from an upload under way.", nil),
		resumed:    counter("upload_copies_resumed_total", "Times that an upload went on at an archive that had been away.", nil),
	}
	m.all = []prometheus.Collector{
		m.puts, m.asks, m.unheard, m.gone, m.late, m.lateAcks, m.badReplies, m.lanes, m.away, m.resumed,
		gauge("upload_memory_bytes", "Bytes that uploads hold beyond what each may have in any case, until archives have them on disk.", nil,
			func() float64 { return float64(len(a.shared) * wire.FragmentSize) }),
		gauge("replies_queued_bytes", "Bytes of replies that no query has taken yet.", nil,
			func() float64 { return float64(a.queued.Load() + a.strange.Load()) }),
	}
	return m
}
