package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/internal/serve"
)

func fetch(t *testing.T, method, url, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// start serves s until the test ends.
func start(t *testing.T, s *serve.Server) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
}

func TestListenRefusesAMissingTimeout(t *testing.T) {
	for i := range 4 {
		ts := serve.DefaultTimeouts
		*[]*time.Duration{&ts.ReadHeader, &ts.Read, &ts.Write, &ts.Idle}[i] = 0
		if s, err := serve.Listen("127.0.0.1:0", http.NotFoundHandler(), ts, nil); err == nil {
			t.Errorf("timeouts %+v: listening on %s", ts, s.Addr())
		}
	}
}

func TestListenNamesAnAddressInUse(t *testing.T) {
	s, err := serve.Listen("127.0.0.1:0", http.NotFoundHandler(), serve.DefaultTimeouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Listen(s.Addr(), http.NotFoundHandler(), serve.DefaultTimeouts, nil); err == nil || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("second listen = %v, want an error naming the address", err)
	}
	// Never served: Shutdown releases the address all the same.
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}
	l.Close()
}

func TestShutdownCutsRequestsOnlyWhenItsTimeIsOver(t *testing.T) {
	entered := make(chan struct{})
	cut := make(chan error, 1)
	s, err := serve.Listen("127.0.0.1:0", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		cut <- r.Context().Err()
	}), serve.DefaultTimeouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	answered := make(chan error, 1)
	go func() {
		res, err := http.Get(s.URL())
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v, want it to say that requests were cut", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request's context did not end")
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v, want nil after a shutdown", err)
	}
	<-answered
}

func TestAdminListenerServesItsRoutes(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	s, err := serve.ListenAdmin(serve.AdminConfig{
		Level:  level,
		Log:    slog.New(slog.NewTextHandler(&out, nil)),
		Routes: map[string]http.Handler{"GET /roster": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("three")) })},
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	if !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Errorf("default address %s is not loopback", s.Addr())
	}
	for _, c := range []struct{ method, path, host, want string }{
		{"GET", "/metrics", "", "verae_build_info{"},
		{"GET", "/metrics", "localhost:1", "go_goroutines"},
		{"GET", "/metrics", "[::1]:9", "process_"},
		{"GET", "/livez", "", "ok"},
		{"GET", "/readyz?verbose", "", `"ready":true`},
		{"GET", "/healthz", "", "ok"},
		{"GET", "/version", "", "go1."},
		{"GET", "/debug/pprof/", "", "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", "", "goroutine profile"},
		{"GET", "/debug/log-level", "", "INFO"},
		{"GET", "/roster", "", "three"},
		{"POST", "/debug/log-level?level=debug", "", "DEBUG"},
	} {
		code, body := fetch(t, c.method, s.URL()+c.path, c.host)
		if code != 200 || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d, %q not in the answer", c.method, c.path, code, c.want)
		}
	}
	if level.Level() != slog.LevelDebug || !strings.Contains(out.String(), "log level changed") {
		t.Errorf("level %v, log %q", level, out.String())
	}
	for _, path := range []string{"/debug/log-level", "/debug/log-level?level=loud"} {
		if code, _ := fetch(t, "POST", s.URL()+path, ""); code != 400 {
			t.Errorf("POST %s: %d, want 400", path, code)
		}
	}
}

func TestAdminListenerRefusesARebindedName(t *testing.T) {
	s, err := serve.ListenAdmin(serve.AdminConfig{})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	for _, host := range []string{"evil.example", "evil.example:80", "localhost.evil.example"} {
		if code, body := fetch(t, "GET", s.URL()+"/metrics", host); code != http.StatusMisdirectedRequest {
			t.Errorf("Host %q: %d %s", host, code, body)
		}
	}
}

func TestAdminListenerWarnsBeyondLoopback(t *testing.T) {
	var out bytes.Buffer
	s, err := serve.ListenAdmin(serve.AdminConfig{Addr: ":0", Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown(t.Context())
	if !strings.Contains(out.String(), "level=WARN") {
		t.Errorf("no warning in %q", out.String())
	}
}

func TestRegistryIsClean(t *testing.T) {
	problems, err := testutil.GatherAndLint(serve.NewRegistry(), "verae_build_info")
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
