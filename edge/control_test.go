package edge

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// fakeControls stands for jobs.Engine: it keeps the laws of retention and of
// holds, of one tenant under one digest.
type fakeControls struct {
	mu      sync.Mutex
	asked   []jobs.Steering
	state   *wire.Retention
	pending bool // too few archives have what is decided
}

func (f *fakeControls) Steer(_ context.Context, q jobs.Steering) (wire.Steered, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, q)
	c := q.Control
	last, decided := f.state.Hold(c.RecordID, c.Name)
	changed := true
	switch until := f.state.Until(); {
	case q.SHA256.String() != sha256OfHello || q.TenantID != acme:
		return wire.Steered{}, fault.New(fault.NotFound, "NO_RECORDS", "sha256: this key's tenant has no record about %s", q.SHA256)
	case q.Kind == wire.KindRetain && until != "" && until.Compare(c.RetainUntil) > 0:
		return wire.Steered{}, fault.New(fault.Conflict, "RETENTION_SHORTER", "retainUntil: it is retained until %s, and that is never shortened", until).InField("retainUntil")
	case q.Kind == wire.KindRetain && until == c.RetainUntil, q.Kind == wire.KindHold && decided && !last.Released:
		changed = false
	case q.Kind == wire.KindRelease && (!decided || last.Released):
		return wire.Steered{}, fault.New(fault.NotFound, "NO_HOLD", "name: there is no hold %q on it to release", c.Name).InField("name")
	}
	body, err := wire.Encode(c)
	if err != nil {
		return wire.Steered{}, err
	}
	r := wire.Record{Kind: q.Kind, SHA256: q.SHA256, TenantID: q.TenantID, AttachedAt: "2026-11-30T12:00:00.000000000Z", Body: body, Part: len(f.asked)}
	r.ID = r.ComputeID()
	_, says, err := wire.StatementOf(&r)
	if err != nil {
		return wire.Steered{}, err
	}
	f.state = f.state.Merge(says)
	out := wire.Steered{
		Kind: q.Kind, SHA256: q.SHA256, RecordID: c.RecordID, ControlID: r.ID, DecidedAt: r.AttachedAt, Changed: changed,
		Status: wire.StatusCompleted, Copies: 2, Archives: 3, Retention: f.state.Shown(),
	}
	if f.pending {
		out.Status, out.Copies = wire.StatusPending, 0
	}
	return out, nil
}

func (f *fakeControls) Retentions(_ context.Context, tenant wire.TenantID, d wire.Digest) (wire.Retentions, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.String() != sha256OfHello || tenant != acme {
		return wire.Retentions{}, fault.New(fault.NotFound, "NO_RECORDS", "sha256: this key's tenant has no record about %s", d)
	}
	r := f.record(wire.RecordID{1})
	return wire.Retentions{
		SHA256: d, RetainUntil: r.RetainUntil, Holds: r.Holds, Records: []wire.RecordRetention{r}, ArchivesMissing: []wire.ArchiveID{"archive-c"},
	}, nil
}

func (f *fakeControls) RecordRetention(_ context.Context, tenant wire.TenantID, id wire.RecordID) (wire.RecordRetention, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id != (wire.RecordID{1}) || tenant != acme {
		return wire.RecordRetention{}, fault.New(fault.NotFound, "RECORD_NOT_FOUND", "id: there is no such record for this key's tenant")
	}
	return f.record(id), nil
}

func (f *fakeControls) record(id wire.RecordID) wire.RecordRetention {
	r := wire.RecordRetention{RecordID: id, SHA256: digestOf("hello"), Kind: wire.KindMetadata, Holds: []wire.Hold{}}
	if shown := f.state.Shown(); shown != nil {
		r.RetainUntil, r.Holds = shown.RetainUntil, append(r.Holds, shown.Holds...)
	}
	return r
}

// What a request says is what is decided on: the digest in any spelling, the date
// in any zone.
func TestControlRequestsAreReadAsTheySay(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	id := wire.RecordID{9}
	send := func(method, path, body string, want int) {
		t.Helper()
		a := w.do(w.request(method, path, body, "x-api-key", key, "Content-Type", jsonType))
		if a.StatusCode != want || a.Header.Get("Location") != "/zapier/v1/retentions/"+sha256OfHello {
			t.Errorf("%s %s: status %d, want %d, Location %q: %s", method, path, a.StatusCode, want, a.Header.Get("Location"), a.body)
		}
	}
	send("POST", "/zapier/v1/retentions", `{"sha256":"sha256:`+strings.ToUpper(sha256OfHello)+`","retainUntil":"2036-11-30T01:00:00.5+01:00","reason":"tax law"}`, 201)
	send("POST", "/zapier/v1/retentions", `{"sha256":"`+sha256OfHello+`","retainUntil":"2036-11-30T00:00:00.500Z"}`, 200)
	send("POST", "/zapier/v1/holds", `{"sha256":"`+sha256OfHello+`","recordId":"`+id.String()+`","name":"case 17","mode":"ignored"}`, 201)
	send("DELETE", "/zapier/v1/holds/"+sha256OfHello+"?name=case%2017&recordId="+id.String()+"&reason=settled", "", 200)
	w.controls.pending = true
	send("POST", "/zapier/v1/holds", `{"sha256":"`+sha256OfHello+`"}`, 202)
	until := wire.Time("2036-11-30T00:00:00.500000000Z")
	want := []jobs.Steering{
		{TenantID: acme, Kind: wire.KindRetain, SHA256: digestOf("hello"), Control: wire.Control{RetainUntil: until, Reason: "tax law"}},
		{TenantID: acme, Kind: wire.KindRetain, SHA256: digestOf("hello"), Control: wire.Control{RetainUntil: until}},
		{TenantID: acme, Kind: wire.KindHold, SHA256: digestOf("hello"), Control: wire.Control{RecordID: id, Name: "case 17"}},
		{TenantID: acme, Kind: wire.KindRelease, SHA256: digestOf("hello"), Control: wire.Control{RecordID: id, Name: "case 17", Reason: "settled"}},
		{TenantID: acme, Kind: wire.KindHold, SHA256: digestOf("hello")},
	}
	if diff := cmp.Diff(want, w.controls.asked); diff != "" {
		t.Errorf("(-want +asked)\n%s", diff)
	}
}

// A request that is refused decides nothing.
func TestRefusedControlRequests(t *testing.T) {
	w := newWorld(t)
	json := []string{"Content-Type", jsonType}
	sha := `"sha256":"` + sha256OfHello + `"`
	for _, c := range []struct {
		refusal
		path string
	}{
		{refusal{"no content type", nil, `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", "application/json"}, "retentions"},
		{refusal{"a form", []string{"Content-Type", multiType}, form(), 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", ""}, "holds"},
		{refusal{"json in latin1", []string{"Content-Type", "application/json; charset=latin1"}, `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", "UTF-8"}, "holds"},
		{refusal{"gzip body", append([]string{"Content-Encoding", "gzip"}, json...), `{}`, 415, "UNSUPPORTED_ENCODING", "Content-Encoding", ""}, "holds"},
		{refusal{"empty", json, ``, 400, "BAD_JSON", "", ""}, "retentions"},
		{refusal{"a list", json, `[]`, 400, "BAD_JSON", "", ""}, "retentions"},
		{refusal{"twice", json, `{` + sha + `,` + sha + `}`, 400, "BAD_JSON", "sha256", "twice"}, "retentions"},
		{refusal{"another case", json, `{"SHA256":"` + sha256OfHello + `"}`, 400, "BAD_JSON", "SHA256", ""}, "holds"},
		{refusal{"a number", json, `{` + sha + `,"name":17}`, 400, "BAD_JSON", "name", ""}, "holds"},
		{refusal{"too long", json, `{` + sha + `,"reason":"` + strings.Repeat("x", maxControlBody) + `"}`, 413, "TOO_LARGE", "", "16384"}, "holds"},
		{refusal{"no digest", json, `{"retainUntil":"2036-11-30T00:00:00Z"}`, 400, "BAD_DIGEST", "sha256", ""}, "retentions"},
		{refusal{"short digest", json, `{"sha256":"abc"}`, 400, "BAD_DIGEST", "sha256", ""}, "holds"},
		{refusal{"no record id", json, `{` + sha + `,"recordId":"abc"}`, 400, "BAD_FIELD", "recordId", ""}, "holds"},
		{refusal{"no date", json, `{` + sha + `}`, 400, "BAD_FIELD", "retainUntil", "missing"}, "retentions"},
		{refusal{"a day", json, `{` + sha + `,"retainUntil":"2036-11-30"}`, 400, "BAD_FIELD", "retainUntil", "RFC 3339"}, "retentions"},
		{refusal{"a number of days", json, `{` + sha + `,"retainUntil":"30d"}`, 400, "BAD_FIELD", "retainUntil", "RFC 3339"}, "retentions"},
		{refusal{"a retention with a name", json, `{` + sha + `,"retainUntil":"2036-11-30T00:00:00Z","name":"x"}`, 400, "BAD_FIELD", "name", "hold"}, "retentions"},
		{refusal{"a hold with a date", json, `{` + sha + `,"retainUntil":"2036-11-30T00:00:00Z"}`, 400, "BAD_FIELD", "retainUntil", ""}, "holds"},
		{refusal{"a long name", json, `{` + sha + `,"name":"` + strings.Repeat("n", wire.MaxHoldName+1) + `"}`, 400, "BAD_FIELD", "name", "at most 64"}, "holds"},
		{refusal{"a name with a line", json, `{` + sha + `,"name":"a\nb"}`, 400, "BAD_FIELD", "name", "control"}, "holds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.do(w.request("POST", "/zapier/v1/"+c.path, c.body, append([]string{"x-api-key", w.allKey(acme)}, c.headers...)...))
			p := a.problem(t)
			if p.Status != c.status || p.Code != c.code || !strings.Contains(p.Detail, c.says) {
				t.Errorf("got %d %s, want %d %s: %s", p.Status, p.Code, c.status, c.code, p.Detail)
			}
			if c.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != c.field) {
				t.Errorf("fields at fault: %+v, want %s", p.Errors, c.field)
			}
		})
	}
	key := w.allKey(acme)
	for path, code := range map[string]string{
		"/zapier/v1/holds/abc":                                 "BAD_DIGEST",
		"/zapier/v1/holds/" + sha256OfHello + "?recordId=abc":  "BAD_FIELD",
		"/zapier/v1/holds/" + sha256OfHello + "?name=a&name=b": "BAD_PARAMETER",
	} {
		if p := w.do(w.request("DELETE", path, "", "x-api-key", key)).problem(t); p.Status != 400 || p.Code != code {
			t.Errorf("DELETE %s: %d %s, want %s", path, p.Status, p.Code, code)
		}
	}
	for _, path := range []string{"/zapier/v1/retentions/abc", "/zapier/v1/records/abc/retention"} {
		if p := w.do(w.request("GET", path, "", "x-api-key", key)).problem(t); p.Status != 400 || p.Code != "BAD_PARAMETER" {
			t.Errorf("GET %s: %d %s", path, p.Status, p.Code)
		}
	}
	if len(w.controls.asked) != 0 {
		t.Errorf("something was decided: %+v", w.controls.asked)
	}
}

// Who may retain and hold may not release, and the other way round.
func TestReleaseNeedsItsOwnScope(t *testing.T) {
	w := newWorld(t)
	body := `{"sha256":"` + sha256OfHello + `","retainUntil":"2036-11-30T00:00:00Z"}`
	hold := `{"sha256":"` + sha256OfHello + `"}`
	for _, scope := range Scopes() {
		key := w.key(acme, scope)
		for _, c := range []struct {
			method, path, body string
			may                []Scope
		}{
			{"POST", "/zapier/v1/retentions", body, []Scope{ScopeStamp}},
			{"POST", "/zapier/v1/holds", hold, []Scope{ScopeStamp}},
			{"GET", "/zapier/v1/retentions/" + sha256OfHello, "", []Scope{ScopeRead}},
			{"DELETE", "/zapier/v1/holds/" + sha256OfHello, "", []Scope{ScopeAdmin}},
		} {
			a := w.do(w.request(c.method, c.path, c.body, "x-api-key", key, "Content-Type", jsonType))
			if may := slices.Contains(c.may, scope); may == (a.StatusCode == 403) {
				t.Errorf("%s %s with the scope %s: status %d", c.method, c.path, scope, a.StatusCode)
			}
		}
	}
}

// Dates that can not be are unprocessable, and the states may be kept by their
// caller only until he asks again.
func TestControlAnswersOverHTTP(t *testing.T) {
	for code, status := range map[string]int{"RETENTION_PAST": 422, "RETENTION_TOO_LONG": 422} {
		if got := statusOf(fault.New(fault.Invalid, code, "x")); got != status {
			t.Errorf("%s is %d, want %d", code, got, status)
		}
	}
	w := newWorld(t)
	key := w.allKey(acme)
	for _, path := range []string{"/zapier/v1/retentions/" + sha256OfHello, "/zapier/v1/records/" + wire.RecordID{1}.String() + "/retention"} {
		a := w.do(w.request("GET", path, "", "x-api-key", key))
		if a.StatusCode != 200 || a.Header.Get("Cache-Control") != cacheRevalidate || a.Header.Get("ETag") == "" {
			t.Errorf("%s: status %d, %v", path, a.StatusCode, a.Header)
		}
		if again := w.do(w.request("GET", path, "", "x-api-key", key, "If-None-Match", a.Header.Get("ETag"))); again.StatusCode != 304 {
			t.Errorf("%s again: status %d", path, again.StatusCode)
		}
		if p := w.do(w.request("GET", path, "", "x-api-key", w.allKey(other))).problem(t); p.Status != 404 {
			t.Errorf("%s for another tenant: %d %s", path, p.Status, p.Code)
		}
	}
}
