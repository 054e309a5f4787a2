package bus

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/wire"
)

// States of a mirror.
const (
	MirrorNone    = "none"    // nothing was copied: the archive is asked every time
	MirrorLoading = "loading" // its filter is being copied
	MirrorBehind  = "behind"  // it lacks something, or has no lease: the archive is asked every time
	MirrorTrusted = "trusted" // it says when the archive need not be asked
)

// MirrorState is how the mirror of one archive is.
type MirrorState struct {
	State  string        // one of the above
	Reason string        // why it is not trusted; for people
	At     uint64        // position in the archive's feed
	Lag    uint64        // hashes that it is known to lack
	Late   time.Duration // since when
	Bytes  uint64        // of its bits
}

// State returns how the mirror of an archive is.
func (m *Mirrors) State(id wire.ArchiveID) MirrorState {
	if f := (*m.followers.Load())[id]; f != nil {
		return f.state()
	}
	return MirrorState{State: MirrorNone, Reason: "not followed"}
}

func (f *follower) state() MirrorState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := MirrorState{State: MirrorNone, Reason: f.reason}
	c := f.serving.Load()
	if c == nil {
		if f.copying {
			s.State = MirrorLoading
		}
		return s
	}
	stats := c.mirror.Stats()
	s.State, s.At, s.Bytes = MirrorBehind, stats.At, uint64(stats.Bytes)
	s.Lag = max(f.told.Load(), stats.At) - stats.At
	if since := c.behind.Load(); since != 0 {
		s.Late = f.m.cfg.Clock() - time.Duration(since)
	}
	if stats.Trusted {
		s.State, s.Reason = MirrorTrusted, ""
	}
	return s
}

// Metrics returns the collectors of the mirrors.
func (m *Mirrors) Metrics() []prometheus.Collector { return slices.Clone(m.metrics.all) }

type followMetrics struct {
	deltas         *prometheus.CounterVec // by outcome
	loads          *prometheus.CounterVec // by outcome
	contradictions *prometheus.CounterVec // by what showed them
	gaps           prometheus.Counter
	repairs        prometheus.Counter
	refused        prometheus.Counter
	unsent         prometheus.Counter
	all            []prometheus.Collector
}

func newFollowMetrics(m *Mirrors) followMetrics {
	f := followMetrics{
		deltas:         counters("mirror_deltas_total", "Deltas of filters that were heard, by outcome: applied, gap (one before it was missed, and is asked for), dropped (too many wait; the same), other-feed (the archive is asked for its lease), other-key, unused (nothing is mirrored of that process), stranger (nobody enrolled), malformed.", "outcome", nil),
		loads:          counters("mirror_loads_total", "Filters that were copied whole, by outcome: loaded, failed, no-room (MIRROR_MAX_BYTES is too small for all: that archive is asked every time).", "outcome", nil),
		contradictions: counters("mirror_contradictions_total", "Times an archive had what its mirror denied, by what showed it: must stay 0.", "by", nil),
		gaps:           counter("mirror_gaps_total", "Deltas that were missed and asked for.", nil),
		repairs:        counter("mirror_repaired_hashes_total", "Hashes that came as an answer, not as a delta.", nil),
		refused:        counter("mirror_leases_refused_total", "Leases that archives did not give or renew.", nil),
		unsent:         counter("mirror_unsent_total", "Acknowledgements and leases given back that could not be sent.", nil),
	}
	for _, by := range []string{"record", "acknowledgement"} {
		f.contradictions.WithLabelValues(by)
	}
	f.deltas.WithLabelValues("applied")
	f.loads.WithLabelValues("loaded")
	f.loads.WithLabelValues("no-room")
	f.all = []prometheus.Collector{
		f.deltas, f.loads, f.contradictions, f.gaps, f.repairs, f.refused, f.unsent, newMirrorCollector(m),
	}
	return f
}

// A mirrorCollector tells how each mirror is at the moment it is asked.
type mirrorCollector struct {
	m                       *Mirrors
	state, lag, late, bytes *prometheus.Desc
}

func newMirrorCollector(m *Mirrors) *mirrorCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_mirror_"+name, help, append([]string{"archive"}, labels...), nil)
	}
	return &mirrorCollector{
		m:     m,
		state: desc("state", "1 for the state that the mirror of an archive is in: none, loading, behind or trusted.", "state"),
		lag:   desc("lag_hashes", "Hashes that the mirror of an archive is known to lack."),
		late:  desc("lag_seconds", "How long it has lacked something."),
		bytes: desc("bytes", "Memory of the mirror of an archive."),
	}
}

// Describe implements prometheus.Collector.
func (c *mirrorCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.lag, c.late, c.bytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *mirrorCollector) Collect(ch chan<- prometheus.Metric) {
	for id, f := range *c.m.followers.Load() {
		s := f.state()
		for _, state := range []string{MirrorNone, MirrorLoading, MirrorBehind, MirrorTrusted} {
			value := 0.0
			if s.State == state {
				value = 1
			}
			ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value, string(id), state)
		}
		ch <- prometheus.MustNewConstMetric(c.lag, prometheus.GaugeValue, float64(s.Lag), string(id))
		ch <- prometheus.MustNewConstMetric(c.late, prometheus.GaugeValue, s.Late.Seconds(), string(id))
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(s.Bytes), string(id))
	}
}
