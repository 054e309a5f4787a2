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
	unsaved prometheus.Counter
	proofs  *prometheus.CounterVec // by outcome
	all     []prometheus.Collector
}

func newRosterMetrics(r *Roster) rosterMetrics {
	m := rosterMetrics{
		hellos:  counter("hellos_total", "Hellos of enrolled archives.", nil),
		refused: counters("hellos_refused_total", "Hellos that were ignored.", "reason", nil),
		unsaved: counter("memory_failures_total", "Writes of memory.json that failed.", nil),
		proofs:  counters("proofs_total", "Proofs that an archive's log continues the one remembered, by outcome.", "outcome", nil),
	}
	in := func(states ...string) func() float64 {
		return func() float64 { return float64(r.count(states)) }
	}
	m.all = []prometheus.Collector{
		m.hellos, m.refused, m.unsaved, m.proofs,
		gauge("archives_lost", "Archives that have less than they acknowledged: an operator must look.", nil, func() float64 { return float64(len(r.Lost())) }),
		gauge("archives_fenced", "Archives of which only a generation that was replaced says hello.", nil, in(StateFenced)),
		gauge("archives_unaccepted", "Archives of which only a generation that waits to be accepted says hello.", nil, in(StateUnaccepted)),
		gauge("archives_enrolled", "Archives in the roster.", nil, func() float64 { return float64(len(r.Enrolled())) }),
		gauge("archives_writable", "Archives that may be offered a put.", nil, func() float64 { return float64(r.Reachable()) }),
		gauge("archives_quarantined", "Archives whose id two live processes use.", nil, in(StateQuarantined)),
	}
	return m
}

// count returns how many archives are in one of the states.
func (r *Roster) count(states []string) (n int) {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, m := range r.members {
		if slices.Contains(states, m.state(now)) {
			n++
		}
	}
	return n
}
