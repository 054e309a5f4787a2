package bus

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace starts the name of every metric of this package.
const namespace = "verae_bus"

// counter returns a counter with fixed labels; several components of one kind
// may live in one process and differ by them.
func counter(name, help string, fixed prometheus.Labels) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: fixed,
	})
}

// counters returns a family of counters that differ by one label.
func counters(name, help, label string, fixed prometheus.Labels) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: fixed,
	}, []string{label})
}

// gauge returns a gauge that is read when metrics are collected.
func gauge(name, help string, fixed prometheus.Labels, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: name, Help: help, ConstLabels: fixed,
	}, read)
}

// orDiscard returns log, or a logger that drops everything.
func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}

// A throttle lets one event through per interval. It keeps a broken disk or a
// hostile peer from filling the log; the counters still count everything.
type throttle struct {
	last atomic.Int64 // time of the last event let through, in Unix nanoseconds
}

// logInterval is the shortest time between two log lines from one throttle.
const logInterval = time.Second

// now reports whether the event of this moment is the one.
func (t *throttle) now() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return now-last >= int64(logInterval) && t.last.CompareAndSwap(last, now)
}
