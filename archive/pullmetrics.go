package archive

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/wire"
)

// Metrics returns the puller's collectors, labelled with the archive's id.
func (p *Puller) Metrics() []prometheus.Collector { return p.metrics.all }

type pullMetrics struct {
	pulls *prometheus.CounterVec // by result
	bytes prometheus.Counter
	wrong *prometheus.CounterVec // by peer
	all   []prometheus.Collector
}

func newPullMetrics(id wire.ArchiveID) pullMetrics {
	labels := prometheus.Labels{"archive": string(id)}
	m := pullMetrics{
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verae_archive_pulls_total", ConstLabels: labels,
			Help: "Records fetched from other archives by result: stored, duplicate, failed.",
		}, []string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verae_archive_pulled_file_bytes_total", ConstLabels: labels, Help: "Bytes of files fetched from other archives.",
		}),
		wrong: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verae_archive_wrong_answers_total", ConstLabels: labels,
			Help: "Answers of another archive that can not be true: it is damaged, or not what it says.",
		}, []string{"from"}),
	}
	for _, result := range []string{"stored", "duplicate", "failed"} {
		m.pulls.WithLabelValues(result) // shown from the start
	}
	m.all = []prometheus.Collector{m.pulls, m.bytes, m.wrong}
	return m
}

func (m *pullMetrics) pull(out Pulled) {
	switch {
	case out.Err != nil:
		m.pulls.WithLabelValues("failed").Inc()
	case out.Duplicate:
		m.pulls.WithLabelValues("duplicate").Inc()
	default:
		m.pulls.WithLabelValues("stored").Inc()
	}
}
