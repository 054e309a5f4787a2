package edge

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

var rewrite = flag.Bool("rewrite", false, "write the golden exchanges anew")

// What differs from run to run in an exchange: keys, and ids made from the time.
var passing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`vk_live_\w+`), "KEY"},
	{regexp.MustCompile(`"keyId":"\w+"`), `"keyId":"KEYID"`},
	{regexp.MustCompile(`Etag: "[0-9a-f]{32}"`), `Etag: "TAG"`}, // over an answer with such ids
	{regexp.MustCompile(`(submission=|"submissionId":")[0-9a-f-]{36}`), "${1}SUBMISSION"},
}

// dump writes an exchange as it was on the wire, with headers in order.
func dump(method, path, body string, headers []string, a answered) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", method, path)
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(&b, "%s: %s\n", headers[i], headers[i+1])
	}
	fmt.Fprintf(&b, "\n%s\n--\n%d\n", strings.ReplaceAll(body, "\r\n", "\n"), a.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		if name != "Date" {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(a.Header[name], " | "))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", a.body)
	out := b.String()
	for _, p := range passing {
		out = p.pattern.ReplaceAllString(out, p.with)
	}
	return out
}

// An exchange of every route is as it was: the shapes are a contract.
func TestGoldenExchanges(t *testing.T) {
	w := newWorld(t)
	w.jobs.ended = true
	w.server.Health.Add(serve.Check{Name: "keys", Func: w.server.Keys.(*Keyring).Ready})
	key := w.allKey(acme)
	file, _ := w.addFile(acme, "hello", func(f *jobs.File) { f.Name = "hello.txt" })
	open, _ := w.addFile(wire.Public, "for all", func(f *jobs.File) { f.Name, f.Public, f.CID = "all.txt", true, rawCID("for all") })
	w.store.records = map[wire.RecordID]map[wire.TenantID]jobs.Body{
		{1}: {acme: {Kind: wire.KindMetadata, ContentType: jsonType, Bytes: []byte(`{"a": 1.0}`), SHA256: digestOf(`{"a": 1.0}`)}},
	}
	job := "/zapier/v1/timestamp/" + string(fakeJobID)
	auth := []string{"x-api-key", key, "X-Request-Id", "golden"}
	sendJSON := append(slices.Clone(auth), "Content-Type", jsonType)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		err                      error
	}{
		{"timestamp-json", "POST", "/zapier/v1/timestamp", `{"data":"hello","publicMetadata":{"a":1}}`, sendJSON, nil},
		{"timestamp-multipart", "POST", "/zapier/v1/timestamp", form(`name="files"; filename="hello.txt"`, "hello"), append(slices.Clone(auth), "Content-Type", multiType), nil},
		{"timestamp-wait", "POST", "/zapier/v1/timestamp/wait", `{"data":"hello"}`, sendJSON, nil},
		{"timestamp-prefer", "POST", "/zapier/v1/timestamp", `{"data":"hello"}`, append(slices.Clone(sendJSON), "Prefer", "wait=5"), nil},
		{"job", "GET", job, "", auth, nil},
		{"job-wait", "GET", job + "/wait", "", auth, nil},
		{"receipts", "GET", "/zapier/v1/receipts/" + sha256OfHello, "", auth, nil},
		{"record", "GET", "/zapier/v1/records/01" + strings.Repeat("0", 62), "", auth, nil},
		{"file", "GET", "/zapier/v1/files/" + file.String(), "", auth, nil},
		{"file-range", "GET", "/zapier/v1/files/" + file.String(), "", append(slices.Clone(auth), "Range", "bytes=1-3"), nil},
		{"ipfs", "GET", "/ipfs/" + w.store.files[file][acme].CID, "", auth, nil},
		{"ipfs-range", "GET", "/ipfs/" + w.store.files[file][acme].CID + "?filename=part.txt", "", append(slices.Clone(auth), "Range", "bytes=-2"), nil},
		{"ipfs-range-behind-the-end", "GET", "/ipfs/" + w.store.files[file][acme].CID, "", append(slices.Clone(auth), "Range", "bytes=5-"), nil},
		{"ipfs-raw", "GET", "/ipfs/" + w.store.files[file][acme].CID + "?format=raw", "", append(slices.Clone(auth), "Accept", "application/vnd.ipld.raw"), nil},
		{"ipfs-unchanged", "GET", "/ipfs/" + w.store.files[file][acme].CID, "", append(slices.Clone(auth), "If-None-Match", `"`+w.store.files[file][acme].CID+`"`), nil},
		{"ipfs-only-if-cached", "HEAD", "/ipfs/" + rawCID("nowhere"), "", append(slices.Clone(auth), "Cache-Control", "only-if-cached"), nil},
		{"ipfs-public", "GET", "/ipfs/" + w.store.files[open][wire.Public].CID, "", auth[2:], nil},
		{"ipfs-no-key", "GET", "/ipfs/" + rawCID("nowhere"), "", auth[2:], nil},
		{"ipfs-probe", "HEAD", "/ipfs/bafkqaaa?format=raw", "", auth[2:], nil},
		{"kubo-add", "POST", "/api/v0/add", addForm("a%20b.txt", "hello"), append(slices.Clone(auth), "Content-Type", multiType), nil},
		{"kubo-add-progress", "POST", "/api/v0/add?progress=true&pin=true", addForm("", "hello"), append(slices.Clone(auth), "Content-Type", multiType), nil},
		{"kubo-add-refused", "POST", "/api/v0/add?cid-version=0", addForm("a.txt", "hello"), append(slices.Clone(auth), "Content-Type", multiType), nil},
		{"kubo-add-cut", "POST", "/api/v0/add", "--cut\r\n", append(slices.Clone(auth), "Content-Type", multiType), nil},
		{"kubo-add-no-archive", "POST", "/api/v0/add", addForm("a.txt", "hello"), append(slices.Clone(auth), "Content-Type", multiType),
			fault.New(fault.Transient, "NO_ARCHIVE", "files: 0 of 1 copies could be stored; send it again").After(5 * time.Second)},
		{"kubo-add-page", "POST", "/api/v0/add", addForm("a.txt", "hello"), append(slices.Clone(auth), "Content-Type", multiType, "Origin", "https://evil.example"), nil},
		{"kubo-add-get", "GET", "/api/v0/add", "", auth, nil},
		{"kubo-cat", "POST", "/api/v0/cat?arg=" + w.store.files[file][acme].CID + "&offset=1&length=3", "", auth, nil},
		{"kubo-cat-nowhere", "POST", "/api/v0/cat?arg=" + rawCID("nowhere"), "", auth, nil},
		{"kubo-block-get", "POST", "/api/v0/block/get?arg=/ipfs/" + w.store.files[file][acme].CID, "", auth, nil},
		{"kubo-version", "POST", "/api/v0/version", "", auth, nil},
		{"kubo-unknown", "POST", "/api/v0/pin/add", "", auth, nil},
		{"me", "GET", "/zapier/v1/me", "", auth, nil},
		{"archives", "GET", "/zapier/v1/archives", "", auth, nil},
		{"archive-accept-fenced", "POST", "/zapier/v1/archives/archive-c/accept", `{"generation":1}`, sendJSON, nil},
		{"archive-retire-needed", "POST", "/zapier/v1/archives/archive-c/retire", `{}`, sendJSON, nil},
		{"archive-retire", "POST", "/zapier/v1/archives/archive-c/retire", `{"force":true}`, sendJSON, nil},
		{"archive-lost", "GET", "/zapier/v1/archives/archive-c/lost", "", auth, nil},
		{"livez", "GET", "/livez", "", auth[2:], nil},
		{"readyz", "GET", "/readyz?verbose", "", auth[2:], nil},
		{"no-key", "GET", "/zapier/v1/me", "", auth[2:], nil},
		{"no-route", "GET", "/zapier/v2/me?secret=1", "", auth, nil},
		{"wrong-method", "DELETE", "/zapier/v1/timestamp", "", auth, nil},
		{"digest-mismatch", "POST", "/zapier/v1/timestamp", `{"sha256":"` + strings.Repeat("0", 63) + `1","data":"hello"}`, sendJSON, nil},
		{"media-type", "POST", "/zapier/v1/timestamp", `sha256=1`, append(slices.Clone(auth), "Content-Type", "application/x-www-form-urlencoded"), nil},
		{"no-archive", "POST", "/zapier/v1/timestamp", `{"data":"hello"}`, sendJSON, fault.New(fault.Transient, "NO_ARCHIVE", "files: 0 of 1 copies could be stored; send it again")},
		{"retain", "POST", "/zapier/v1/retentions", `{"sha256":"` + sha256OfHello + `","retainUntil":"2036-11-30T01:00:00+01:00"}`, sendJSON, nil},
		{"retain-shorter", "POST", "/zapier/v1/retentions", `{"sha256":"` + sha256OfHello + `","retainUntil":"2035-01-01T00:00:00Z"}`, sendJSON, nil},
		{"hold", "POST", "/zapier/v1/holds", `{"sha256":"` + sha256OfHello + `","name":"case 17","reason":"Smith v. Acme"}`, sendJSON, nil},
		{"retentions", "GET", "/zapier/v1/retentions/" + sha256OfHello, "", auth, nil},
		{"record-retention", "GET", "/zapier/v1/records/01" + strings.Repeat("0", 62) + "/retention", "", auth, nil},
		{"release", "DELETE", "/zapier/v1/holds/" + sha256OfHello + "?name=case+17", "", auth, nil},
		{"release-no-hold", "DELETE", "/zapier/v1/holds/" + sha256OfHello + "?name=case+18", "", auth, nil},
		{"delete-record", "DELETE", "/zapier/v1/records/01" + strings.Repeat("0", 62), "", auth, nil},
		{"internal", "POST", "/zapier/v1/timestamp", `{"data":"hello"}`, sendJSON, fault.New(fault.Internal, "", "the disk is on fire")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.jobs.acceptErr = c.err
			got := dump(c.method, c.path, c.body, c.headers, w.do(w.request(c.method, c.path, c.body, c.headers...)))
			path := filepath.Join("testdata", "exchanges", c.name+".http")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
