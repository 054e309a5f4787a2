package jobs

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	completed, failed, retries, putFailures prometheus.Counter
	uncopied                                prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "verae", Subsystem: "jobs", Name: name, Help: help})
	}
	return &metrics{
		completed:   counter("completed_total", "Submissions that ended with all their receipts."),
		failed:      counter("failed_total", "Submissions that ended without."),
		retries:     counter("retries_total", "Passes over a submission that have to be made again."),
		putFailures: counter("put_failures_total", "Puts that an archive did not acknowledge."),
		uncopied: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "verae", Subsystem: "jobs", Name: "uncopied", Help: "Submissions that have ended and lacked copies when last looked at.",
		}),
	}
}

// Metrics returns the engine's collectors.
func (e *Engine) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		e.metrics.completed, e.metrics.failed, e.metrics.retries, e.metrics.putFailures, e.metrics.uncopied,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "verae", Subsystem: "jobs", Name: "open", Help: "Submissions that have not ended.",
		}, func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(len(e.open))
		}),
	}
}
