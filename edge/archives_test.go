package edge

import (
	"context"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// fakeRoster has one archive that is up, one that is silent and one that lost
// records, of which generation 2 can be accepted and which can not be retired
// without force.
type fakeRoster struct{}

const fakeTime wire.Time = "2026-11-30T12:00:00.000000000Z"

func (fakeRoster) Archives() []ArchiveInfo {
	return []ArchiveInfo{
		{ArchiveID: "archive-a", State: wire.StateUp, Records: 3, Seq: 3, Generation: 1, LastHelloAt: fakeTime, Accepted: 1, Remembered: 3},
		{ArchiveID: "archive-b", State: "silent", Accepted: 1},
		{
			ArchiveID: "archive-c", State: "lost-records", Records: 5, Seq: 5, Generation: 1, LastHelloAt: fakeTime, Accepted: 1, Remembered: 9,
			Lost:       &ArchiveLoss{Reason: "BEHIND", Detail: "it acknowledged or told seq 9 and came back with seq 5", Generation: 1, Wanted: 9, Seq: 5, At: fakeTime},
			Unaccepted: &Unaccepted{Generation: 2, Key: "Q0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0M="}, Advice: "verae archives accept archive-c/g2",
		},
	}
}

func (r fakeRoster) find(id wire.ArchiveID) error {
	for _, a := range r.Archives() {
		if a.ArchiveID == id {
			return nil
		}
	}
	return fault.New(fault.NotFound, "ARCHIVE_UNKNOWN", "archives: no archive %s is enrolled", id)
}

func (r fakeRoster) Accept(_ context.Context, id wire.ArchiveID, generation int, _ string) error {
	if err := r.find(id); err != nil || generation == 2 {
		return err
	}
	return fault.New(fault.Conflict, "GENERATION_FENCED", "archives: generation %d of %s was replaced", generation, id)
}

func (r fakeRoster) Retire(_ context.Context, id wire.ArchiveID, force bool) error {
	if err := r.find(id); err != nil || force {
		return err
	}
	return fault.New(fault.Conflict, "ARCHIVE_NEEDED", "archives: %s is needed", id)
}

func (fakeRoster) Lost(_ context.Context, id wire.ArchiveID, after wire.RecordID) (LostRecords, error) {
	out := LostRecords{ArchiveID: id, Accounting: &jobs.Accounting{Submissions: 7, Records: 5, Absent: 2, Lost: 1, StartedAt: fakeTime, DoneAt: fakeTime}, Records: []jobs.LostRecord{}}
	if after.IsZero() {
		out.Records, out.More = append(out.Records, jobs.LostRecord{
			RecordID: wire.RecordID{1}, Kind: wire.KindMetadata, TenantID: acme, SubmissionID: "0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a41", FoundAt: fakeTime,
		}), true
	}
	return out, nil
}

// What an operator orders is carried out or refused by name, and never half read.
func TestOrdersAboutArchives(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	const at = "/zapier/v1/archives/"
	for name, c := range map[string]struct {
		method, path, body, contentType string
		status                          int
		code                            string
	}{
		"accept":                {"POST", at + "archive-c/accept", `{"generation":2}`, jsonType, 200, ""},
		"accept with key":       {"POST", at + "archive-c/accept", `{"generation":2,"key":"Q0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0M="}`, jsonType, 200, ""},
		"accept a fenced one":   {"POST", at + "archive-c/accept", `{"generation":1}`, jsonType, 409, "GENERATION_FENCED"},
		"accept nobody":         {"POST", at + "archive-z/accept", `{"generation":2}`, jsonType, 404, "ARCHIVE_UNKNOWN"},
		"accept no archive":     {"POST", at + "UPPER/accept", `{"generation":2}`, jsonType, 400, codeBadParameter},
		"accept without a body": {"POST", at + "archive-c/accept", ``, jsonType, 400, "BAD_JSON"},
		"accept as text":        {"POST", at + "archive-c/accept", `{"generation":2}`, "text/plain", 415, "UNSUPPORTED_MEDIA_TYPE"},
		"accept twice":          {"POST", at + "archive-c/accept", `{"generation":2,"generation":3}`, jsonType, 400, "BAD_JSON"},
		"accept a word":         {"POST", at + "archive-c/accept", `{"generation":"two"}`, jsonType, 400, "BAD_JSON"},
		"accept too much":       {"POST", at + "archive-c/accept", `{"x":"` + strings.Repeat("x", maxOrder) + `"}`, jsonType, 413, "TOO_LARGE"},
		"retire":                {"POST", at + "archive-c/retire", `{}`, jsonType, 409, "ARCHIVE_NEEDED"},
		"retire with force":     {"POST", at + "archive-c/retire", `{"force":true}`, jsonType, 200, ""},
		"retire nobody":         {"POST", at + "archive-z/retire", `{"force":true}`, jsonType, 404, "ARCHIVE_UNKNOWN"},
		"lost":                  {"GET", at + "archive-c/lost", "", "", 200, ""},
		"lost, next page":       {"GET", at + "archive-c/lost?after=" + wire.RecordID{1}.String(), "", "", 200, ""},
		"lost after a word":     {"GET", at + "archive-c/lost?after=word", "", "", 400, codeBadParameter},
		"lost after two":        {"GET", at + "archive-c/lost?after=a&after=b", "", "", 400, codeBadParameter},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{"x-api-key", key}
			if c.contentType != "" {
				headers = append(headers, "Content-Type", c.contentType)
			}
			a := w.do(w.request(c.method, c.path, c.body, headers...))
			if a.StatusCode != c.status {
				t.Fatalf("status %d: %s", a.StatusCode, a.body)
			}
			if c.code != "" {
				if p := a.problem(t); p.Code != c.code {
					t.Errorf("code %s: %s", p.Code, p.Detail)
				}
			}
		})
	}
}
