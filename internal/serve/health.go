package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/internal/fault"
)

// CheckTimeout is how long one health check may take before it counts as
// failed.
const CheckTimeout = 2 * time.Second

// A Check tells whether one part of the program can do its work.
type Check struct {
	// Name identifies the part, such as "store" or "nats".
	Name string
	// Degraded marks a part without which the program still serves: a failure
	// is shown but does not make the program unready.
	Degraded bool
	// Func returns nil if the part works. It must honour ctx, be cheap, and be
	// safe to call from many goroutines.
	Func func(ctx context.Context) error
}

// Health answers the liveness and readiness probes. The zero value is live and,
// having no checks, ready. All methods may be called from many goroutines.
type Health struct {
	stopping atomic.Bool

	mu     sync.Mutex // guards checks
	checks []Check
}

// Add adds a check. Checks are shown in the order in which they were added.
func (h *Health) Add(c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, c)
}

// Stopping makes every later readiness probe fail, so that balancers send no
// new work while the program finishes what it has. Liveness is not touched.
func (h *Health) Stopping() { h.stopping.Store(true) }

// Status is the outcome of one check.
type Status struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Degraded bool   `json:"degraded,omitzero"` // failed, but the program still serves
	Code     string `json:"code,omitzero"`     // of the failure, such as DISK_FULL
	Error    string `json:"error,omitzero"`
}

// Ready runs all checks at the same time and reports whether the program can
// take work, with the outcome of each check in the order they were added.
func (h *Health) Ready(ctx context.Context) (bool, []Status) {
	h.mu.Lock()
	checks := append([]Check(nil), h.checks...)
	h.mu.Unlock()
	out := make([]Status, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { out[i] = run(ctx, c) })
	}
	wg.Wait()
	ready := !h.stopping.Load()
	if !ready {
		out = append(out, Status{Name: "running", Error: "the program is stopping"})
	}
	for _, s := range out {
		ready = ready && (s.OK || s.Degraded)
	}
	return ready, out
}

var errCheckTimeout = errors.New("no answer within " + CheckTimeout.String())

// run gives up on a check that ignores its context: one hanging part must not
// hang the probe that is there to notice it.
func run(ctx context.Context, c Check) Status {
	ctx, cancel := context.WithTimeoutCause(ctx, CheckTimeout, errCheckTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Func(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		return Status{Name: c.Name, OK: true}
	}
	return Status{Name: c.Name, Degraded: c.Degraded, Code: fault.CodeOf(err), Error: err.Error()}
}

// Livez answers 200 as long as the process can answer at all. It deliberately
// checks nothing: a restart does not mend a disk or a network.
func (h *Health) Livez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

// Readyz answers 200 when the program can take work and 503 when it can not.
// With the query parameter "verbose" it lists every check as JSON; the texts of
// the errors are included, so an open listener uses [Health.OpenReadyz].
func (h *Health) Readyz(w http.ResponseWriter, r *http.Request) { h.readyz(w, r, true) }

// OpenReadyz is Readyz for listeners that strangers can reach: it names the
// failing checks but keeps the texts of their errors to itself.
func (h *Health) OpenReadyz(w http.ResponseWriter, r *http.Request) { h.readyz(w, r, false) }

func (h *Health) readyz(w http.ResponseWriter, r *http.Request, texts bool) {
	ready, list := h.Ready(r.Context())
	code, word := http.StatusOK, "ok\n"
	if !ready {
		code, word = http.StatusServiceUnavailable, "not ready\n"
	}
	if !r.URL.Query().Has("verbose") {
		writeText(w, code, word)
		return
	}
	if !texts {
		for i := range list {
			list[i].Code, list[i].Error = "", ""
		}
	}
	writeJSON(w, code, struct {
		Ready  bool     `json:"ready"`
		Checks []Status `json:"checks"`
	}{ready, list})
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// A probe that hung up is no event; there is nobody left to tell.
	_, _ = w.Write([]byte(text))
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		writeText(w, http.StatusInternalServerError, "serve: encode the answer: "+err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}
