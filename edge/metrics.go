package edge

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a wait for a job.
const (
	waitEnded   = "ended"   // the job ended in time
	waitPassed  = "passed"  // the time passed; 202
	waitDrained = "drained" // the server stops; 202
	waitGone    = "gone"    // the client left
	waitFailed  = "failed"  // the state could not be read
)

// metrics counts what passes the door. Labels hold neither tenants nor digests.
type metrics struct {
	requests *prometheus.CounterVec   // route, method, class
	seconds  *prometheus.HistogramVec // route
	inFlight prometheus.Gauge
	uploads  prometheus.Gauge
	received prometheus.Counter
	sent     prometheus.Counter
	waits    *prometheus.CounterVec // outcome
	panics   prometheus.Counter
}

func newMetrics() *metrics {
	const ns, sub = "verae", "edge"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help})
	}
	return &metrics{
		requests: counter("requests_total", "Requests answered, by route pattern, method and class of status.", "route", "method", "class"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "request_duration_seconds", Help: "Time from the headers of a request to the end of its answer.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 26, 60, 300},
		}, []string{"route"}),
		inFlight: gauge("in_flight_requests", "Requests being worked on."),
		uploads:  gauge("open_uploads", "Requests that are sending a file or a large body."),
		received: counter("received_bytes_total", "Bytes of request bodies read.").WithLabelValues(),
		sent:     counter("sent_bytes_total", "Bytes of answers written, without headers.").WithLabelValues(),
		waits:    counter("waits_total", "Waits for a job, by how they ended.", "outcome"),
		panics:   counter("panics_total", "Handlers that panicked.").WithLabelValues(),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds, m.inFlight, m.uploads, m.received, m.sent, m.waits, m.panics}
}

// done counts an exchange that has ended.
func (m *metrics) done(x *exchange) {
	class := strconv.Itoa(x.status/100) + "xx"
	m.requests.WithLabelValues(x.route, method(x.r), class).Inc()
	m.seconds.WithLabelValues(x.route).Observe(time.Since(x.start).Seconds())
	m.received.Add(float64(x.body.got))
	m.sent.Add(float64(x.sent))
}
