package receipts

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reasonError labels gatherings that returned an error.
const reasonError = "error"

// metrics counts silence as well as answers.
type metrics struct {
	gatherings *prometheus.CounterVec
	seconds    prometheus.Histogram
	dropped    *prometheus.CounterVec
}

func newMetrics() *metrics {
	const namespace, subsystem = "verae", "receipts"
	m := &metrics{
		gatherings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "gatherings_total",
			Help: "Fan-outs to the archives, by why they ended: all, deadline, no-archives or error.",
		}, []string{"reason"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "gather_seconds",
			Help:    "How long fan-outs to the archives took.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "dropped_total",
			Help: "Replies and records of archives that were dropped, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range dropReasons {
		m.dropped.WithLabelValues(reason) // present from the start, at 0
	}
	return m
}

func (m *metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }

func (m *metrics) end(g Gathered, err error, took time.Duration) {
	reason := g.Reason
	if err != nil {
		reason = reasonError
	}
	m.gatherings.WithLabelValues(reason).Inc()
	m.seconds.Observe(took.Seconds())
}

func (g *Gatherer) meter() *metrics {
	g.once.Do(func() { g.metrics = newMetrics() })
	return g.metrics
}

// Metrics returns the collectors of this gatherer, for main to register.
func (g *Gatherer) Metrics() []prometheus.Collector {
	m := g.meter()
	return []prometheus.Collector{m.gatherings, m.seconds, m.dropped}
}
