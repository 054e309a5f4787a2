package jobs

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	completed, failed, retries, putFailures prometheus.Counter
	updated                                 prometheus.Counter
	accounted, absent                       prometheus.Counter
	ocrQueued, ocrClaimed, ocrDone          prometheus.Counter
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
		ocrQueued:   counter("ocr_queued_total", "Messages of OCR jobs that were put into the outbox."),
		ocrClaimed:  counter("ocr_claimed_total", "Messages of OCR jobs that were handed out to be published, also those handed out again."),
		ocrDone:     counter("ocr_done_total", "Messages of OCR jobs that left the outbox because they were published."),
		uncopied:    gauge("uncopied", "Submissions that have ended and lacked copies when last looked at."),
		lost:        gauge("lost_records", "Records that were acknowledged and are on no archive: an operator must look."),
	}
}

// Metrics returns the engine's collectors.
func (e *Engine) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		e.metrics.completed, e.metrics.failed, e.metrics.updated, e.metrics.retries, e.metrics.putFailures, e.metrics.uncopied,
		e.metrics.accounted, e.metrics.absent, e.metrics.lost, e.metrics.ocrQueued, e.metrics.ocrClaimed, e.metrics.ocrDone,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "verae", Subsystem: "jobs", Name: "ocr_waiting", Help: "Messages of OCR jobs in the outbox, those handed out included.",
		}, func() float64 { return float64(e.ocr.waiting.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "verae", Subsystem: "jobs", Name: "ocr_oldest_seconds", Help: "How long the oldest message of an OCR job has waited in the outbox: if it grows, nobody publishes them.",
		}, e.oldestOCR),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "verae", Subsystem: "jobs", Name: "open", Help: "Submissions that have not ended.",
		}, func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(len(e.open))
		}),
	}
}
