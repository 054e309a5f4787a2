package edge

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/jobs"
)

// A URL is signed for a file that the caller may fetch, and for no other; what
// is not his looks like what is not there.
func TestURLsAreSignedForFilesOfTheCaller(t *testing.T) {
	w := newWorld(t)
	mine, _ := w.addFile(acme, "hello")
	theirs, _ := w.addFile(other, "not yours", func(f *jobs.File) { f.CID = blob.CID{Digest: f.SHA256, Raw: true}.String() })
	cid := w.store.files[mine][acme].CID
	foreign := w.store.files[theirs][other].CID
	absent := blob.CID{Digest: [32]byte{9}, Raw: true}.String()
	words := func(a answered, cid string) string { // of a refusal, without what names the request
		return strings.NewReplacer(a.Header.Get("X-Request-Id"), "", cid, "").Replace(string(a.body))
	}
	key := w.key(acme, ScopeFiles)
	ask := func(body string) answered {
		return w.do(w.request("POST", "/zapier/v1/urls", body, "x-api-key", key, "Content-Type", "application/json"))
	}
	for _, tc := range []struct {
		name, body, method string
		life               time.Duration
	}{
		{"as long as it may be", `{"cid":"` + cid + `"}`, "GET", blob.MaxURLLife},
		{"one second", `{"cid":"` + cid + `","expiresIn":1}`, "GET", time.Second},
		{"HEAD, under a path", `{"cid":"/ipfs/` + cid + `","method":"HEAD","expiresIn":300}`, "HEAD", blob.MaxURLLife},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := time.Now()
			a := ask(tc.body)
			var got signedURL
			if err := json.Unmarshal(a.body, &got); err != nil || a.StatusCode != http.StatusOK {
				t.Fatalf("%d %s, %v", a.StatusCode, a.body, err)
			}
			path, query, _ := strings.Cut(got.Path, "?")
			values, err := url.ParseQuery(query)
			if err != nil || path != "/ipfs/"+cid {
				t.Fatalf("%s, %v", got.Path, err)
			}
			c, err := blob.ParseCID(cid)
			if err != nil {
				t.Fatal(err)
			}
			keys := []ed25519.PublicKey{w.server.URLKey.Public().(ed25519.PublicKey)}
			// It holds as long as was asked, to the second.
			for _, at := range []time.Time{before, before.Add(tc.life - 2*time.Second)} {
				if tenant, err := blob.CheckURL(keys, tc.method, c.Digest, values, at); tenant != string(acme) && tc.life > 2*time.Second {
					t.Errorf("%q, %v", tenant, err)
				}
			}
			if _, err := blob.CheckURL(keys, tc.method, c.Digest, values, before.Add(tc.life+2*time.Second)); err == nil {
				t.Error("it holds longer")
			}
		})
	}
	no, nothing := ask(`{"cid":"`+foreign+`"}`), ask(`{"cid":"`+absent+`"}`)
	if no.StatusCode != http.StatusNotFound || words(no, foreign) != words(nothing, absent) {
		t.Errorf("another's: %d %s\nabsent: %d %s", no.StatusCode, no.body, nothing.StatusCode, nothing.body)
	}
	for name, tc := range map[string]struct{ body, code, field string }{
		"no CID":      {`{}`, blob.CodeBadCID, "cid"},
		"a bad CID":   {`{"cid":"Qm"}`, blob.CodeBadCID, "cid"},
		"too long":    {`{"cid":"` + cid + `","expiresIn":301}`, codeBadParameter, "expiresIn"},
		"negative":    {`{"cid":"` + cid + `","expiresIn":-1}`, codeBadParameter, "expiresIn"},
		"a method":    {`{"cid":"` + cid + `","method":"POST"}`, codeBadParameter, "method"},
		"no JSON":     {`cid`, "BAD_JSON", ""},
		"two of them": {`{"cid":"` + cid + `","cid":"` + cid + `"}`, "BAD_JSON", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if a := ask(tc.body); a.StatusCode != http.StatusBadRequest || !strings.Contains(string(a.body), `"code":"`+tc.code+`"`) || !strings.Contains(string(a.body), tc.field) {
				t.Errorf("%d %s", a.StatusCode, a.body)
			}
		})
	}
}

// A server without a key signs nothing.
func TestNoURLKeyNoURLs(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.URLKey = nil })
	id, _ := w.addFile(acme, "hello", func(*jobs.File) {})
	a := w.do(w.request("POST", "/zapier/v1/urls", `{"cid":"`+w.store.files[id][acme].CID+`"}`, "x-api-key", w.allKey(acme), "Content-Type", "application/json"))
	if a.StatusCode != http.StatusNotFound || !strings.Contains(string(a.body), codeRouteNotFound) {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
