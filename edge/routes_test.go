package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// sample is a path that a route takes, with every wildcard filled in.
func (rt *route) sample() string {
	return strings.NewReplacer("{jobId}", string(fakeJobID), "{sha256}", sha256OfHello,
		"{id}", sha256OfHello, "{cid}", "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq").Replace(rt.path)
}

// Every route that is not open asks for a key, and for the scope it needs.
func TestEveryRouteAsksForItsScope(t *testing.T) {
	w := newWorld(t)
	for _, rt := range w.server.routes() {
		if rt.kubo {
			continue // it refuses in other words; see TestKuboRoutesAskForTheirScope
		}
		method := rt.methods[0]
		a := w.do(w.request(method, rt.sample(), ""))
		if rt.open {
			if a.StatusCode != 200 {
				t.Errorf("%s: open, but status %d", rt.path, a.StatusCode)
			}
			continue
		}
		if p := a.problem(t); p.Status != 401 || p.Code != codeKeyRequired {
			t.Errorf("%s without a key: %d %s", rt.path, p.Status, p.Code)
		}
		for _, scope := range Scopes() {
			a := w.do(w.request(method, rt.sample(), "", "x-api-key", w.key(acme, scope)))
			if may := rt.scope == "" || rt.scope == scope; may == (a.StatusCode == 403) {
				t.Errorf("%s with the scope %s: status %d", rt.path, scope, a.StatusCode)
			}
			if a.StatusCode == 403 {
				if p := a.problem(t); p.Code != codeScopeMissing || !strings.Contains(p.Detail, string(rt.scope)) {
					t.Errorf("%s with the scope %s: %s: %s", rt.path, scope, p.Code, p.Detail)
				}
			}
		}
	}
}

// The routes of the contract are all there, and no other.
func TestRoutesOfTheContract(t *testing.T) {
	var got []string
	for _, rt := range newWorld(t).server.routes() {
		got = append(got, strings.Join(rt.methods, "|")+" "+rt.path+" "+string(rt.scope))
	}
	want := []string{
		"POST /zapier/v1/timestamp stamp",
		"POST /zapier/v1/timestamp/wait stamp",
		"GET|HEAD /zapier/v1/timestamp/{jobId} read",
		"GET /zapier/v1/timestamp/{jobId}/wait read",
		"GET|HEAD /zapier/v1/receipts/{sha256} read",
		"GET|HEAD /zapier/v1/records/{id} read",
		"GET|HEAD /zapier/v1/records/{id}/retention read",
		"GET|HEAD /zapier/v1/files/{id} files",
		"POST /zapier/v1/urls files",
		"POST /zapier/v1/retentions stamp",
		"GET|HEAD /zapier/v1/retentions/{sha256} read",
		"POST /zapier/v1/holds stamp",
		"DELETE /zapier/v1/holds/{sha256} admin",
		"GET|HEAD /zapier/v1/me ",
		"GET|HEAD /zapier/v1/archives admin",
		"POST /zapier/v1/archives/{id}/accept admin",
		"POST /zapier/v1/archives/{id}/retire admin",
		"GET|HEAD /zapier/v1/archives/{id}/lost admin",
		"GET|HEAD /ipfs/{cid} files",
		"OPTIONS|POST /api/v0/add stamp",
		"OPTIONS|POST /api/v0/cat files",
		"OPTIONS|POST /api/v0/block/get files",
		"OPTIONS|POST /api/v0/version ",
		"GET|HEAD /livez ",
		"GET|HEAD /readyz ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("routes: %q", got)
	}
}

func TestWrongMethodIs405WithAllow(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	for _, rt := range w.server.routes() {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			if rt.kubo || slices.Contains(rt.methods, method) {
				continue
			}
			a := w.do(w.request(method, rt.sample(), "", "x-api-key", key))
			if a.StatusCode != 405 || a.Header.Get("Allow") != strings.Join(rt.methods, ", ") {
				t.Errorf("%s %s: status %d, Allow %q", method, rt.path, a.StatusCode, a.Header.Get("Allow"))
			}
			if method != "HEAD" {
				p := a.problem(t)
				if p.Code != codeMethodNotAllowed {
					t.Errorf("%s %s: %s", method, rt.path, p.Code)
				}
				if never := method == "DELETE" && rt.kept; never != strings.Contains(p.Detail, "never erased") {
					t.Errorf("%s %s: %s", method, rt.path, p.Detail)
				}
			}
		}
	}
}

// Paths that are not routes are problems too; nothing is ever redirected.
func TestUnknownPathIs404(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	for _, path := range []string{
		"/", "/zapier", "/zapier/v1/timestamp/", "/zapier/v1//me", "//zapier/v1/me", "/zapier/v1/me/", "/zapier/./v1/me", "/zapier/v1/x/../me",
		"/zapier/v1/timestamp/a/b/c", "/ipfs/", "/ipfs/a/b", "/Livez", "/livez/", "/favicon.ico", "/zapier/v1/me%2f",
	} {
		for _, method := range []string{"GET", "POST"} {
			if p := w.do(w.request(method, path, "", "x-api-key", key)).problem(t); p.Status != 404 || p.Code != codeRouteNotFound {
				t.Errorf("%s %s: %d %s", method, path, p.Status, p.Code)
			}
		}
	}
}

func TestParametersAreChecked(t *testing.T) {
	w := newWorld(t)
	w.jobs.ended = true
	key := w.allKey(acme)
	w.do(w.request("POST", "/zapier/v1/timestamp", `{"data":"hello"}`, "x-api-key", key, "Content-Type", jsonType))
	job := "/zapier/v1/timestamp/" + string(fakeJobID)
	receipts := "/zapier/v1/receipts/"
	for path, field := range map[string]string{
		"/zapier/v1/timestamp/42":                          "jobId",
		"/zapier/v1/timestamp/" + sha256OfHello:            "jobId",
		job + "?submission=x":                              "submission",
		job + "?submission=a&submission=b":                 "submission",
		job + "?includeAttached=yes":                       "includeAttached",
		job + "?includeAttached=":                          "includeAttached",
		job + "?includeAttached=true&includeAttached=true": "includeAttached",
		job + "/wait?includeAttached=2":                    "includeAttached",
		job + "?a=%zz":                                     "",
		job + "?a;b":                                       "",
		receipts + "abc":                                   "sha256",
		receipts + "sha256-" + sha256OfHello:               "sha256",
		receipts + sha256OfHello + "?kinds=A":              "kinds",
		receipts + sha256OfHello + "?kinds=":               "kinds",
		receipts + sha256OfHello + "?kinds=a,,b":           "kinds",
		receipts + sha256OfHello + "?kinds=" + strings.Repeat("a,", maxKinds) + "a": "kinds",
		receipts + sha256OfHello + "?includeAttached=maybe":                         "includeAttached",
		"/zapier/v1/records/xyz":                            "id",
		"/zapier/v1/records/" + sha256OfHello + "?sealed=x": "sealed",
		"/zapier/v1/files/" + sha256OfHello[1:]:             "id",
	} {
		p := w.do(w.request("GET", path, "", "x-api-key", key)).problem(t)
		if p.Status != 400 || p.Code != codeBadParameter {
			t.Errorf("%s: %d %s: %s", path, p.Status, p.Code, p.Detail)
		}
		if field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != field) {
			t.Errorf("%s: fields at fault %+v", path, p.Errors)
		}
	}
}

// One digest has many spellings in a path, and every one finds the same.
func TestReceiptsTakeEverySpellingOfADigest(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	hello := digestOf("hello")
	for path, want := range map[string]string{
		sha256OfHello:                                                         "include=true kinds=[]",
		strings.ToUpper(sha256OfHello):                                        "include=true kinds=[]",
		"sha256:" + sha256OfHello:                                             "include=true kinds=[]",
		"%20" + sha256OfHello + "%0A":                                         "include=true kinds=[]",
		"sha256-LPJNul%2Bwow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCR%3D":             "", // spare bits
		"sha256-LPJNul%2Bwow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ%3D":             "include=true kinds=[]",
		"sha256-LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=":                 "include=true kinds=[]",
		sha256OfHello + "?includeAttached=false&kinds=metadata,file&kinds=x1": `include=false kinds=["metadata" "file" "x1"]`,
	} {
		w.jobs.asked = nil
		a := w.do(w.request("GET", "/zapier/v1/receipts/"+path, "", "x-api-key", key))
		if want == "" {
			a.problem(t)
			continue
		}
		if got := strings.Join(w.jobs.asked, "; "); a.StatusCode != 200 || got != "acme "+hello.String()+" "+want {
			t.Errorf("%s: status %d, asked %q", path, a.StatusCode, got)
		}
	}
	w.jobs.jobErr = fault.New(fault.NotFound, "NOT_SEALED", "sha256: it is not sealed")
	if p := w.do(w.request("GET", "/zapier/v1/receipts/"+sha256OfHello, "", "x-api-key", key)).problem(t); p.Status != 404 || p.Code != "NOT_SEALED" {
		t.Errorf("not sealed: %d %s", p.Status, p.Code)
	}
}

// Keys come in two headers, trimmed alike; two that disagree are refused.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	one, two := w.allKey(acme), w.allKey(other)
	broken := strings.ToUpper(one)
	for _, c := range []struct {
		headers []string
		status  int
		code    string
	}{
		{[]string{"x-api-key", one}, 200, ""},
		{[]string{"X-API-KEY", " " + one + "\t"}, 200, ""},
		{[]string{"Authorization", "Bearer " + one}, 200, ""},
		{[]string{"Authorization", "bearer   " + one + "  "}, 200, ""},
		{[]string{"Authorization", "Bearer " + one, "x-api-key", one}, 200, ""},
		{[]string{"x-api-key", one, "x-api-key", one}, 200, ""},
		{[]string{"x-api-key", "", "Authorization", "Bearer " + one}, 200, ""},
		{[]string{"Authorization", "Basic dTpw", "x-api-key", one}, 200, ""},
		{[]string{"Authorization", "Bearer " + one, "x-api-key", two}, 400, codeKeyAmbiguous},
		{[]string{"x-api-key", one, "x-api-key", two}, 400, codeKeyAmbiguous},
		{[]string{"x-api-key", one, "x-api-key", "junk"}, 400, codeKeyAmbiguous},
		{[]string{"x-api-key", one + ", " + one}, 401, codeKeyMalformed},
		{[]string{"Authorization", "Basic dTpw"}, 401, codeKeyRequired},
		{[]string{"Authorization", one}, 401, codeKeyRequired},
		{[]string{"Authorization", "Bearer"}, 401, codeKeyRequired},
		{[]string{"x-api-key", ""}, 401, codeKeyRequired},
		{[]string{"x-api-key", broken}, 401, codeKeyMalformed},
		{[]string{"x-api-key", one[:20]}, 401, codeKeyMalformed},
		{nil, 401, codeKeyRequired},
	} {
		a := w.do(w.request("GET", "/zapier/v1/me", "", c.headers...))
		if a.StatusCode != c.status {
			t.Errorf("%q: status %d: %s", c.headers, a.StatusCode, a.body)
			continue
		}
		if c.code != "" {
			if p := a.problem(t); p.Code != c.code {
				t.Errorf("%q: code %s", c.headers, p.Code)
			}
		}
	}
	for _, text := range []string{one, two, broken} {
		if strings.Contains(w.log.String(), text[17:60]) {
			t.Error("a key was logged")
		}
	}
}

// A revoked key, and one that never was, look alike.
func TestRevokedKeyIsRefusedLikeAnUnknownOne(t *testing.T) {
	w, elsewhere := newWorld(t), newWorld(t)
	revoked, unknown := w.allKey(acme), elsewhere.allKey(acme)
	k, err := parseKeyText(revoked)
	if err != nil {
		t.Fatal(err)
	}
	if err := RevokeKey(w.keyFile, k.id); err != nil {
		t.Fatal(err)
	}
	w.reloadKeys()
	a := w.do(w.request("GET", "/zapier/v1/me", "", "x-api-key", revoked, "X-Request-Id", "same"))
	b := w.do(w.request("GET", "/zapier/v1/me", "", "x-api-key", unknown, "X-Request-Id", "same"))
	if a.problem(t).Code != codeKeyUnknown || string(a.body) != string(b.body) {
		t.Errorf("revoked: %s\nunknown: %s", a.body, b.body)
	}
}

// An X-Request-Id that could write into a log is replaced.
func TestRequestIDIsEchoedOrReplaced(t *testing.T) {
	w := newWorld(t)
	if a := w.do(w.request("GET", "/livez", "", "X-Request-Id", "zap-1")); a.Header.Get("X-Request-Id") != "zap-1" {
		t.Errorf("got %q", a.Header.Get("X-Request-Id"))
	}
	for _, id := range []string{`a" level="ERROR`, "a b", strings.Repeat("x", 65)} {
		a := w.do(w.request("GET", "/nowhere", "", "X-Request-Id", id))
		if p := a.problem(t); p.RequestID == id || !plainToken(p.RequestID, maxRequestID) {
			t.Errorf("%q became %q", id, p.RequestID)
		}
		if strings.Contains(w.log.String(), id) {
			t.Errorf("%q is in the log", id)
		}
	}
	if !strings.Contains(w.log.String(), `"request":"zap-1"`) {
		t.Errorf("log: %s", w.log)
	}
}

// One line a request, which says who did what and nothing of its content.
func TestAccessLog(t *testing.T) {
	w := newWorld(t)
	w.do(w.request("POST", "/zapier/v1/timestamp", `{"data":"topsecret","publicMetadata":{"a":"topsecret"}}`,
		"x-api-key", w.allKey(acme), "Content-Type", jsonType, "X-Request-Id", "r1"))
	w.do(w.request("POST", "/zapier/v1/timestamp", `{"topsecret`, "x-api-key", w.allKey(acme), "Content-Type", jsonType))
	lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), w.log)
	}
	for i, parts := range [][]string{
		{`"msg":"request"`, `"request":"r1"`, `"method":"POST"`, `"route":"/zapier/v1/timestamp"`, `"status":202`, `"dur":`, `"received":55`, `"tenant":"acme"`, `"key":"`},
		{`"status":400`, `"code":"BAD_JSON"`, `"level":"INFO"`},
	} {
		for _, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("line %d lacks %s: %s", i, part, lines[i])
			}
		}
	}
	if strings.Contains(w.log.String(), "topsecret") || strings.Contains(w.log.String(), "vk_live_") {
		t.Errorf("the log holds what was sent: %s", w.log)
	}
}

// A handler that panics is answered 500, and breaks off if it had begun; the
// server lives on.
func TestPanicIs500OrABreak(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	hit := func(handle func(*exchange) error) (answered, error) {
		w.server.mux = http.NewServeMux()
		rt := route{path: "/panic", methods: get, scope: ScopeRead}
		rt.handle = handle
		w.server.handle(w.server.mux, &rt)
		w.client.CloseIdleConnections() // on a used connection the client would try again
		res, err := w.client.Do(w.request("GET", "/panic", "", "x-api-key", key))
		if err != nil {
			return answered{}, err
		}
		return readAll(res)
	}
	a, err := hit(func(*exchange) error { panic("the cat") })
	if err != nil {
		t.Fatal(err)
	}
	if p := a.problem(t); p.Status != 500 || p.Code != codeInternal || strings.Contains(string(a.body), "cat") {
		t.Errorf("%s", a.body)
	}
	if !strings.Contains(w.log.String(), "the cat") || !strings.Contains(w.log.String(), "routes_test.go") {
		t.Errorf("the log does not say where: %s", w.log)
	}
	for name, handle := range map[string]func(*exchange) error{
		"panic":     func(x *exchange) error { begin(x); panic("the dog") },
		"abort":     func(x *exchange) error { begin(x); panic(http.ErrAbortHandler) },
		"error":     func(x *exchange) error { begin(x); return errors.New("half way") },
		"too short": func(x *exchange) error { begin(x); return nil },
		"chunked":   func(x *exchange) error { io.WriteString(x, "half"); return errors.New("half way") },
	} {
		if a, err := hit(handle); err == nil {
			t.Errorf("%s: a cut answer reads as whole: %d %q", name, a.StatusCode, a.body)
		}
	}
	if got := w.server.metricsOf(t, "verae_edge_panics_total"); got != 2 {
		t.Errorf("%v panics counted", got)
	}
}

// begin begins an answer that promises more than it holds.
func begin(x *exchange) {
	x.Header().Set("Content-Length", "10")
	x.WriteHeader(200)
	io.WriteString(x, "half")
}

// /readyz is open to strangers: it names what fails, and not why.
func TestReadinessDoesNotSayWhy(t *testing.T) {
	w := newWorld(t)
	var broken error
	w.server.Health.Add(serve.Check{Name: "nats", Func: func(context.Context) error { return broken }})
	for _, broken = range []error{nil, errors.New("connection refused at 10.0.0.7"), nil} {
		a := w.do(w.request("GET", "/readyz?verbose", ""))
		if want := broken == nil; want != (a.StatusCode == 200) || !want != (a.StatusCode == 503) {
			t.Errorf("%v: status %d: %s", broken, a.StatusCode, a.body)
		}
		if strings.Contains(string(a.body), "10.0.0.7") || !strings.Contains(string(a.body), "nats") {
			t.Errorf("%v: %s", broken, a.body)
		}
	}
}

// A body sent with a GET is read past, so that its connection stays usable.
func TestBodyOfAGetIsReadPast(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	for size, status := range map[int]int{1: 200, maxIgnored: 200, maxIgnored + 1: 413} {
		a := w.do(w.request("GET", "/zapier/v1/me", strings.Repeat("x", size), "x-api-key", key))
		if a.StatusCode != status {
			t.Errorf("%d bytes: status %d", size, a.StatusCode)
		}
	}
}

// Two requests that an intermediary and we might cut apart differently are
// never both answered.
func TestAmbiguousFramingIsRefused(t *testing.T) {
	for name, head := range map[string]string{
		"two lengths":       "Content-Length: 5\r\nContent-Length: 6\r\n",
		"length and chunks": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"odd encoding":      "Transfer-Encoding: xchunked\r\n",
		"blank in a name":   "Content-Length : 5\r\n",
		"negative length":   "Content-Length: -1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				conn := w.dial()
				defer conn.Close()
				go io.WriteString(conn, "POST /zapier/v1/timestamp HTTP/1.1\r\nHost: edge\r\nx-api-key: "+w.allKey(acme)+"\r\n"+head+"\r\n{}GET /livez HTTP/1.1\r\nHost: edge\r\n\r\n")
				in := bufio.NewReader(conn)
				a := hear(t, in, "POST")
				if a == nil || a.StatusCode < 400 || a.StatusCode == 500 {
					t.Fatalf("answer: %+v", a)
				}
				if second := hear(t, in, "GET"); second != nil {
					t.Errorf("a second answer: %d %s", second.StatusCode, second.body)
				}
			})
		})
	}
}

func TestLongHeaderIsRefused(t *testing.T) {
	w := newWorld(t)
	limit := w.server.Limits.HeaderBytes
	if a := w.do(w.request("GET", "/livez", "", "X-Long", strings.Repeat("x", limit-1000))); a.StatusCode != 200 {
		t.Errorf("below the limit: status %d", a.StatusCode)
	}
	if a := w.do(w.request("GET", "/livez", "", "X-Long", strings.Repeat("x", limit+8<<10))); a.StatusCode != 431 {
		t.Errorf("above the limit: status %d", a.StatusCode)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := newWorld(t).server.Config
	for name, change := range map[string]func(*Config){
		"no jobs":     func(c *Config) { c.Jobs = nil },
		"no contents": func(c *Config) { c.Contents = nil },
		"no files":    func(c *Config) { c.Files = nil },
		"no uploader": func(c *Config) { c.Uploader = nil },
		"no keys":     func(c *Config) { c.Keys = nil },
		"no roster":   func(c *Config) { c.Roster = nil },
		"wait":        func(c *Config) { c.WaitJob = -time.Second },
		"in flight":   func(c *Config) { c.Limits.InFlight = -1 },
		"rate":        func(c *Config) { c.Limits.BodyRate = -1 },
		"body":        func(c *Config) { c.Body = splitter.Limits{Files: -1} },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for field, l := range map[string]Limits{
		"MAX_REQUESTS_PER_KEY": {InFlight: -1}, "MAX_UPLOADS_PER_KEY": {Uploads: -1}, "MAX_HEADER_BYTES": {HeaderBytes: -1}, "BodyIdle": {BodyIdle: -1},
	} {
		if err := l.Check(); fault.FieldOf(err) != field {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	if got := (Limits{}).withDefaults(); got != DefaultLimits() {
		t.Errorf("defaults: %+v", got)
	}
}

// What a caller may see of the roster and of himself.
func TestMeAndArchives(t *testing.T) {
	w := newWorld(t)
	text, key, err := CreateKey(w.keyFile, KeySpec{Name: "ocr", TenantID: acme, Tenants: []wire.TenantID{other}, Scopes: []Scope{ScopeFiles}})
	if err != nil {
		t.Fatal(err)
	}
	w.reloadKeys()
	a := w.do(w.request("GET", "/zapier/v1/me", "", "x-api-key", text))
	if want := `{"tenantId":"acme","tenants":["other"],"keyId":"` + key.ID + `","name":"ocr","scopes":["files"]}`; string(a.body) != want {
		t.Errorf("me: %s", a.body)
	}
	a = w.do(w.request("GET", "/zapier/v1/archives", "", "x-api-key", w.key(acme, ScopeAdmin)))
	for _, want := range []string{
		`{"archives":[{"archiveId":"archive-a","state":"up","records":3,"seq":3,"generation":1,"lastHelloAt":"2026-11-30T12:00:00.000000000Z"`,
		`{"archiveId":"archive-b","state":"silent","records":0,"seq":0,"generation":0`, `"state":"lost-records"`,
	} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("archives without %s: %s", want, a.body)
		}
	}
	for _, h := range []string{"X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Vary"} {
		if a.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
	if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers: %v", a.Header)
	}
}
