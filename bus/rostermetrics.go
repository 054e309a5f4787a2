package bus

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics returns the roster's collectors.
func (r *Roster) Metrics() []prometheus.Collector { return slices.Clone(r.metrics.all) }

type rosterMetrics struct {
	hellos  prometheus.Counter
	refused *prometheus.CounterVec // by reason
	all     []prometheus.Collector
}

func newRosterMetrics(r *Roster) rosterMetrics {
	m := rosterMetrics{
		hellos:  counter("hellos_total", "Hellos of enrolled archives.", nil),
		refused: counters("hellos_refused_total", "Hellos that were ignored.", "reason", nil),
	}
	m.all = []prometheus.Collector{
		m.hellos, m.refused,
		gauge("archives_enrolled", "Archives in the roster.", nil, func() float64 { return float64(len(r.Enrolled())) }),
		gauge("archives_writable", "Archives that may be offered a put.", nil, func() float64 { return float64(r.Reachable()) }),
		gauge("archives_quarantined", "Archives whose id two live processes use.", nil, func() float64 {
			now, n := r.now(), 0
			r.mu.RLock()
			defer r.mu.RUnlock()
			for _, member := range r.members {
				if member.state(now) == StateQuarantined {
					n++
				}
			}
			return float64(n)
		}),
	}
	return m
}
