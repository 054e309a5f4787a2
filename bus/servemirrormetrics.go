package bus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// feedMetrics are the collectors of an archive's feed.
func feedMetrics(f *mirror.Feed, id wire.ArchiveID) []prometheus.Collector {
	fixed := prometheus.Labels{"archive": string(id)}
	read := func(of func(mirror.FeedStats) float64) func() float64 {
		return func() float64 { return of(f.Stats()) }
	}
	return []prometheus.Collector{
		gauge("archive_holders", "Aggregators with a lease, for which puts wait.", fixed,
			read(func(s mirror.FeedStats) float64 { return float64(s.Holders) })),
		gauge("archive_holders_lag_seconds", "Age of the oldest delta that one of them has not acknowledged.", fixed,
			read(func(s mirror.FeedStats) float64 { return s.Lag.Seconds() })),
		total("archive_leases_granted_total", "Leases that were given or renewed.", fixed,
			read(func(s mirror.FeedStats) float64 { return float64(s.Granted) })),
		total("archive_leases_refused_total", "Leases that were not given or renewed.", fixed,
			read(func(s mirror.FeedStats) float64 { return float64(s.Refused) })),
		total("archive_leases_lapsed_total", "Leases that ran out: their aggregators died, or are too slow.", fixed,
			read(func(s mirror.FeedStats) float64 { return float64(s.RanOut) })),
		total("archive_holder_waits_total", "Puts that waited for aggregators.", fixed,
			read(func(s mirror.FeedStats) float64 { return float64(s.Waits) })),
		total("archive_holder_wait_seconds_total", "Time that puts waited for aggregators, together.", fixed,
			read(func(s mirror.FeedStats) float64 { return s.Waited.Seconds() })),
	}
}

// total returns a counter that somebody else counts: it is read when metrics are
// collected.
func total(name, help string, fixed prometheus.Labels, read func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: fixed,
	}, read)
}
