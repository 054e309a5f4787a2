package archive

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// metrics counts what an archive does, silence included.
type metrics struct {
	all []prometheus.Collector

	miss, falsePositive, denied, hit, failed        prometheus.Counter
	stored, duplicates, conflicts, refused, unknown prometheus.Counter
	markErrors                                      prometheus.Counter
	batch, sync                                     prometheus.Histogram
}

func newMetrics(n *Node) *metrics {
	labels := prometheus.Labels{"archive": string(n.cfg.ID)}
	queries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verae_archive_queries_total", ConstLabels: labels,
		Help: "Queries by result: miss (a filter says absent), false_positive (nothing stored), denied (nothing for the caller), hit, error.",
	}, []string{"result"})
	puts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verae_archive_puts_total", ConstLabels: labels,
		Help: "Puts by result: stored, duplicate, conflict, refused (invalid, or not now), error (perhaps stored).",
	}, []string{"result"})
	m := &metrics{
		miss:          queries.WithLabelValues("miss"),
		falsePositive: queries.WithLabelValues("false_positive"),
		denied:        queries.WithLabelValues("denied"),
		hit:           queries.WithLabelValues("hit"),
		failed:        queries.WithLabelValues("error"),
		stored:        puts.WithLabelValues("stored"),
		duplicates:    puts.WithLabelValues("duplicate"),
		conflicts:     puts.WithLabelValues("conflict"),
		refused:       puts.WithLabelValues("refused"),
		unknown:       puts.WithLabelValues("error"),
		markErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verae_archive_mark_errors_total", ConstLabels: labels, Help: "Failed writes of the mark or the skeleton.",
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "verae_archive_commit_records", ConstLabels: labels, Help: "Records in a commit.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "verae_archive_commit_seconds", ConstLabels: labels, Help: "Time of a commit with its fsync.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
	}
	m.all = []prometheus.Collector{queries, puts, m.markErrors, m.batch, m.sync}
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"records", "Durable records that can be read.", func() float64 { return float64(n.records()) }},
		{"lost_records", "Records of which only the leaf is left, and files whose bytes are gone: no copy was found at a repair, and none came since.", func() float64 { return float64(n.lost.count.Load()) }},
		{"mark_age_seconds", "For how long the oldest durable record that no mark covers has been waiting for one; 0 if there is none.", func() float64 { return n.keeper.age().Seconds() }},
		{"clock_behind_seconds", "By how much the clock is behind the last record.", func() float64 { return n.clockBehind().Seconds() }},
		{"readonly", "1 if the archive only answers: it is damaged, its store failed, its disk is full, or it was told to.", func() float64 {
			state, _ := n.health.state()
			return gauge(state == wire.StateReadonly)
		}},
		{"disk_free_bytes", "Free bytes on the disk of the records; 0 if it does not tell.", func() float64 { return float64(n.disk.Usage().Free) }},
		{"disk_reserve_bytes", "Free bytes below which nothing more is stored.", func() float64 { return float64(n.disk.Usage().Reserve) }},
	} {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "verae_archive_" + g.name, ConstLabels: labels, Help: g.help,
		}, g.value))
	}
	for _, f := range n.filters() {
		m.all = append(m.all, f.metrics(prometheus.Labels{"archive": string(n.cfg.ID), "filter": f.name})...)
	}
	return m
}

func gauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// Metrics returns the node's collectors. They carry the archive's id as a label,
// so that several nodes can share a registry.
func (n *Node) Metrics() []prometheus.Collector { return n.metrics.all }

// query counts a query that passed the filter: rows were found under the digest,
// records were answered.
func (m *metrics) query(rows, records int, err error) {
	switch {
	case err != nil:
		m.failed.Inc()
	case rows == 0:
		m.falsePositive.Inc()
	case records == 0:
		m.denied.Inc()
	default:
		m.hit.Inc()
	}
}

func (m *metrics) put(out outcome) {
	switch {
	case out.err == nil && out.duplicate:
		m.duplicates.Inc()
	case out.err == nil:
		m.stored.Inc()
	case fault.Is(out.err, fault.Conflict):
		m.conflicts.Inc()
	case fault.CodeOf(out.err) == codeUnknown:
		m.unknown.Inc()
	case fault.Is(out.err, fault.Invalid), fault.Is(out.err, fault.Transient):
		m.refused.Inc()
	default:
		m.unknown.Inc()
	}
}

func (m *metrics) commit(records int, took time.Duration) {
	m.batch.Observe(float64(records))
	m.sync.Observe(took.Seconds())
}

// Stats is a snapshot of a node for people and tests.
type Stats struct {
	Seq     uint64
	State   string
	Reason  string // code of why it is not up; empty if it is
	Damage  string // why it is in quarantine; empty if it is not
	Filters []FilterStats
	Created time.Time
}

// FilterStats are figures of one of the filters of a node.
type FilterStats struct {
	Name        string // keys or views
	Ready       bool
	Keys        uint64
	Bytes       int
	Fill        float64
	ErrorRate   float64
	Generations int
	Degraded    bool   // it has more keys than it may have memory for
	Suspect     bool   // it is wrong far more often than it should be
	Denied      uint64 // stored keys that it, or a new base of it, denied; must stay 0
}

// Stats returns the node's state.
func (n *Node) Stats() Stats {
	state, reason := n.health.state()
	out := Stats{Seq: n.Seq(), State: state, Reason: reason, Damage: n.health.damage(), Created: n.identity.created}
	for _, f := range n.filters() {
		s := f.set.Stats()
		out.Filters = append(out.Filters, FilterStats{
			Name: f.name, Ready: s.Ready, Keys: s.Keys, Bytes: int(s.Bytes), Fill: s.Fill, ErrorRate: s.EstimatedErrorRate,
			Generations: s.Generations, Degraded: s.Degraded, Suspect: s.Suspect, Denied: s.Repaired + s.RebuildsFailed,
		})
	}
	return out
}
