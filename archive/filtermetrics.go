package archive

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/bloom"
)

// metrics are the collectors of the filter and of its snapshots.
func (f *filter) metrics(labels prometheus.Labels) []prometheus.Collector {
	t := &f.tending
	of := func(value func(bloom.Stats) float64) func() float64 {
		return func() float64 { return value(f.set.Stats()) }
	}
	count := func(value func(bloom.Stats) uint64) func() float64 {
		return of(func(s bloom.Stats) float64 { return float64(value(s)) })
	}
	seconds := func(nanoseconds int64) float64 { return time.Duration(nanoseconds).Seconds() }
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Name: "verae_archive_filter_" + name, ConstLabels: labels, Help: help}
	}
	var all []prometheus.Collector
	for _, m := range []struct {
		name, help string
		value      func() float64
	}{
		{"ready", "1 if the filter is complete; else every query reads the store.", of(func(s bloom.Stats) float64 { return gauge(s.Ready) })},
		{"keys", "Keys in the filter: digests, or pairs of a viewer and a digest.", count(func(s bloom.Stats) uint64 { return s.Keys })},
		{"bytes", "Memory of the filter, with that of a base that is being rebuilt.", count(func(s bloom.Stats) uint64 { return s.Bytes })},
		{"generations", "Generations of the filter: 1, and up to 2 more until the base is rebuilt.", of(func(s bloom.Stats) float64 { return float64(s.Generations) })},
		{"fill_ratio", "Share of ones in the newest generation; 0.5 is full.", of(func(s bloom.Stats) float64 { return s.Fill })},
		{"base_fill_ratio", "Share of ones in the base; it is rebuilt larger at 0.45.", of(func(s bloom.Stats) float64 { return s.BaseFill })},
		{"error_rate", "Expected share of false positives.", of(func(s bloom.Stats) float64 { return s.EstimatedErrorRate })},
		{"observed_error_rate", "Share of false positives, of those that came to the store, among the absent keys that were asked for since the base was made; 0 if there were none.", of(func(s bloom.Stats) float64 { return s.ObservedErrorRate })},
		{"suspect", "1 if the observed error rate is more than twice the expected one, and not by chance.", of(func(s bloom.Stats) float64 { return gauge(s.Suspect) })},
		{"degraded", "1 if the filter has more keys than there may be memory for: it is wrong more often with each, and denies nothing.", of(func(s bloom.Stats) float64 { return gauge(s.Degraded) })},
		{"damaged", "1 while bits are set that nobody knows, or keys were denied, until the rebuild that mends it.", of(func(s bloom.Stats) float64 { return gauge(s.Damaged) })},
		{"rebuilding", "1 while a new base is made.", of(func(s bloom.Stats) float64 { return gauge(s.Rebuilding) })},
		{"rebuild_seconds", "How long the last rebuild took.", func() float64 { return seconds(t.rebuildTook.Load()) }},
		{"seq", "Number up to which the snapshot on disk has all records; 0 if there is none.", func() float64 { return float64(t.covered.Load()) }},
		{"snapshot_seconds", "How long the last snapshot took.", func() float64 { return seconds(t.saveTook.Load()) }},
		{"replayed_keys", "Keys that were added from the log at the last start, since no snapshot had them.", func() float64 { return float64(t.replayed.Load()) }},
		{"snapshots_refused", "Snapshots that were not used at the last start; the log says why.", func() float64 { return float64(t.rejected.Load()) }},
		{"snapshots_ahead", "Of them, those with records that the store does not have: it lost them, or is an older copy.", func() float64 { return float64(t.ahead.Load()) }},
		{"corrupt_chunks", "Parts of the snapshot that were damaged at the last start; they let every query through until the filter is rebuilt.", func() float64 { return float64(t.corruptChunks.Load()) }},
	} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts(m.name, m.help)), m.value))
	}
	for _, m := range []struct {
		name, help string
		value      func() float64
	}{
		{"absent_total", "Questions that the filter answered with no.", count(func(s bloom.Stats) uint64 { return s.Absent })},
		{"perhaps_total", "Questions that it let through.", count(func(s bloom.Stats) uint64 { return s.Maybe })},
		{"unready_total", "Questions that came before it was complete, and were let through.", count(func(s bloom.Stats) uint64 { return s.NotReady })},
		{"confirmed_total", "Let through, read in the store, and there was something.", count(func(s bloom.Stats) uint64 { return s.Confirmed })},
		{"false_positives_total", "Let through, read in the store, and there was nothing: in views nothing for the viewer.", count(func(s bloom.Stats) uint64 { return s.FalsePositives })},
		{"rebuilds_total", "Bases that were rebuilt.", count(func(s bloom.Stats) uint64 { return s.Rebuilds })},
		{"rebuilds_denying_total", "New bases that denied a stored key and were thrown away: must stay 0.", count(func(s bloom.Stats) uint64 { return s.RebuildsFailed })},
		{"scrubbed_keys_total", "Stored keys that the filter was asked for by the scrub, a check or a start.", count(func(s bloom.Stats) uint64 { return s.Scrubbed })},
		{"scrub_denied_total", "Of them, those that it denied, and has since: must stay 0.", count(func(s bloom.Stats) uint64 { return s.Repaired })},
		{"snapshot_errors_total", "Snapshots that could not be written.", func() float64 { return float64(t.saveErrors.Load()) }},
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts(opts(m.name, m.help)), m.value))
	}
	return all
}
