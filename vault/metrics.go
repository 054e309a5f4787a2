package vault

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
)

type metrics struct {
	made     prometheus.Counter
	failures *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		made: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "verae", Subsystem: "vault", Name: "tenant_keys_made_total",
			Help: "Tenant keys that this process made.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "verae", Subsystem: "vault", Name: "open_failures_total",
			Help: "Private metadata that could not be opened, by reason.",
		}, []string{"reason"}),
	}
}

// failed counts a failed Open under the code of its error.
func (m *metrics) failed(err error) {
	m.failures.WithLabelValues(strings.ToLower(fault.CodeOf(err))).Inc()
}

// Metrics returns the collectors of the vault, for main to register.
func (v *Vault) Metrics() []prometheus.Collector {
	return []prometheus.Collector{v.metrics.made, v.metrics.failures}
}
