package serve

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/verae/archive/internal/fault"
)

// DefaultAdminAddr is where the admin listener is when ADMIN_ADDR is unset: a
// free port of the loopback interface, told in the log.
const DefaultAdminAddr = "127.0.0.1:0"

// adminTimeouts allow a CPU profile of a minute.
var adminTimeouts = Timeouts{ReadHeader: 5 * time.Second, Read: 10 * time.Second, Write: 90 * time.Second, Idle: 60 * time.Second}

// AdminConfig says what the admin listener serves.
type AdminConfig struct {
	// Addr is host:port. Empty means DefaultAdminAddr. Everybody who reaches it
	// can read profiles and metrics, so an address beyond loopback is warned
	// about.
	Addr string
	// Registry is served on /metrics. Nil means NewRegistry().
	Registry *prometheus.Registry
	// Health answers /livez and /readyz. Nil means no checks.
	Health *Health
	// Level, if set, can be read and changed on /debug/log-level.
	Level *slog.LevelVar
	// Routes are further handlers by pattern, such as "GET /roster".
	Routes map[string]http.Handler
	// Log gets warnings and changes of the level. Nil discards them.
	Log *slog.Logger
}

// ListenAdmin opens the admin listener: /metrics, /livez, /readyz (also
// /healthz), /version, /debug/pprof/, /debug/log-level and the given routes.
// The server does not accept before Serve.
func ListenAdmin(c AdminConfig) (*Server, error) {
	if c.Addr == "" {
		c.Addr = DefaultAdminAddr
	}
	if c.Registry == nil {
		c.Registry = NewRegistry()
	}
	if c.Health == nil {
		c.Health = new(Health)
	}
	log := orDiscard(c.Log)
	// A page in the operator's browser can make requests to loopback; it can
	// neither read answers nor, with this, change anything.
	var h http.Handler = http.NewCrossOriginProtection().Handler(adminMux(c, log))
	s, err := Listen(c.Addr, nil, adminTimeouts, c.Log)
	if err != nil {
		return nil, fault.New(fault.KindOf(err), "ADMIN_ADDR", "admin listener: %w", err).InField("ADMIN_ADDR")
	}
	if loopback(s.listener.Addr()) {
		h = refuseForeignHosts(h)
	} else {
		log.Warn("the admin listener can be reached from other machines; it has no keys", "addr", s.Addr())
	}
	s.http.Handler = h
	return s, nil
}

func adminMux(c AdminConfig, log *slog.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{Registry: c.Registry, EnableOpenMetrics: true}))
	mux.HandleFunc("GET /livez", c.Health.Livez)
	mux.HandleFunc("GET /readyz", c.Health.Readyz)
	mux.HandleFunc("GET /healthz", c.Health.Readyz)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, Version().String()+"\n")
	})
	// Importing net/http/pprof also registers on http.DefaultServeMux, which no
	// program of ours serves.
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	if c.Level != nil {
		mux.HandleFunc("GET /debug/log-level", func(w http.ResponseWriter, _ *http.Request) {
			writeText(w, http.StatusOK, c.Level.Level().String()+"\n")
		})
		mux.HandleFunc("POST /debug/log-level", func(w http.ResponseWriter, r *http.Request) { changeLevel(w, r, c.Level, log) })
	}
	for pattern, h := range c.Routes {
		mux.Handle(pattern, h)
	}
	return mux
}

// changeLevel sets the level to the query parameter "level".
func changeLevel(w http.ResponseWriter, r *http.Request, level *slog.LevelVar, log *slog.Logger) {
	text := r.URL.Query().Get("level")
	if text == "" {
		writeText(w, http.StatusBadRequest, "the parameter level is missing; use ?level=debug, info, warn or error\n")
		return
	}
	if err := SetLevel(level, text); err != nil {
		writeText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	log.WarnContext(r.Context(), "log level changed", "level", level.Level())
	writeText(w, http.StatusOK, level.Level().String()+"\n")
}

func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// refuseForeignHosts answers only requests that name the machine by an IP
// address or as localhost. A web page whose own name was pointed at 127.0.0.1
// (DNS rebinding) names itself, and reads nothing.
func refuseForeignHosts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(r.Host); err == nil {
			host = name
		}
		if host != "localhost" && net.ParseIP(trimBrackets(host)) == nil {
			writeText(w, http.StatusMisdirectedRequest,
				fmt.Sprintf("this listener answers to localhost and IP addresses, not to %q\n", host))
			return
		}
		h.ServeHTTP(w, r)
	})
}

func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}
