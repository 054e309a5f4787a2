package jobs

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	completed, failed, retries, putFailures prometheus.Counter
	updated                                 prometheus.Counter
	accounted, absent                       prometheus.Counter
	uncopied, lost                          prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "verae", Subsystem: "jobs", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "verae", Subsystem: "jobs", Name: name, Help: help})
	}
	return &metrics{
		completed:   counter("completed_total", "Submissions that ended with all their receipts."),
		failed:      counter("failed_total", "Submissions that ended without."),
		updated:     counter("updated_total", "Submissions of which archives had more to say after the deadline."),
		retries:     counter("retries_total", "Passes over a submission that have to be made again."),
		putFailures: counter("put_failures_total", "Puts that an archive did not acknowledge."),
		accounted:   counter("accounted_total", "Submissions looked at to account for an archive that lost records."),
		absent:      counter("absent_total", "Records found not to be on an archive that had acknowledged them."),
		uncopied:    gauge("uncopied", "Submissions that have ended and lacked copies when last looked at."),
		lost:        gauge("lost_records", "Records that were acknowledged and are on no archive: an operator must look."),
	}
}

// Metrics returns the engine's collectors.
func (e *Engine) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		e.metrics.completed, e.metrics.failed, e.metrics.updated, e.metrics.retries, e.metrics.putFailures, e.metrics.uncopied,
		e.metrics.accounted, e.metrics.absent, e.metrics.lost,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "verae", Subsystem: "jobs", Name: "open", Help: "Submissions that have not ended.",
		}, func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(len(e.open))
		}),
	}
}
