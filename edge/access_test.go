package edge

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// rawCID is the CID of a file, or block, of one chunk.
func rawCID(content string) string {
	return blob.CID{Digest: digestOf(content), Raw: true}.String()
}

// door is one way to bytes.
type door struct {
	name, path, want string
	headers          []string
	status           int
	keyed            bool // nobody gets through without a key
}

func doorsOf(file wire.RecordID, cid, leaf string) []door {
	return []door{
		{"file by its id", "/zapier/v1/files/" + file.String(), "hello", nil, 200, true},
		{"range by its id", "/zapier/v1/files/" + file.String(), "el", []string{"Range", "bytes=1-2"}, 206, true},
		{"file by its CID", "/ipfs/" + cid, "hello", nil, 200, false},
		{"range by its CID", "/ipfs/" + cid, "el", []string{"Range", "bytes=1-2"}, 206, false},
		{"raw root", "/ipfs/" + cid + "?format=raw", "hello", nil, 200, false},
		{"raw root by Accept", "/ipfs/" + cid, "hello", []string{"Accept", "application/vnd.ipld.raw"}, 200, false},
		{"raw leaf", "/ipfs/" + leaf + "?format=raw", "a leaf", nil, 200, false},
		{"range of a leaf", "/ipfs/" + leaf + "?format=raw", "le", []string{"Range", "bytes=2-3"}, 206, false},
		{"raw leaf, only if cached", "/ipfs/" + leaf + "?format=raw", "a leaf", []string{"Cache-Control", "only-if-cached"}, 200, false},
		{"condition", "/ipfs/" + cid, "", []string{"If-None-Match", "*"}, 304, false},
		{"range behind the end", "/ipfs/" + cid, "", []string{"Range", "bytes=99-"}, 416, false},
	}
}

// The access matrix: tenant x public or private x route x format x method. Whoever
// may see a file gets the same bytes; whoever may not gets, byte for byte, the
// answer that he would get if it were not there.
func TestAccessMatrix(t *testing.T) {
	const grantee, stranger, nobody wire.TenantID = "grantee", "stranger", ""
	for _, public := range []bool{false, true} {
		full, empty := newWorld(t), newWorld(t)
		file, _ := full.addFile(acme, "hello", func(f *jobs.File) { f.Public = public })
		f := full.store.files[file][acme]
		full.store.files[file][grantee] = f
		full.store.blocks = map[string]map[wire.Digest][]byte{f.CID: {digestOf("a leaf"): []byte("a leaf")}}
		if public {
			full.store.files[file][stranger], full.store.files[file][wire.Public] = f, f
		}
		for _, d := range doorsOf(file, f.CID, rawCID("a leaf")) {
			for _, who := range []wire.TenantID{acme, grantee, stranger, nobody} {
				for _, method := range []string{"GET", "HEAD"} {
					t.Run(fmt.Sprintf("public %t/%s/%q %s", public, d.name, who, method), func(t *testing.T) {
						may := who == acme || who == grantee || public && (who == stranger || !d.keyed)
						var got [2]answered
						for i, w := range []*world{full, empty} {
							headers := append([]string{"X-Request-Id", "same"}, d.headers...)
							if who != nobody {
								headers = append(headers, "x-api-key", w.key(who, ScopeFiles))
							}
							got[i] = w.do(w.request(method, d.path, "", headers...))
							got[i].Header.Del("Date")
						}
						if may {
							d.check(t, method, public, got[0])
							return
						}
						refusedAlike(t, d, who == nobody, got)
					})
				}
			}
		}
	}
}

// check checks an answer to somebody who may see the file.
func (d *door) check(t *testing.T, method string, public bool, a answered) {
	t.Helper()
	status, want := d.status, d.want
	if method == "HEAD" {
		if want = ""; status == 206 || status == 416 {
			status = 200 // a range is for GET
		}
	}
	if a.StatusCode != status || string(a.body) != want && status < 400 {
		t.Errorf("status %d, %q", a.StatusCode, a.body)
	}
	cache := privateForEver
	if public {
		cache = publicForEver
	}
	if status >= 400 {
		cache = "no-store"
	}
	vary := a.Header.Get("Vary")
	if a.Header.Get("Cache-Control") != cache || public && (vary != "" && vary != "Accept") && status < 400 {
		t.Errorf("Cache-Control %q, Vary %q", a.Header.Get("Cache-Control"), vary)
	}
	if (a.Header.Get("ETag") == "") != (status >= 400) {
		t.Errorf("ETag %q with status %d", a.Header.Get("ETag"), status)
	}
}

// refusedAlike checks the answers where the file is and where it is not.
func refusedAlike(t *testing.T, d door, nobody bool, got [2]answered) {
	t.Helper()
	a, b := got[0], got[1]
	if diff := cmp.Diff(a.Header, b.Header); diff != "" || a.StatusCode != b.StatusCode || string(a.body) != string(b.body) {
		t.Errorf("%d and %d, %s\n%s\n%s", a.StatusCode, b.StatusCode, diff, a.body, b.body)
	}
	want := 404
	switch {
	case nobody:
		want = 401
	case len(d.headers) > 0 && d.headers[0] == "Cache-Control":
		want = 412
	}
	if a.StatusCode != want || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("ETag") != "" {
		t.Errorf("status %d, %v", a.StatusCode, a.Header)
	}
}

// Those without a key have together no more under way than one key may.
func TestKeylessReadsAreBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.InFlight = 1 })
	id, _ := w.addFile(wire.Public, "hello", func(f *jobs.File) { f.Public = true })
	path := "/ipfs/" + w.store.files[id][wire.Public].CID
	leave, err := w.server.bounds.enter(noKey)
	if err != nil {
		t.Fatal(err)
	}
	if p := w.do(w.request("GET", path, "")).problem(t); p.Status != 429 {
		t.Errorf("status %d", p.Status)
	}
	leave()
	if a := w.do(w.request("GET", path, "")); a.StatusCode != 200 || string(a.body) != "hello" {
		t.Errorf("status %d", a.StatusCode)
	}
	// A key that is wrong is not passed over, and probing for a gateway needs none.
	if p := w.do(w.request("GET", path, "", "x-api-key", "vk_live_x")).problem(t); p.Status != 401 || p.Code != codeKeyMalformed {
		t.Errorf("a wrong key: %d %s", p.Status, p.Code)
	}
	if a := w.do(w.request("HEAD", "/ipfs/bafkqaaa?format=raw", "")); a.StatusCode != 200 {
		t.Errorf("the probe: %d", a.StatusCode)
	}
}
