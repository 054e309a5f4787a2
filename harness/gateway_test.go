package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// reader is somebody who asks for files over HTTP.
type reader struct {
	t   *testing.T
	w   *world.World
	who wire.TenantID // "" is somebody without a key
}

// answer is an answer that was read to its end; cut says that it broke off.
type answer struct {
	status int
	header http.Header
	body   []byte
	cut    bool
}

func (r reader) do(method, path string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.w.Ready().HTTPURL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.who != "" {
		req.Header.Set("X-Api-Key", r.w.Ready().APIKeys[r.who])
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := bounded.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Header.Del("Date")
	return answer{resp.StatusCode, resp.Header, body, err != nil}
}

// keptFile is a file that was submitted, with what it is known by.
type keptFile struct {
	data []byte
	id   wire.RecordID
	cid  string
	leaf string // the CID of its second leaf
}

// submitShared submits a file with shares, and waits until it is stored.
func submitShared(t *testing.T, w *world.World, tenant wire.TenantID, data []byte, shares string) keptFile {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"sha256": sum(data), "shareWith": json.RawMessage(shares), "includeAttached": true,
		"files": []map[string]string{{"name": "scan.pdf", "contentType": "application/pdf", "dataBase64": base64.StdEncoding.EncodeToString(data)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.Ready().HTTPURL+"/zapier/v1/timestamp/wait", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", w.Ready().APIKeys[tenant])
	resp, err := bounded.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	job, decodeErr := wire.Decode[wire.Job](text)
	if err != nil || decodeErr != nil || resp.StatusCode != http.StatusOK || len(job.Files) != 1 {
		t.Fatalf("%s: %s, %v, %v", resp.Status, text, err, decodeErr)
	}
	return known(t, data, job.Files[0].ID)
}

// known computes by what a file in the default profile is known.
func known(t *testing.T, data []byte, id wire.RecordID) keptFile {
	t.Helper()
	sums, err := blob.SumReader(bytes.NewReader(data), blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	leaf := blob.CID{Digest: sha256.Sum256(secondLeaf(data)), Raw: true}
	return keptFile{data: data, id: id, cid: sums.CID, leaf: leaf.String()}
}

func secondLeaf(data []byte) []byte { return data[1<<20 : min(2<<20, len(data))] }

// way is one way to bytes; "nothing" stands for those of the raw root.
type way struct {
	path    func(keptFile) string
	headers []string
	want    func(keptFile) []byte // nil: the root node, which is checked against its CID
	keyed   bool                  // nobody gets through without a key
}

func ways() map[string]way {
	byID := func(f keptFile) string { return "/zapier/v1/files/" + f.id.String() }
	byCID := func(f keptFile) string { return "/ipfs/" + f.cid }
	leaf := func(f keptFile) string { return "/ipfs/" + f.leaf + "?format=raw" }
	whole := func(f keptFile) []byte { return f.data }
	part := func(f keptFile) []byte { return f.data[1<<20-5 : 1<<20+7] }
	overEdge := []string{"Range", fmt.Sprintf("bytes=%d-%d", 1<<20-5, 1<<20+6)}
	return map[string]way{
		"file by its id":    {byID, nil, whole, true},
		"range by its id":   {byID, overEdge, part, true},
		"file by its CID":   {byCID, nil, whole, false},
		"range by its CID":  {byCID, overEdge, part, false},
		"raw root":          {func(f keptFile) string { return byCID(f) + "?format=raw" }, nil, nil, false},
		"raw leaf":          {leaf, nil, func(f keptFile) []byte { return secondLeaf(f.data) }, false},
		"range of a leaf":   {leaf, []string{"Range", "bytes=-3"}, func(f keptFile) []byte { l := secondLeaf(f.data); return l[len(l)-3:] }, false},
		"leaf by its codec": {func(f keptFile) string { return "/ipfs/" + f.leaf }, []string{"Accept", "application/vnd.ipld.raw"}, func(f keptFile) []byte { return secondLeaf(f.data) }, false},
	}
}

// Tenant x public or private x route x format x method, on real archives: the same
// bytes for all who may see a file; for all others, byte for byte, the answer to
// what is nowhere.
func TestAccessOnRealArchives(t *testing.T) {
	w := startWorld(t, world.Config{InProcess: true, Tenants: []wire.TenantID{"acme", "globex", "initech"}, Env: []string{"PUT_MIN_COPIES=2"}})
	files := map[bool]keptFile{ // by whether it is public
		false: submitShared(t, w, "acme", randomBytes(2<<20+77, 31), `["globex"]`),
		true:  submitShared(t, w, "acme", randomBytes(2<<20+78, 32), `["*"]`),
	}
	nowhere := known(t, randomBytes(2<<20+77, 33), wire.RecordID(sum([]byte("nowhere"))))
	for public, f := range files {
		for name, how := range ways() {
			for _, who := range []wire.TenantID{"acme", "globex", "initech", ""} {
				for _, method := range []string{"GET", "HEAD"} {
					t.Run(fmt.Sprintf("public %t/%s/%q/%s", public, name, who, method), func(t *testing.T) {
						r := reader{t, w, who}
						headers := append([]string{"X-Request-Id", "same"}, how.headers...)
						got := r.do(method, how.path(f), headers...)
						if who == "acme" || public && (who != "" || !how.keyed) || who == "globex" {
							how.granted(t, method, public, f, got)
							return
						}
						absent := r.do(method, how.path(nowhere), headers...)
						if diff := cmp.Diff(nowhere.unnamed(absent), f.unnamed(got), cmp.AllowUnexported(answer{})); diff != "" {
							t.Errorf("what is another's and what is nowhere differ (-nowhere +another's):\n%s", diff)
						}
						want := http.StatusNotFound
						if who == "" {
							want = http.StatusUnauthorized
						}
						if got.status != want {
							t.Errorf("status %d", got.status)
						}
					})
				}
			}
		}
	}
	for _, who := range []wire.TenantID{"acme", "globex", "initech", ""} {
		want := map[wire.TenantID]int{"acme": 200, "globex": 200, "initech": 412, "": 401}[who]
		if got := (reader{t, w, who}).do("GET", "/ipfs/"+files[false].cid, "Cache-Control", "only-if-cached"); got.status != want {
			t.Errorf("%q, only if cached: %d", who, got.status)
		}
	}
}

// unnamed takes out of an answer what names the file that was asked for.
func (f keptFile) unnamed(a answer) answer {
	a.body = []byte(strings.NewReplacer(f.cid, "CID", f.leaf, "LEAF", f.id.String(), "ID").Replace(string(a.body)))
	return a
}

func (h way) granted(t *testing.T, method string, public bool, f keptFile, got answer) {
	t.Helper()
	status, cache := 200, "private, max-age=29030400, immutable"
	if public {
		cache = "public, max-age=29030400, immutable"
	}
	if method == "GET" && len(h.headers) > 0 && h.headers[0] == "Range" {
		status = 206
	}
	if got.status != status || got.cut || got.header.Get("Cache-Control") != cache || public && strings.Contains(got.header.Get("Vary"), "Api-Key") {
		t.Fatalf("status %d, cut %t, %v", got.status, got.cut, got.header)
	}
	switch {
	case method == "HEAD":
		if len(got.body) > 0 || got.header.Get("Content-Length") == "0" {
			t.Errorf("%d bytes, %v", len(got.body), got.header)
		}
	case h.want == nil:
		c, err := blob.ParseCID(f.cid)
		if err != nil || sha256.Sum256(got.body) != c.Digest {
			t.Errorf("%d bytes are not the root, %v", len(got.body), err)
		}
	case !bytes.Equal(got.body, h.want(f)):
		t.Errorf("%d other bytes", len(got.body))
	}
}

// bytesOnDisk are the copies of a file that the archives of a world keep.
func bytesOnDisk(t *testing.T, w *world.World, data []byte) (paths []string) {
	t.Helper()
	name := hex.EncodeToString(func() []byte { d := sum(data); return d[:] }())
	err := filepath.WalkDir(w.Ready().Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d copies, %v", len(paths), err)
	}
	return paths
}

// A bit that flips in every copy of a file is never served, and never makes what
// was acknowledged absent: an answer is broken off or says that it can not be done,
// and what does not touch the leaf is served. With one good copy nothing is wrong.
func TestNoFlippedBitOfAFileIsServed(t *testing.T) {
	w := startWorld(t, world.Config{InProcess: true, Env: []string{"PUT_MIN_COPIES=2"}})
	const chunk = 1 << 20
	acme, globex := reader{t, w, "acme"}, reader{t, w, "globex"}
	for i, at := range []int64{chunk - 1, 2*chunk + 5, 0, chunk}[:need.Rounds(2, 4)] {
		f := submitShared(t, w, "acme", randomBytes(2*chunk+77, 40+uint64(i)), `[]`)
		for n, path := range bytesOnDisk(t, w, f.data) {
			if n == 1 { // one copy is good
				if got := acme.do("GET", "/ipfs/"+f.cid); got.status != 200 || got.cut || !bytes.Equal(got.body, f.data) {
					t.Errorf("bit of byte %d of one copy: %d, %d bytes, cut %t", at, got.status, len(got.body), got.cut)
				}
				for _, a := range w.Ready().Archives { // what was verified is in memory no more
					if err := w.Restart(t.Context(), string(a.ID)); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.WaitUp(t.Context(), 3); err != nil {
					t.Fatal(err)
				}
			}
			flipBit(t, path, at)
		}
		first := at / chunk * chunk
		damaged := blob.CID{Digest: sha256.Sum256(f.data[first:min(first+chunk, int64(len(f.data)))]), Raw: true}
		for name, got := range map[string]answer{
			"the file":     acme.do("GET", "/ipfs/"+f.cid),
			"by its id":    acme.do("GET", "/zapier/v1/files/"+f.id.String()),
			"a range":      acme.do("GET", "/ipfs/"+f.cid, "Range", fmt.Sprintf("bytes=%d-%d", first, first)),
			"a raw block":  acme.do("GET", "/ipfs/"+damaged.String()+"?format=raw"),
			"and a suffix": acme.do("GET", "/ipfs/"+f.cid, "Range", fmt.Sprintf("bytes=-%d", int64(len(f.data))-at)),
		} {
			if !got.cut && got.status < 500 || got.status == 404 || len(got.body) > int(first) && got.status < 300 {
				t.Errorf("bit of byte %d, %s: %d, %d bytes, cut %t: %.200s", at, name, got.status, len(got.body), got.cut, got.body)
			}
			if got.status >= 400 && (got.header.Get("Cache-Control") != "no-store" || got.header.Get("ETag") != "") {
				t.Errorf("bit of byte %d, %s: %v", at, name, got.header)
			}
		}
		sound := (first + chunk) % (3 * chunk) // the leaf behind it, or the first
		want := f.data[sound : sound+9]
		if got := acme.do("GET", "/ipfs/"+f.cid, "Range", fmt.Sprintf("bytes=%d-%d", sound, sound+8)); got.status != 206 || got.cut || !bytes.Equal(got.body, want) {
			t.Errorf("bit of byte %d, a range of another leaf: %d, %q", at, got.status, got.body)
		}
		if got := globex.do("GET", "/ipfs/"+f.cid); got.status != 404 {
			t.Errorf("bit of byte %d, a stranger: %d", at, got.status)
		}
	}
}

func flipBit(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (at % 8)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// What no archive that answers has is absent only when all have answered, for a
// block as for a file; what is at hand is served meanwhile.
func TestSilentArchiveMakesNoBlockAbsent(t *testing.T) {
	w := startWorld(t, world.Config{InProcess: true, Env: []string{"PUT_MIN_COPIES=2", "WAIT_ARCHIVE_MS=300"}})
	acme := reader{t, w, "acme"}
	f := submitShared(t, w, "acme", randomBytes(1<<20+9, 50), `[]`)
	nowhere := known(t, randomBytes(1<<20+9, 51), wire.RecordID{1})
	for _, path := range []string{"/ipfs/" + nowhere.cid, "/ipfs/" + nowhere.leaf + "?format=raw"} {
		if got := acme.do("GET", path); got.status != 404 {
			t.Errorf("all answer, %s: %d", path, got.status)
		}
	}
	if err := w.StopOne(t.Context(), "archive-b"); err != nil {
		t.Fatal(err)
	}
	awaitDown(t, w.Client("acme"), "archive-b")
	for _, path := range []string{"/ipfs/" + nowhere.cid, "/ipfs/" + nowhere.leaf + "?format=raw", "/zapier/v1/files/" + nowhere.id.String()} {
		if got := acme.do("GET", path); got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(string(got.body), "ARCHIVES_MISSING") {
			t.Errorf("one is silent, %s: %d %s", path, got.status, got.body)
		}
	}
	if got := acme.do("GET", "/ipfs/"+f.leaf+"?format=raw"); got.status != 200 || !bytes.Equal(got.body, secondLeaf(f.data)) {
		t.Errorf("a block at hand: %d", got.status)
	}
}
