package edge

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// headersOf picks headers of an answer; absent ones read as "".
func headersOf(a answered, names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		out[n] = a.Header.Get(n)
	}
	return out
}

func TestRecordBytesAreExact(t *testing.T) {
	w := newWorld(t)
	public, private, custom := wire.RecordID{1}, wire.RecordID{2}, wire.RecordID{3}
	exact := "{\"b\":1.0, \"a\":\"<\u00e9\u2028>\"}\n "
	w.store.records = map[wire.RecordID]map[wire.TenantID]jobs.Body{
		public:  {acme: {Kind: wire.KindMetadata, ContentType: jsonType, Bytes: []byte(exact), SHA256: digestOf(exact)}},
		private: {acme: {Kind: wire.KindPrivateMetadata, ContentType: jsonType, Bytes: []byte(`{"p":1}`), SHA256: digestOf(`{"p":1}`)}},
		custom:  {acme: {Kind: "page", ContentType: "text/html", Bytes: []byte("<script>"), SHA256: digestOf("<script>")}},
	}
	key := w.allKey(acme)
	names := []string{"Content-Type", "Content-Length", "Cache-Control", "ETag", "Repr-Digest", "Content-Disposition", "Content-Security-Policy", "X-Content-Type-Options", "Vary"}
	for _, c := range []struct {
		path, body string
		want       []string
	}{
		{"/zapier/v1/records/" + public.String(), exact, []string{jsonType, strconv.Itoa(len(exact)), cacheForEver, `"` + digestOf(exact).String() + `"`,
			reprDigest(digestOf(exact)), `attachment; filename="` + public.String() + `"`, "sandbox; default-src 'none'", "nosniff", "Authorization, X-Api-Key"}},
		{"/zapier/v1/records/" + private.String(), `{"p":1}`, []string{jsonType, "7", "no-store", `"` + digestOf(`{"p":1}`).String() + `"`,
			reprDigest(digestOf(`{"p":1}`)), `attachment; filename="` + private.String() + `"`, "sandbox; default-src 'none'", "nosniff", "Authorization, X-Api-Key"}},
		{"/zapier/v1/records/" + private.String() + "?sealed=true", "ciphertext", []string{"application/octet-stream", "10", "no-store", `"` + digestOf("ciphertext").String() + `"`,
			reprDigest(digestOf("ciphertext")), `attachment; filename="` + private.String() + `"`, "sandbox; default-src 'none'", "nosniff", "Authorization, X-Api-Key"}},
		{"/zapier/v1/records/" + custom.String(), "<script>", []string{"application/octet-stream", "8", cacheForEver, `"` + digestOf("<script>").String() + `"`,
			reprDigest(digestOf("<script>")), `attachment; filename="` + custom.String() + `"`, "sandbox; default-src 'none'", "nosniff", "Authorization, X-Api-Key"}},
	} {
		a := w.do(w.request("GET", c.path, "", "x-api-key", key))
		if a.StatusCode != 200 || string(a.body) != c.body {
			t.Errorf("%s: status %d: %q", c.path, a.StatusCode, a.body)
		}
		want := map[string]string{}
		for i, n := range names {
			want[n] = c.want[i]
		}
		if diff := cmp.Diff(want, headersOf(a, names...)); diff != "" {
			t.Errorf("%s: %s", c.path, diff)
		}
		head := w.do(w.request("HEAD", c.path, "", "x-api-key", key))
		if diff := cmp.Diff(want, headersOf(head, names...)); diff != "" || len(head.body) != 0 {
			t.Errorf("HEAD %s: %d bytes: %s", c.path, len(head.body), diff)
		}
		again := w.do(w.request("GET", c.path, "", "x-api-key", key, "If-None-Match", a.Header.Get("ETag")))
		if again.StatusCode != 304 || len(again.body) != 0 || again.Header.Get("Content-Length") != "" {
			t.Errorf("%s again: status %d, %v", c.path, again.StatusCode, again.Header)
		}
	}
}

func TestFileBytesAreWhole(t *testing.T) {
	w := newWorld(t)
	for _, content := range []string{"", "x", strings.Repeat("0123456789abcdef", 40<<10)} { // 640 KiB: more than one read
		id, want := w.addFile(acme, content, func(f *jobs.File) { f.Name = "R\u00e9sum\u00e9 \"1\"/../x.pdf" })
		key := w.allKey(acme)
		path := "/zapier/v1/files/" + id.String()
		a := w.do(w.request("GET", path, "", "x-api-key", key))
		if a.StatusCode != 200 || string(a.body) != string(want) || a.ContentLength != int64(len(want)) {
			t.Fatalf("%d bytes: status %d, got %d", len(want), a.StatusCode, len(a.body))
		}
		wantHeaders := map[string]string{
			"Content-Type": "application/pdf", "Accept-Ranges": "bytes", "ETag": `"` + digestOf(content).String() + `"`,
			"Repr-Digest": reprDigest(digestOf(content)), "Cache-Control": privateForEver, "Content-Security-Policy": "sandbox; default-src 'none'",
			"Content-Disposition": `attachment; filename="R_sum_ _1__.._x.pdf"; filename*=UTF-8''R%C3%A9sum%C3%A9%20%221%22_.._x.pdf`,
		}
		for _, a := range []answered{a, w.do(w.request("HEAD", path, "", "x-api-key", key)), w.do(w.request("GET", path, "", "x-api-key", key, "Range", "bytes=0-0,2-3"))} {
			got := headersOf(a, "Content-Type", "Accept-Ranges", "ETag", "Repr-Digest", "Cache-Control", "Content-Security-Policy", "Content-Disposition")
			if diff := cmp.Diff(wantHeaders, got); diff != "" || a.StatusCode != 200 || a.ContentLength != int64(len(want)) {
				t.Errorf("%s: status %d, length %d: %s", a.Request.Method, a.StatusCode, a.ContentLength, diff)
			}
		}
		if a := w.do(w.request("GET", path, "", "x-api-key", key, "If-None-Match", "*")); a.StatusCode != 304 {
			t.Errorf("If-None-Match: status %d", a.StatusCode)
		}
	}
}

// What is not there and what is not the caller's are one answer, byte for byte,
// for every door to content, conditional or not.
func TestMissingAndForeignLookAlike(t *testing.T) {
	full, empty := newWorld(t), newWorld(t)
	id, _ := full.addFile(other, "hello")
	cid := full.store.files[id][other].CID
	full.store.records = map[wire.RecordID]map[wire.TenantID]jobs.Body{id: {other: {Bytes: []byte("x")}}}
	for _, path := range []string{"/zapier/v1/files/" + id.String(), "/zapier/v1/records/" + id.String(), "/ipfs/" + cid, "/ipfs/" + cid + "?format=raw", "/ipfs/" + cid + "?download=true&filename=x"} {
		for _, method := range []string{"GET", "HEAD"} {
			for _, condition := range [][]string{nil, {"If-None-Match", "*"}, {"If-None-Match", `"` + cid + `"`}, {"Range", "bytes=0-1"}, {"Cache-Control", "only-if-cached"}} {
				var got [2]answered
				for i, w := range []*world{full, empty} {
					headers := append([]string{"x-api-key", w.allKey(acme), "X-Request-Id", "same"}, condition...)
					got[i] = w.do(w.request(method, path, "", headers...))
					got[i].Header.Del("Date")
				}
				a, b := got[0], got[1]
				if diff := cmp.Diff(a.Header, b.Header); diff != "" || a.StatusCode != b.StatusCode || string(a.body) != string(b.body) {
					t.Errorf("%s %s %q: %d and %d, %s\n%s\n%s", method, path, condition, a.StatusCode, b.StatusCode, diff, a.body, b.body)
				}
				if a.StatusCode == 200 || a.StatusCode == 304 || a.StatusCode >= 500 {
					t.Errorf("%s %s %q: status %d", method, path, condition, a.StatusCode)
				}
				if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("ETag") != "" {
					t.Errorf("%s %s: an error that may be cached: %v", method, path, a.Header)
				}
			}
		}
	}
}

// An answer that can not be completed never looks complete.
func TestBrokenFileIsNeverWhole(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 40<<10)
	for name, c := range map[string]struct {
		content string
		change  func(*world, *jobs.File)
		status  int // 0: broken off
		code    string
	}{
		"no archive has it":     {"hello", func(w *world, f *jobs.File) { f.ArchiveIDs = nil }, 503, "ARCHIVES_MISSING"},
		"wrong bytes, small":    {"hello", func(w *world, f *jobs.File) { f.SHA256 = digestOf("hullo") }, 500, codeInternal},
		"too few bytes, small":  {"hello", func(w *world, f *jobs.File) { f.Size++ }, 500, codeInternal},
		"too many bytes, small": {"hello", func(w *world, f *jobs.File) { f.Size-- }, 500, codeInternal},
		"not empty":             {"hello", func(w *world, f *jobs.File) { f.Size, f.SHA256, w.store.tooMuch = 0, digestOf(""), true }, 500, codeInternal},
		"transient at the start": {"hello", func(w *world, f *jobs.File) {
			w.store.readErr = fault.New(fault.Transient, "SLOW", "the archive is busy")
		}, 503, "SLOW"},
		"wrong bytes, large":    {big, func(w *world, f *jobs.File) { f.SHA256 = digestOf("hullo") }, 0, ""},
		"too few bytes, large":  {big, func(w *world, f *jobs.File) { f.Size++ }, 0, ""},
		"too many bytes, large": {big, func(w *world, f *jobs.File) { f.Size-- }, 0, ""},
		"breaks in the middle":  {big, func(w *world, f *jobs.File) { w.store.readErr = errors.New("the network is down") }, 0, ""},
	} {
		for _, door := range []string{"files", "ipfs"} {
			t.Run(name+"/"+door, func(t *testing.T) {
				w := newWorld(t)
				id, _ := w.addFile(acme, c.content, func(f *jobs.File) { c.change(w, f) })
				path := "/zapier/v1/files/" + id.String()
				if door == "ipfs" {
					path = "/ipfs/" + w.store.files[id][acme].CID
				}
				res, err := w.client.Do(w.request("GET", path, "", "x-api-key", w.allKey(acme)))
				if err != nil {
					t.Fatal(err)
				}
				a, err := readAll(res)
				if c.status != 0 {
					if err != nil {
						t.Fatal(err)
					}
					if p := a.problem(t); p.Status != c.status || p.Code != c.code {
						t.Errorf("%d %s: %s", p.Status, p.Code, p.Detail)
					}
					return
				}
				if err == nil {
					t.Errorf("status %d, and %d of %d bytes read as whole", a.StatusCode, len(a.body), a.ContentLength)
				}
				w.client.CloseIdleConnections()
			})
		}
	}
}

// The key of an OCR worker fetches for several tenants, and one tenant whose
// archives are silent does not hide the file of another.
func TestFilesKeyServesItsTenants(t *testing.T) {
	w := newWorld(t)
	id, content := w.addFile(other, "hello")
	text, _, err := CreateKey(w.keyFile, KeySpec{TenantID: acme, Tenants: []wire.TenantID{"third", other}, Scopes: []Scope{ScopeFiles}})
	if err != nil {
		t.Fatal(err)
	}
	w.reloadKeys()
	for _, path := range []string{"/zapier/v1/files/" + id.String(), "/ipfs/" + w.store.files[id][other].CID} {
		if a := w.do(w.request("GET", path, "", "x-api-key", text)); a.StatusCode != 200 || string(a.body) != string(content) {
			t.Errorf("%s: status %d: %s", path, a.StatusCode, a.body)
		}
		if a := w.do(w.request("GET", path, "", "x-api-key", w.key(acme, ScopeFiles))); a.StatusCode != 404 {
			t.Errorf("%s with a plain key: status %d", path, a.StatusCode)
		}
	}
	silent := fault.New(fault.Transient, "ARCHIVES_MISSING", "1 of 3 did not answer").After(time.Second)
	missing := fault.New(fault.NotFound, "FILE_NOT_FOUND", "no such file")
	for _, c := range []struct {
		answers map[wire.TenantID]error
		want    error
	}{
		{map[wire.TenantID]error{acme: silent, "third": missing, other: nil}, nil},
		{map[wire.TenantID]error{acme: silent, "third": missing, other: missing}, silent},
		{map[wire.TenantID]error{acme: missing, "third": silent, other: missing}, silent},
		{map[wire.TenantID]error{acme: missing, "third": missing, other: missing}, missing},
	} {
		x := &exchange{key: &Key{TenantID: acme, Tenants: []wire.TenantID{"third", other}}}
		_, tenant, err := w.server.findFile(x, func(tenant wire.TenantID) (jobs.File, error) { return jobs.File{}, c.answers[tenant] })
		if !errors.Is(err, c.want) || err == nil && tenant != other {
			t.Errorf("%v: %s, %v", c.answers, tenant, err)
		}
	}
}

// What archives can not say now is 503, not 404.
func TestSilentArchivesAreNotAbsence(t *testing.T) {
	w := newWorld(t)
	w.store.err = fault.New(fault.Transient, "ARCHIVES_MISSING", "archives: 1 of 3 did not answer and may have it: ask again").After(2 * time.Second)
	key := w.allKey(acme)
	for _, path := range []string{"/zapier/v1/files/" + sha256OfHello, "/zapier/v1/records/" + sha256OfHello, "/ipfs/bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq"} {
		a := w.do(w.request("GET", path, "", "x-api-key", key))
		if p := a.problem(t); p.Status != 503 || p.Code != "ARCHIVES_MISSING" || a.Header.Get("Retry-After") != "2" {
			t.Errorf("%s: %d %s", path, p.Status, p.Code)
		}
	}
}

// A file that was acknowledged is never denied: when a record of it is found and
// no archive gives a byte, the answer is 503, whatever their reasons, and "lost"
// only when nobody else can have it. To others it still looks like what is not there.
func TestAcknowledgedFileIsNeverDenied(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		wait     string
		allHeard bool
		code     string
	}{
		"none of the holders has it": {fault.New(fault.NotFound, "NOT_FOUND", "bus: no such file"), "5", true, "ARCHIVES_MISSING"},
		"all of them lost it":        {fault.New(fault.Corrupt, "BLOB_CORRUPT", "bus: /data/x is damaged"), "5", true, "ARCHIVES_MISSING"},
		"they know it as lost":       {fault.New(fault.Corrupt, "FILE_LOST", "bus: file x is lost"), "5", true, codeFileLost},
		"another is silent":          {fault.New(fault.Corrupt, "FILE_LOST", "bus: file x is lost"), "5", false, "ARCHIVES_MISSING"},
		"they are silent":            {fault.New(fault.Transient, "ARCHIVE_UNREACHABLE", "bus: archive-a: no process"), "5", true, "ARCHIVES_MISSING"},
		"they are busy":              {fault.New(fault.Transient, "BUSY", "bus: busy").After(9 * time.Second), "9", true, "ARCHIVES_MISSING"},
		"their disks fail":           {errors.New("bus: input/output error"), "5", true, "ARCHIVES_MISSING"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id, _ := w.addFile(acme, "hello", func(f *jobs.File) { f.AllHeard = c.allHeard })
			w.store.openErr = c.err
			mine, theirs := w.allKey(acme), w.allKey(other)
			for _, path := range []string{"/zapier/v1/files/" + id.String(), "/ipfs/" + w.store.files[id][acme].CID} {
				a := w.do(w.request("GET", path, "", "x-api-key", mine))
				p := a.problem(t)
				if p.Status != 503 || p.Code != c.code || a.Header.Get("Retry-After") != c.wait {
					t.Errorf("%s: %d %s, Retry-After %q", path, p.Status, p.Code, a.Header.Get("Retry-After"))
				}
				if strings.Contains(string(a.body), "bus: ") {
					t.Errorf("%s: the archives' reasons leave: %s", path, a.body)
				}
				if a := w.do(w.request("GET", path, "", "x-api-key", theirs)); a.StatusCode != 404 {
					t.Errorf("%s: a stranger gets %d", path, a.StatusCode)
				}
			}
			if !strings.Contains(w.log.String(), c.err.Error()) {
				t.Errorf("the log does not say why")
			}
		})
	}
}
