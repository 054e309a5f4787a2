package receipts

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/wire"
)

// reasonError labels gatherings that returned an error.
const reasonError = "error"

// reasonFound labels those that had what they looked for, and did not wait for
// silent archives.
const reasonFound = "found"

// metrics counts silence as well as answers.
type metrics struct {
	gatherings *prometheus.CounterVec
	seconds    prometheus.Histogram
	dropped    *prometheus.CounterVec
	archives   *prometheus.CounterVec
	unasked    prometheus.Counter

	named, silent, sampled, gone prometheus.Counter // of archives
}

// How archives take part in gatherings, as they are counted.
const (
	partNamed   = "named"   // an answer is expected
	partSilent  = "silent"  // it has nothing by its mirror
	partSampled = "sampled" // the same, and it is asked whether that is right
	partGone    = "gone"    // the question did not reach it
)

func newMetrics() *metrics {
	const namespace, subsystem = "verae", "receipts"
	m := &metrics{
		gatherings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "gatherings_total",
			Help: "Fan-outs to the archives, by why they ended: all, deadline, found (a file was, and silent archives were not waited for), no-archives or error.",
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
		archives: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "archives_total",
			Help: "Enrolled archives in fan-outs, by the part they had: named, of which an answer was expected; silent, which had nothing by their mirror; sampled, the same and asked whether that is right; and gone, named ones that the question did not reach.",
		}, []string{"part"}),
		unasked: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "unasked_total",
			Help: "Fan-outs for which nobody was asked, because no archive had anything by its mirror.",
		}),
	}
	m.named, m.silent = m.archives.WithLabelValues(partNamed), m.archives.WithLabelValues(partSilent)
	m.sampled, m.gone = m.archives.WithLabelValues(partSampled), m.archives.WithLabelValues(partGone)
	for _, reason := range dropReasons {
		m.dropped.WithLabelValues(reason) // present from the start, at 0
	}
	return m
}

func (m *metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }

func (m *metrics) asked(run *gathering, named int) {
	m.named.Add(float64(named))
	m.silent.Add(float64(run.silent))
}

// end counts how a gathering ended; short says that its wait may have been cut.
func (m *metrics) end(g Gathered, err error, took time.Duration, short bool) {
	reason := g.Reason
	switch {
	case err != nil:
		reason = reasonError
	case short && reason == wire.ReasonDeadline:
		reason = reasonFound
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
	return []prometheus.Collector{m.gatherings, m.seconds, m.dropped, m.archives, m.unasked}
}
