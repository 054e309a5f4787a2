package ledger

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	entries, seals, blocks, guardErrors prometheus.Counter
	size, stopped                       prometheus.Gauge
	commit                              prometheus.Histogram
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "verae", Subsystem: "ledger", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "verae", Subsystem: "ledger", Name: name, Help: help})
	}
	return metrics{
		seals:       counter("seals_total", "Digests sealed."),
		entries:     counter("entries_total", "Entries answered with a seal; those above verae_ledger_seals_total had one before."),
		blocks:      counter("blocks_total", "Blocks committed."),
		guardErrors: counter("guard_errors_total", "Failed writes of the fork guard."),
		size:        gauge("leaves", "Durable leaves in the log."),
		stopped:     gauge("stopped", "1 after a failed commit, or when a witness has seen more of the log than there is, until the ledger is opened anew."),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "verae", Subsystem: "ledger", Name: "commit_seconds",
			Help:    "Time to write and sync one block.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 14),
		}),
	}
}

// Metrics returns the collectors of l, to be registered once.
func (l *Ledger) Metrics() []prometheus.Collector {
	m := l.metrics
	return []prometheus.Collector{m.entries, m.seals, m.blocks, m.guardErrors, m.size, m.stopped, m.commit}
}
