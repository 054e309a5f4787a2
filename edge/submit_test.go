package edge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

const (
	sha256OfHello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	jsonType      = "application/json"
	multiType     = "multipart/form-data; boundary=cut"
)

// form builds a multipart body with the boundary "cut"; parts are pairs of a
// Content-Disposition without its "form-data; " and a content.
func form(parts ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(parts); i += 2 {
		b.WriteString("--cut\r\nContent-Disposition: form-data; " + parts[i] + "\r\n\r\n" + parts[i+1] + "\r\n")
	}
	return b.String() + "--cut--\r\n"
}

func TestAcceptedIs202WithItsLocation(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	bodies := map[string][2]string{
		"json":      {jsonType, `{"sha256":"` + sha256OfHello + `"}`},
		"json utf8": {"Application/JSON; Charset=UTF-8", `{"data":"hello"}`},
		"multipart": {multiType, form(`name="sha256"`, sha256OfHello)},
		"file":      {multiType, form(`name="files"; filename="a.txt"`, "hello")},
		"json file": {jsonType, `{"files":[{"name":"a.txt","dataBase64":"aGVsbG8="}]}`},
	}
	for name, b := range bodies {
		t.Run(name, func(t *testing.T) {
			before := len(w.jobs.acceptances())
			a := w.do(w.request("POST", "/zapier/v1/timestamp", b[1], "x-api-key", key, "Content-Type", b[0]))
			if a.StatusCode != http.StatusAccepted {
				t.Fatalf("status %d: %s", a.StatusCode, a.body)
			}
			got, err := wire.Decode[wire.Accepted](a.body)
			if err != nil {
				t.Fatal(err)
			}
			if got.SHA256.String() != sha256OfHello {
				t.Errorf("sha256 %s", got.SHA256)
			}
			if a.Header.Get("Location") != got.StatusURL || a.Header.Get("Retry-After") != "1" || a.Header.Get("Content-Type") != jsonType {
				t.Errorf("headers: %v", a.Header)
			}
			list := w.jobs.acceptances()
			if len(list) != before+1 {
				t.Fatalf("%d submissions accepted", len(list)-before)
			}
			if c := list[before].caller; c.TenantID != acme || c.SubmissionID != got.SubmissionID {
				t.Errorf("accepted for %+v", c)
			}
		})
	}
	if n := w.uploads.count("committed"); n != 2 {
		t.Errorf("%d uploads were committed, want 2", n)
	}
}

// The tenant of a request is the key's, whatever the body says.
func TestTenantIsTheKeys(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	w.do(w.request("POST", "/zapier/v1/timestamp", `{"data":"x","tenantId":"other"}`, "Authorization", "bearer "+key, "Content-Type", jsonType))
	if got := w.jobs.acceptances(); len(got) != 1 || got[0].caller.TenantID != acme {
		t.Fatalf("accepted: %+v", got)
	}
}

func TestIdempotencyKeyReachesAccept(t *testing.T) {
	w := newWorld(t)
	key := w.allKey(acme)
	for header, want := range map[string]string{`"a \"b\" c"`: `a "b" c`, "bare-1": "bare-1", `"bare-1"`: "bare-1", "": ""} {
		r := w.request("POST", "/zapier/v1/timestamp", `{"data":"x"}`, "x-api-key", key, "Content-Type", jsonType)
		if header != "" {
			r.Header.Set("Idempotency-Key", header)
		}
		if a := w.do(r); a.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: status %d: %s", header, a.StatusCode, a.body)
		}
		list := w.jobs.acceptances()
		if got := list[len(list)-1].caller.IdempotencyKey; got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}

func TestStatusOfEveryPublishedCode(t *testing.T) {
	want := map[string]int{
		splitter.CodeBadContentType: 400, splitter.CodeIncompleteBody: 400, splitter.CodeMalformedMultipart: 400,
		splitter.CodeBadPart: 400, splitter.CodeBadJSON: 400, splitter.CodeUnknownField: 400, splitter.CodeDuplicateField: 400,
		splitter.CodeBadField: 400, splitter.CodeBadDigest: 400, splitter.CodeReservedKind: 400,
		splitter.CodeTooLarge: 413, splitter.CodeUnsupportedMediaType: 415, splitter.CodeUnsupportedEncoding: 415,
		splitter.CodeSubjectRequired: 422, splitter.CodeDigestMismatch: 422, splitter.CodeFileIsURL: 422,
		splitter.CodeFileRequired: 422, "IDEMPOTENCY_KEY_REUSED": 422, "UNSUPPORTED": 422, "OCR_NO_WORKER": 422,
	}
	for code, status := range want {
		if got := statusOf(invalid(code)); got != status {
			t.Errorf("%s: status %d, want %d", code, got, status)
		}
	}
}
