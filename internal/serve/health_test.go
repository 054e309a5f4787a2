package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/serve"
)

func check(name string, err error) serve.Check {
	return serve.Check{Name: name, Func: func(context.Context) error { return err }}
}

func get(h http.HandlerFunc, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h(w, httptest.NewRequest("GET", target, nil))
	return w
}

func TestReadyzTable(t *testing.T) {
	broken := errors.New("disk full")
	degraded := check("chain", broken)
	degraded.Degraded = true
	for _, c := range []struct {
		name   string
		checks []serve.Check
		stop   bool
		code   int
	}{
		{"no checks", nil, false, 200},
		{"all well", []serve.Check{check("store", nil)}, false, 200},
		{"one broken", []serve.Check{check("store", broken), check("nats", nil)}, false, 503},
		{"degraded serves", []serve.Check{check("store", nil), degraded}, false, 200},
		{"stopping", []serve.Check{check("store", nil)}, true, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h serve.Health
			for _, k := range c.checks {
				h.Add(k)
			}
			if c.stop {
				h.Stopping()
			}
			if w := get(h.Readyz, "/readyz"); w.Code != c.code {
				t.Errorf("readyz %d %s, want %d", w.Code, w.Body, c.code)
			}
			if w := get(h.Readyz, "/readyz?verbose"); w.Code != c.code {
				t.Errorf("readyz?verbose %d, want %d", w.Code, c.code)
			}
			if w := get(h.Livez, "/livez"); w.Code != 200 {
				t.Errorf("livez %d, want 200", w.Code)
			}
		})
	}
}

func TestReadyzVerboseListsChecksInOrder(t *testing.T) {
	var h serve.Health
	h.Add(check("store", nil))
	h.Add(check("nats", errors.New("no route to 10.0.0.7")))
	type answer struct {
		Ready  bool
		Checks []serve.Status
	}
	for _, c := range []struct {
		handler http.HandlerFunc
		text    string
	}{{h.Readyz, "no route to 10.0.0.7"}, {h.OpenReadyz, ""}} {
		w := get(c.handler, "/readyz?verbose")
		var got answer
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := answer{false, []serve.Status{{Name: "store", OK: true}, {Name: "nats", Error: c.text}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestReadyGivesUpOnACheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h serve.Health
		hang := make(chan struct{})
		h.Add(serve.Check{Name: "deaf", Func: func(context.Context) error { <-hang; return nil }})
		h.Add(check("store", nil))
		start := time.Now()
		ready, list := h.Ready(t.Context())
		if d := time.Since(start); d != serve.CheckTimeout {
			t.Errorf("took %v, want %v", d, serve.CheckTimeout)
		}
		if ready || list[0].Error != "no answer within 2s" || !list[1].OK {
			t.Errorf("ready %v, %+v", ready, list)
		}
		close(hang)
	})
}
