package edge

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// metricsOf returns the sum of a metric over all its labels; labels are pairs
// that a sample must have.
func (s *Server) metricsOf(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			fits := true
			for i := 0; i+1 < len(labels); i += 2 {
				fits = fits && have[labels[i]] == labels[i+1]
			}
			if fits {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestMetricsCountWhatPasses(t *testing.T) {
	w := newWorld(t)
	w.jobs.ended = true
	key := w.allKey(acme)
	w.do(w.request("POST", "/zapier/v1/timestamp/wait", `{"data":"hello"}`, "x-api-key", key, "Content-Type", jsonType))
	w.do(w.request("POST", "/zapier/v1/timestamp/wait", `{`, "x-api-key", key, "Content-Type", jsonType))
	w.do(w.request("BREW", "/nowhere/"+sha256OfHello, "", "x-api-key", key))
	w.client.CloseIdleConnections()
	const requests = "verae_edge_requests_total"
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{requests, []string{"route", "/zapier/v1/timestamp/wait", "class", "2xx", "method", "POST"}, 1},
		{requests, []string{"route", "/zapier/v1/timestamp/wait", "class", "4xx"}, 1},
		{requests, []string{"route", "", "class", "4xx", "method", "other"}, 1},
		{"verae_edge_request_duration_seconds", nil, 3},
		{"verae_edge_received_bytes_total", nil, 17},
		{"verae_edge_waits_total", []string{"outcome", waitEnded}, 1},
		{"verae_edge_in_flight_requests", nil, 0},
		{"verae_edge_open_uploads", nil, 0},
	} {
		if got := w.server.metricsOf(t, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.server.Metrics()...)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), "acme") || strings.Contains(f.String(), sha256OfHello) {
			t.Errorf("a metric tells a tenant or a digest: %s", f)
		}
	}
}
