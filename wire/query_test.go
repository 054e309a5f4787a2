package wire

import (
	"fmt"
	"strings"
	"testing"
)

func validQuery() Query {
	return Query{CorrelationID: "c1", SHA256: helloDigest, TenantID: "acme", Kinds: []Kind{"metadata"}}
}

func TestQueryCheck(t *testing.T) {
	if err := validQuery().Check(); err != nil {
		t.Fatal(err)
	}
	many := make([]Kind, MaxKinds+1)
	for i := range many {
		many[i] = Kind(fmt.Sprintf("k%d", i))
	}
	tests := []struct {
		name, field, says string
		change            func(*Query)
	}{
		{"no correlation id", "correlationId", "missing", func(q *Query) { q.CorrelationID = "" }},
		{"wildcard", "correlationId", "'>'", func(q *Query) { q.CorrelationID = ">" }},
		{"long correlation id", "correlationId", "at most 64", func(q *Query) { q.CorrelationID = CorrelationID(strings.Repeat("a", 65)) }},
		{"no digest", "sha256", "missing", func(q *Query) { q.SHA256 = Digest{} }},
		{"no tenant", "tenantId", "missing", func(q *Query) { q.TenantID = "" }},
		{"everybody", "", "", func(q *Query) { q.TenantID = Public }},
		{"everybody and one", "tenantId", "'*'", func(q *Query) { q.TenantID = Public + "a" }},
		{"bad kind", "kinds[1]", "'K'", func(q *Query) { q.Kinds = []Kind{"a", "K"} }},
		{"many kinds", "kinds", "at most 64", func(q *Query) { q.Kinds = many }},
		{"kinds at the limit", "", "", func(q *Query) { q.Kinds = many[:MaxKinds] }},
		{"no kinds", "", "", func(q *Query) { q.Kinds = nil }},
		{"control kind", "", "", func(q *Query) { q.Kinds = []Kind{KindShare} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := validQuery()
			tt.change(&q)
			requireVerdict(t, q.Check(), tt.field, tt.says)
		})
	}
}

// Whoever looks is a tenant or everybody; what has an owner is a tenant's.
func TestViewersAreTenantsOrEverybody(t *testing.T) {
	for text, ok := range map[string]bool{"acme": true, "*": true, "**": false, "*a": false, "": false, " *": false, "a*": false} {
		viewer, err := ParseViewer(text)
		if (err == nil) != ok || ok && string(viewer) != text {
			t.Errorf("%q: %q, %v", text, viewer, err)
		}
	}
	if _, err := ParseTenantID(string(Public)); err == nil {
		t.Error("everybody is taken for a tenant")
	}
}

// requireVerdict wants no error where says is empty, else one about field.
func requireVerdict(t *testing.T, err error, field, says string) {
	t.Helper()
	if says != "" {
		wantError(t, err, field, says)
	} else if err != nil {
		t.Error(err)
	}
}

func TestWatchCheck(t *testing.T) {
	valid := Watch{JobID: NewJobID(), SubmissionID: NewSubmissionID(), SHA256: helloDigest, TenantID: "acme"}
	tests := []struct {
		name, field, says string
		change            func(*Watch)
	}{
		{"valid", "", "", func(*Watch) {}},
		{"of a seed-only publisher", "", "", func(w *Watch) { w.SubmissionID = "" }},
		{"no job", "jobId", "36", func(w *Watch) { w.JobID = "" }},
		{"job in upper case", "jobId", "lower case", func(w *Watch) { w.JobID = JobID(strings.ToUpper(string(w.JobID))) }},
		{"odd submission", "submissionId", "UUID", func(w *Watch) { w.SubmissionID = "1" }},
		{"no digest", "sha256", "missing", func(w *Watch) { w.SHA256 = Digest{} }},
		{"no tenant", "tenantId", "missing", func(w *Watch) { w.TenantID = "" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := valid
			tt.change(&w)
			requireVerdict(t, w.Check(), tt.field, tt.says)
		})
	}
}

// A peek that takes a digest from anywhere but the query's own field makes an
// archive silent about what it holds.
func TestQueryDigestIsTheQuerysOwn(t *testing.T) {
	other := strings.Repeat("ab", 32)
	tests := []struct {
		name, in string
		ok       bool
	}{
		{"plain", `{"correlationId":"c","sha256":"` + helloHex + `","tenantId":"a","kinds":[]}`, true},
		{"quote in the id", `{"correlationId":"c\"","sha256":"` + helloHex + `","tenantId":"a","kinds":[]}`, true},
		{"escape in the tenant", `{"correlationId":"c","sha256":"` + helloHex + `","tenantId":"\u0061","kinds":[]}`, true},
		{"lone surrogate in the tenant", `{"correlationId":"c","sha256":"` + helloHex + `","tenantId":"\ud800","kinds":[]}`, false},
		{"control character", `{"correlationId":"` + "\x01" + `","sha256":"` + helloHex + `","tenantId":"a","kinds":[]}`, false},
		{"invalid UTF-8", `{"correlationId":"` + "\xff" + `","sha256":"` + helloHex + `","tenantId":"a","kinds":[]}`, false},
		{"beyond ASCII", `{"correlationId":"é","sha256":"` + helloHex + `","tenantId":"a","kinds":[]}`, true},
		{"with kinds", `{"correlationId":"c","sha256":"` + helloHex + `","tenantId":"a","kinds":["k"]}`, true},
		{"plain and more", `{"correlationId":"c","sha256":"` + helloHex + `","tenantId":"a","kinds":[]}{}`, false},
		{"plain and cut", `{"correlationId":"c","sha256":"` + helloHex + `","tenantId":"a","kinds":[]`, false},
		{"plain and cut in a string", `{"correlationId":"c","sha256":"` + helloHex, false},
		{"upper case", `{"sha256":"` + strings.ToUpper(helloHex) + `"}`, true},
		{"blanks", "\t{ \"sha256\" : \"" + helloHex + "\" }\n", true},
		{"escaped key", `{"sha\u003256":"` + helloHex + `"}`, true},
		{"unknown before", `{"x":{"sha256":"` + other + `"},"sha256":"` + helloHex + `"}`, true},
		{"unknown after", `{"sha256":"` + helloHex + `","x":{"sha256":"` + other + `"},"y":[{"sha256":"` + other + `"}]}`, true},
		{"only below", `{"x":{"sha256":"` + other + `"}}`, false},
		{"absent", `{"tenantId":"a"}`, false},
		{"null", `{"sha256":null}`, false},
		{"short", `{"sha256":"` + helloHex[:40] + `"}`, false},
		{"number of the same length", `{"sha256":` + strings.Repeat("1", 66) + `}`, false},
		{"twice", `{"sha256":"` + helloHex + `","sha256":"` + helloHex + `"}`, false},
		{"case variant beside", `{"sha256":"` + helloHex + `","SHA256":"` + other + `"}`, false},
		{"trailing data", `{"sha256":"` + helloHex + `"}{}`, false},
		{"empty", ``, false},
	}
	for _, tt := range tests {
		d, ok := QueryDigest([]byte(tt.in))
		if ok != tt.ok || ok && d != helloDigest {
			t.Errorf("%s: %s, %v", tt.name, d, ok)
		}
	}
}

// The miss path of an archive is the system's most frequent one.
func TestQueryDigestAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { QueryDigest(benchQuery) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
