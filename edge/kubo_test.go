package edge

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// kuboError reads the answer as an error of Kubo, and checks what all promise.
func (a answered) kuboError(t *testing.T) kuboError {
	t.Helper()
	if got := a.Header.Get("Content-Type"); got != typeJSON {
		t.Fatalf("status %d, Content-Type %q: %s", a.StatusCode, got, a.body)
	}
	e, err := wire.Decode[kuboError](a.body)
	if err != nil || e.Type != "error" || e.Message == "" || e.Reason == "" {
		t.Fatalf("status %d: no error of Kubo: %v: %s", a.StatusCode, err, a.body)
	}
	if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("X-Chunked-Output") != "" || a.Header.Get("X-Request-Id") == "" {
		t.Errorf("headers of an error: %v", a.Header)
	}
	if (a.StatusCode == 429 || a.StatusCode == 503) != (a.Header.Get("Retry-After") != "") {
		t.Errorf("status %d with Retry-After %q", a.StatusCode, a.Header.Get("Retry-After"))
	}
	return e
}

// kuboRoutes are the commands that there are.
func (w *world) kuboRoutes() []route {
	return slices.DeleteFunc(w.server.routes(), func(rt route) bool { return !rt.kubo })
}

func TestKuboRoutesAskForTheirScope(t *testing.T) {
	w := newWorld(t)
	for _, rt := range w.kuboRoutes() {
		a := w.do(w.request("POST", rt.path, ""))
		if e := a.kuboError(t); a.StatusCode != 401 || e.Reason != codeKeyRequired || e.Code != 4 || a.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a key: %d %+v", rt.path, a.StatusCode, e)
		}
		for _, scope := range Scopes() {
			a := w.do(w.request("POST", rt.path, "", "Authorization", "Bearer "+w.key(acme, scope)))
			if may := rt.scope == "" || rt.scope == scope; may == (a.StatusCode == 403) {
				t.Errorf("%s with the scope %s: status %d", rt.path, scope, a.StatusCode)
			}
			if a.StatusCode == 403 {
				if e := a.kuboError(t); e.Reason != codeScopeMissing || !strings.Contains(e.Message, string(rt.scope)) {
					t.Errorf("%s with the scope %s: %+v", rt.path, scope, e)
				}
			}
		}
	}
}

// Commands are posted. What other methods get is Kubo's, OPTIONS without leave to
// other origins.
func TestKuboCommandsArePosted(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	for _, rt := range w.kuboRoutes() {
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE"} {
			a := w.do(w.request(method, rt.path, "", "x-api-key", key))
			if a.StatusCode != 405 || a.Header.Get("Allow") != "OPTIONS, POST" {
				t.Errorf("%s %s: status %d, Allow %q", method, rt.path, a.StatusCode, a.Header.Get("Allow"))
			}
			if method != "HEAD" {
				a.kuboError(t)
			}
		}
		a := w.do(w.request("OPTIONS", rt.path, "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST"))
		if a.StatusCode != 204 || a.Header.Get("Allow") != "OPTIONS, POST" || a.Header.Get("Access-Control-Allow-Origin") != "" || len(a.body) != 0 {
			t.Errorf("OPTIONS %s: %d %v %q", rt.path, a.StatusCode, a.Header, a.body)
		}
	}
	for _, path := range []string{"/api/v0/", "/api/v0/pin/add", "/api/v0/block/stat", "/api/v0/block/put", "/api/v0/config", "/api/v0/add/", "/api/v0/id"} {
		for _, method := range []string{"GET", "POST"} {
			a := w.do(w.request(method, path, "", "x-api-key", key))
			if a.StatusCode != 404 || string(a.body) != "404 page not found\n" || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%s %s: %d %q", method, path, a.StatusCode, a.body)
			}
		}
	}
}

// A page in a browser reaches no command, whoever's key it has found.
func TestKuboCommandsAreNotForBrowsers(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	for _, headers := range [][]string{
		{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, {"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://edge"},
		{"Referer", "https://evil.example/page"}, {"User-Agent", "Mozilla/5.0", "Origin", "http://edge"},
	} {
		for _, rt := range w.kuboRoutes() {
			a := w.do(w.request("POST", rt.path, "", append(headers, "x-api-key", key)...))
			if e := a.kuboError(t); a.StatusCode != 403 || e.Reason != codeCrossSite {
				t.Errorf("%s %v: %d %+v", rt.path, headers, a.StatusCode, e)
			}
		}
	}
	for _, agent := range []string{"node", "curl/8.5.0", "kubo-rpc-client", "axios/1.7 Mozilla"} {
		if a := w.do(w.request("POST", "/api/v0/version", "", "User-Agent", agent, "x-api-key", key)); a.StatusCode != 200 {
			t.Errorf("%s: status %d", agent, a.StatusCode)
		}
	}
}

func TestKuboVersion(t *testing.T) {
	w := newWorld(t)
	a := w.do(w.request("POST", "/api/v0/version", "", "x-api-key", w.key(acme, ScopeHooks)))
	want := `{"Version":"0.43.0","Commit":"","Repo":"","System":"","Golang":""}`
	if a.StatusCode != 200 || string(bytes.TrimSpace(a.body)) != want {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// Errors of add carry Kubo's form, our status, and when to come back.
func TestKuboErrorsSayWhoseFaultItIs(t *testing.T) {
	w := newWorld(t)
	key := w.key(acme, ScopeStamp)
	for _, tt := range []struct {
		err          error
		status, code int
		message      string
	}{
		{fault.New(fault.Transient, "NO_ARCHIVE", "archives: none").After(5), 503, 0, "archives: none"},
		{fault.New(fault.Conflict, "IDEMPOTENCY_IN_FLIGHT", "wait"), 409, 1, "wait"},
		{fault.New(fault.Corrupt, "ROTTEN", "secret"), 500, 0, detailInternal},
		{http.ErrHandlerTimeout, 500, 0, detailInternal},
	} {
		w.jobs.acceptErr = tt.err
		a := w.add(key, "", "a.txt", "hello")
		if e := a.kuboError(t); a.StatusCode != tt.status || e.Code != tt.code || e.Message != tt.message {
			t.Errorf("%v: %d %+v", tt.err, a.StatusCode, e)
		}
	}
	w.jobs.acceptErr = nil
	w.jobs.room = fault.New(fault.Transient, "DISK_FULL", "no room")
	if a := w.add(key, "", "a.txt", "hello"); a.StatusCode != 503 || a.kuboError(t).Reason != "DISK_FULL" {
		t.Errorf("without room: %d %s", a.StatusCode, a.body)
	}
	if a := w.add(key, "only-hash=true", "a.txt", "hello"); a.StatusCode != 200 {
		t.Errorf("hashing without room: %d %s", a.StatusCode, a.body)
	}
}
