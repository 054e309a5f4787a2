package serve

import (
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build says which code runs.
type Build struct {
	Version  string // module version, or "devel" for a build from a checkout
	Revision string // commit, empty when the build does not know it
	Modified bool   // the checkout had changes that are in no commit
	Go       string // version of Go it was built with
}

// Version returns the build information the linker left in this program.
func Version() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "unknown"}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
	b := Build{Version: strings.Trim(info.Main.Version, "()"), Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns b on one line, such as "devel 1f3a5c7d9b2e (modified) go1.26.8".
func (b Build) String() string {
	parts := []string{b.Version}
	if b.Revision != "" {
		parts = append(parts, b.Revision[:min(12, len(b.Revision))])
	}
	if b.Modified {
		parts = append(parts, "(modified)")
	}
	if b.Go != "" {
		parts = append(parts, b.Go)
	}
	return strings.Join(parts, " ")
}

// NewRegistry returns a metrics registry that already holds what every program
// reports: the Go runtime, the process, and verae_build_info.
func NewRegistry() *prometheus.Registry {
	b := Version()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "verae_build_info",
		Help:        "Which code runs; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.Go},
	})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
