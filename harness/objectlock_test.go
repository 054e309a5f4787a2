package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// objectLock are the cases of test_object_lock_* of ceph/s3-tests by their
// meaning, each with what it is here. docs/testing.md has the same list.
var objectLock = []struct {
	name string
	run  func(*lock)
}{
	{"put_obj_lock", func(l *lock) {
		l.attach(1)
		l.retain(all, years(1))
		l.until(l.attach(2), years(1))
	}},
	{"put_obj_lock_invalid_bucket", func(l *lock) {
		l.refused(404, "NO_RECORDS", "POST", "/zapier/v1/retentions", l.body(`,"retainUntil":"2090-01-01T00:00:00Z"`))
	}},
	{"put_obj_lock_enable_after_create", func(l *lock) {
		id := l.attach(1)
		if _, r := l.state(id); r.RetainUntil != "" {
			l.t.Errorf("nothing was said, and it is retained until %s", r.RetainUntil)
		}
		l.retain(all, years(1))
		l.until(id, years(1))
	}},
	{"put_obj_lock_with_days_and_years", func(l *lock) {
		l.attach(1)
		l.refused(400, "BAD_JSON", "POST", "/zapier/v1/retentions", l.body(`,"retainUntil":"2090-01-01T00:00:00Z","retainUntil":"2080-01-01T00:00:00Z"`))
		l.refused(400, "BAD_FIELD", "POST", "/zapier/v1/retentions", l.body(`,"days":1,"years":1`))
	}},
	{"put_obj_lock_invalid_days", func(l *lock) {
		l.attach(1)
		l.refused(422, "RETENTION_PAST", "POST", "/zapier/v1/retentions", l.body(fmt.Sprintf(`,"retainUntil":%q`, wire.At(years(0)))))
	}},
	{"put_obj_lock_invalid_years", func(l *lock) {
		l.attach(1)
		l.refused(422, "RETENTION_PAST", "POST", "/zapier/v1/retentions", l.body(fmt.Sprintf(`,"retainUntil":%q`, wire.At(years(-1)))))
		l.refused(422, "RETENTION_TOO_LONG", "POST", "/zapier/v1/retentions", l.body(fmt.Sprintf(`,"retainUntil":%q`, wire.At(years(101)))))
	}},
	{"put_obj_lock_invalid_mode", func(l *lock) { l.modes(all, "abc", "governance") }},
	{"put_obj_lock_invalid_status", func(l *lock) {
		l.attach(1)
		l.refused(400, "BAD_JSON", "POST", "/zapier/v1/retentions", l.body(`,"retainUntil":false`))
		l.refused(400, "BAD_FIELD", "POST", "/zapier/v1/retentions", l.body(`,"retainUntil":"Disabled"`))
	}},
	{"suspend_versioning", func(l *lock) {
		first := l.attach(1)
		l.retain(all, years(1))
		l.refused(404, "ROUTE_NOT_FOUND", "PUT", "/zapier/v1/versioning", `{"Status":"Suspended"}`)
		l.until(l.attach(2), years(1))
		l.until(first, years(1))
	}},
	{"get_obj_lock", func(l *lock) {
		l.attach(1)
		l.retain(all, years(1))
		if state, _ := l.state(all); state.RetainUntil != wire.At(years(1)) || len(state.Holds) != 0 || !state.Complete {
			l.t.Errorf("%+v", state)
		}
	}},
	{"get_obj_lock_invalid_bucket", func(l *lock) {
		l.refused(404, "NO_RECORDS", "GET", "/zapier/v1/retentions/"+l.digest.String(), "")
	}},
	{"put_obj_retention", func(l *lock) {
		if out := l.retain(l.attach(1), years(1)); !out.Changed || out.Archives != 3 {
			l.t.Errorf("%+v", out)
		}
	}},
	{"put_obj_retention_invalid_bucket", func(l *lock) {
		id := l.attach(1)
		l.digest = sum([]byte("another digest"))
		l.refused(404, "NO_RECORDS", "POST", "/zapier/v1/retentions", l.body(fmt.Sprintf(`,"recordId":%q,"retainUntil":"2090-01-01T00:00:00Z"`, id)))
	}},
	{"put_obj_retention_invalid_mode", func(l *lock) { l.modes(l.attach(1), "governance", "abc") }},
	{"get_obj_retention", func(l *lock) {
		id := l.attach(1)
		l.retain(id, years(1))
		l.until(id, years(1))
	}},
	{"get_obj_retention_iso8601", func(l *lock) {
		id := l.attach(1)
		if s, code := l.http("POST", "/zapier/v1/retentions", l.body(`,"retainUntil":"2070-06-01T02:00:00.25+02:00"`)); s != 201 && s != 202 {
			l.t.Fatalf("%d %s", s, code)
		}
		if _, r := l.state(id); r.RetainUntil != "2070-06-01T00:00:00.250000000Z" {
			l.t.Errorf("it is shown as %s", r.RetainUntil)
		}
	}},
	{"get_obj_retention_invalid_bucket", func(l *lock) {
		l.refused(404, "RECORD_NOT_FOUND", "GET", "/zapier/v1/records/"+l.digest.String()+"/retention", "")
	}},
	{"put_obj_retention_versionid", func(l *lock) {
		first, second := l.attach(1), l.attach(2)
		l.retain(second, years(1))
		l.until(second, years(1))
		if _, r := l.state(first); r.RetainUntil != "" {
			l.t.Errorf("the other record is retained until %s", r.RetainUntil)
		}
	}},
	{"put_obj_retention_override_default_retention", func(l *lock) {
		id := l.attach(1)
		l.retain(all, years(1))
		l.retain(id, years(3))
		l.until(id, years(3))
		l.shorter(id, years(2))
		l.retain(all, years(2)) // not shorter than what all have
		l.until(id, years(3))
	}},
	{"put_obj_retention_increase_period", func(l *lock) {
		id := l.attach(1)
		l.retain(id, years(1))
		l.retain(id, years(2))
		l.until(id, years(2))
	}},
	{"put_obj_retention_shorten_period", func(l *lock) {
		id := l.attach(1)
		l.retain(id, years(2))
		l.shorter(id, years(1))
		l.until(id, years(2))
	}},
	{"put_obj_retention_shorten_period_bypass", func(l *lock) {
		id := l.attach(1)
		l.retain(id, years(2))
		l.refused(409, "RETENTION_SHORTER", "POST", "/zapier/v1/retentions",
			l.body(fmt.Sprintf(`,"recordId":%q,"retainUntil":%q,"bypass":true`, id, wire.At(years(1)))), "x-amz-bypass-governance-retention", "true")
		l.until(id, years(2))
	}},
	{"delete_object_with_retention", func(l *lock) {
		id := l.attach(1)
		l.retain(id, years(1))
		l.never(id)
		l.never(id, "x-amz-bypass-governance-retention", "true")
	}},
	{"delete_object_with_retention_and_marker", func(l *lock) {
		id := l.attach(1)
		l.retain(id, years(1))
		l.never(id)
		if job, err := l.c.Receipts(l.t.Context(), l.digest); err != nil || len(job.Receipts) != 2 { // no marker hides it
			l.t.Errorf("%+v, %v", job.Receipts, err)
		}
	}},
	{"delete_multipart_object_with_retention", func(l *lock) {
		f := l.file("a file that is retained")
		l.retain(f.RecordID, years(1))
		l.neverFile(f)
	}},
	{"multi_delete_object_with_retention", func(l *lock) {
		first, second := l.attach(1), l.attach(2)
		l.retain(first, years(1))
		l.refused(404, "ROUTE_NOT_FOUND", "POST", "/zapier/v1/records/delete/many", `{}`)
		l.never(first)
		l.never(second)
	}},
	{"put_legal_hold", func(l *lock) {
		l.attach(1)
		l.hold("")
		l.release("")
	}},
	{"put_legal_hold_invalid_bucket", func(l *lock) {
		l.refused(404, "NO_RECORDS", "POST", "/zapier/v1/holds", l.body(""))
		l.refused(404, "NO_RECORDS", "DELETE", "/zapier/v1/holds/"+l.digest.String(), "")
	}},
	{"put_legal_hold_invalid_status", func(l *lock) {
		l.attach(1)
		l.refused(400, "BAD_JSON", "POST", "/zapier/v1/holds", l.body(`,"name":true`))
		l.refused(400, "BAD_FIELD", "POST", "/zapier/v1/holds", l.body(`,"retainUntil":"2090-01-01T00:00:00Z"`))
	}},
	{"get_legal_hold", func(l *lock) {
		id := l.attach(1)
		l.hold("case")
		if state, r := l.state(id); len(state.Holds) != 1 || len(r.Holds) != 1 || r.Holds[0].Name != "case" {
			l.t.Errorf("held: %+v, %+v", state.Holds, r.Holds)
		}
		l.release("case")
		if state, r := l.state(id); len(state.Holds) != 0 || len(r.Holds) != 0 {
			l.t.Errorf("released: %+v, %+v", state.Holds, r.Holds)
		}
	}},
	{"get_legal_hold_invalid_bucket", func(l *lock) {
		l.refused(404, "NO_RECORDS", "GET", "/zapier/v1/retentions/"+l.digest.String(), "")
	}},
	{"delete_object_with_legal_hold_on", func(l *lock) {
		id := l.attach(1)
		l.hold("")
		l.never(id)
	}},
	{"delete_multipart_object_with_legal_hold_on", func(l *lock) {
		f := l.file("a file that is held")
		l.hold("")
		l.neverFile(f)
	}},
	{"delete_object_with_legal_hold_off", func(l *lock) {
		id := l.attach(1)
		l.hold("")
		l.release("")
		l.refused(404, "NO_HOLD", "DELETE", "/zapier/v1/holds/"+l.digest.String(), "")
		l.never(id)
	}},
	{"get_obj_metadata", func(l *lock) {
		l.attach(1)
		l.hold("case")
		l.retain(all, years(1))
		job, err := l.c.Receipts(l.t.Context(), l.digest)
		if err != nil {
			l.t.Fatal(err)
		}
		if r := job.Receipts[1].Retention; r == nil || r.RetainUntil != wire.At(years(1)) || len(r.Holds) != 1 || r.Holds[0].Name != "case" {
			l.t.Errorf("%+v", r)
		}
	}},
	{"uploading_obj", func(l *lock) {
		l.attach(1)
		l.hold("case")
		l.retain(all, years(1))
		job := stamp(l.t, l.c, client.Submission{SHA256: l.digest, PublicMetadata: []byte(`{"n":2}`), IncludeAttached: true})
		for _, r := range job.Receipts[1:] {
			if r.Retention == nil || r.Retention.RetainUntil != wire.At(years(1)) || len(r.Retention.Holds) != 1 {
				l.t.Errorf("%s: %+v", r.PublicMetadata, r.Retention)
			}
		}
	}},
	{"changing_mode_from_governance_with_bypass", func(l *lock) { l.modes(all, "GOVERNANCE", "COMPLIANCE") }},
	{"changing_mode_from_governance_without_bypass", func(l *lock) { l.modes(l.attach(1), "GOVERNANCE", "COMPLIANCE") }},
	{"changing_mode_from_compliance", func(l *lock) { l.modes(all, "COMPLIANCE", "GOVERNANCE") }},
}

// modes retains with words for a mode, which mean nothing: there is one mode, and
// it is never left.
func (l *lock) modes(id wire.RecordID, words ...string) {
	l.t.Helper()
	if id == all {
		l.attach(1)
	}
	one := ""
	if id != all {
		one = fmt.Sprintf(`,"recordId":%q`, id)
	}
	for i, mode := range words {
		s, code := l.http("POST", "/zapier/v1/retentions", l.body(fmt.Sprintf(`%s,"mode":%q,"retainUntil":%q`, one, mode, wire.At(years(2)))))
		if want := i == 0; s >= 300 || want == (s == 200) {
			l.t.Errorf("mode %s: %d %s", mode, s, code)
		}
		l.refused(409, "RETENTION_SHORTER", "POST", "/zapier/v1/retentions", l.body(fmt.Sprintf(`%s,"mode":%q,"retainUntil":%q`, one, mode, wire.At(years(1)))))
	}
}

// The cases of S3 Object Lock, each by its meaning here.
func TestObjectLockCases(t *testing.T) {
	w := startWorld(t, world.Config{InProcess: true, Env: []string{"WAIT_ARCHIVE_MS=10000"}})
	for _, c := range objectLock {
		t.Run(c.name, func(t *testing.T) {
			c.run(&lock{t: t, w: w, c: w.Client("acme"), digest: sum([]byte(c.name))})
		})
	}
	text, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, ran []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1])
	}
	for _, c := range objectLock {
		ran = append(ran, c.name)
	}
	for _, name := range ran {
		if !slices.Contains(listed, name) {
			t.Errorf("docs/testing.md does not list %s", name)
		}
	}
	if len(ran) != 39 {
		t.Errorf("%d cases ran", len(ran))
	}
}
