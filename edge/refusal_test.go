package edge

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
)

func invalid(code string) error { return fault.New(fault.Invalid, code, "made for a test") }

// refusal is a request that must be refused.
type refusal struct {
	name    string
	headers []string // pairs, beside the key
	body    string
	status  int
	code    string
	field   string // named in errors[0], if not empty
	says    string // is in the detail
}

// Every refusal of the contract's section on requests: after it nothing was
// accepted, committed or left open.
func TestRefusedRequestsLeaveNothing(t *testing.T) {
	json := []string{"Content-Type", jsonType}
	multi := []string{"Content-Type", multiType}
	big := strings.Repeat("x", 300)
	file := `name="files"; filename="a.bin"`
	cases := []refusal{
		// Media types.
		{"no content type", nil, `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", "multipart/form-data"},
		{"other content type", []string{"Content-Type", "text/plain"}, `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", "application/json"},
		{"urlencoded form", []string{"Content-Type", "application/x-www-form-urlencoded"}, `sha256=1`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", ""},
		{"two content types", []string{"Content-Type", jsonType, "Content-Type", multiType}, `{}`, 400, "BAD_HEADER", "Content-Type", "more than once"},
		{"json in latin1", []string{"Content-Type", "application/json; charset=latin1"}, `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", "UTF-8"},
		{"broken json type", []string{"Content-Type", "application/json; charset"}, `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", "parse"},
		{"gzip body", append([]string{"Content-Encoding", "gzip"}, json...), `{}`, 415, "UNSUPPORTED_ENCODING", "Content-Encoding", "uncompressed"},
		{"no boundary", []string{"Content-Type", "multipart/form-data"}, form(), 400, "BAD_CONTENT_TYPE", "", "boundary"},
		{"no semicolon", []string{"Content-Type", "multipart/form-data boundary=cut"}, form(), 400, "BAD_CONTENT_TYPE", "", ""},
		{"empty boundary", []string{"Content-Type", `multipart/form-data; boundary=""`}, form(), 400, "BAD_CONTENT_TYPE", "", "empty"},
		{"multipart/mixed", []string{"Content-Type", "multipart/mixed; boundary=cut"}, form(), 415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type", ""},

		// Idempotency keys.
		{"empty idempotency key", append([]string{"Idempotency-Key", `""`}, json...), `{"data":"x"}`, 400, "BAD_IDEMPOTENCY_KEY", "Idempotency-Key", "empty"},
		{"open quote", append([]string{"Idempotency-Key", `"abc`}, json...), `{"data":"x"}`, 400, "BAD_IDEMPOTENCY_KEY", "Idempotency-Key", "quotes"},
		{"long idempotency key", append([]string{"Idempotency-Key", strings.Repeat("k", 256)}, json...), `{"data":"x"}`, 400, "BAD_IDEMPOTENCY_KEY", "Idempotency-Key", "255"},
		{"two idempotency keys", append([]string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, json...), `{"data":"x"}`, 400, "BAD_HEADER", "Idempotency-Key", ""},

		// JSON.
		{"empty json", json, ``, 400, "BAD_JSON", "", ""},
		{"null", json, `null`, 400, "BAD_JSON", "", ""},
		{"list", json, `[]`, 400, "BAD_JSON", "", ""},
		{"trailing data", json, `{"data":"x"} {}`, 400, "BAD_JSON", "", ""},
		{"duplicate key", json, `{"data":"x","data":"y"}`, 400, "BAD_JSON", "", ""},
		{"case variant", json, `{"SHA256":"x"}`, 400, "BAD_JSON", "", ""},
		{"no subject", json, `{"publicMetadata":{"a":1}}`, 422, "SUBJECT_REQUIRED", "", ""},
		{"short digest", json, `{"sha256":"da39a3ee5e6b4b0d3255bfef95601890afd80709"}`, 400, "BAD_DIGEST", "sha256", "40"},
		{"digest and data disagree", json, `{"sha256":"` + strings.Repeat("0", 63) + `1","data":"x"}`, 422, "DIGEST_MISMATCH", "", ""},
		{"file is a link", json, `{"files":["https://zap.example/engine/hydrate/1/"]}`, 422, "FILE_IS_URL", "files[0]", ""},
		{"ocr of no file", json, `{"data":"x","ocr":true}`, 422, "FILE_REQUIRED", "ocr", ""},
		{"reserved kind", json, `{"data":"x","attachments":[{"kind":"hold","dataBase64":"eA=="}]}`, 400, "RESERVED_KIND", "", ""},
		{"metadata is a text", json, `{"data":"x","publicMetadata":"a"}`, 400, "BAD_FIELD", "publicMetadata", ""},
		{"json over the limit", json, `{"data":"` + big + `"}`, 413, "TOO_LARGE", "", "MAX_JSON_BODY"},

		// Multipart.
		{"unquoted blank in a file name", multi, form(`name="files"; filename=scan 1.pdf`, "x"), 400, "BAD_PART", "", "part 1"},
		{"no name", multi, form(`filename="a"`, "x"), 400, "BAD_PART", "", ""},
		{"quoted-printable", multi, "--cut\r\nContent-Disposition: form-data; name=\"data\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3D\r\n--cut--\r\n", 415, "UNSUPPORTED_ENCODING", "", ""},
		{"duplicate field", multi, form(`name="sha256"`, sha256OfHello, `name="sha256"`, sha256OfHello), 400, "DUPLICATE_FIELD", "", "sha256"},
		{"case variant of a field", multi, form(`name="SHA256"`, sha256OfHello), 400, "UNKNOWN_FIELD", "", ""},
		{"file is a link in a form", multi, form(`name="files"`, "https://zap.example/engine/hydrate/1/"), 422, "FILE_IS_URL", "", ""},
		{"several files, no subject", multi, form(file, "x", file, "y"), 422, "SUBJECT_REQUIRED", "", ""},
		{"bad digest after a file", multi, form(file, "x", `name="sha256"`, "nonsense"), 400, "BAD_DIGEST", "sha256", ""},
		{"cut inside a file", multi, "--cut\r\nContent-Disposition: form-data; " + file + "\r\n\r\nabc", 400, "INCOMPLETE_BODY", "", ""},
		{"cut after a delimiter", multi, strings.TrimSuffix(form(file, "abc"), "--\r\n"), 400, "INCOMPLETE_BODY", "", ""},
		{"cut in headers", multi, "--cut\r\nContent-Disp", 400, "INCOMPLETE_BODY", "", ""},
		{"empty form", multi, "", 400, "INCOMPLETE_BODY", "", ""},
		{"another boundary", multi, strings.ReplaceAll(form(file, "abc"), "cut", "tuc"), 400, "MALFORMED_MULTIPART", "", ""},
		{"form over the limit", multi, form(file, strings.Repeat("x", 2000)), 413, "TOO_LARGE", "", "MAX_BODY"},
		{"scalar over the limit", multi, form(`name="sha256"`, big), 413, "TOO_LARGE", "", "MAX_FIELD"},
	}
	w := newWorld(t, func(c *Config) { c.Body = splitter.Limits{JSONBody: 256, Body: 1024} })
	key := w.allKey(acme)
	for _, path := range []string{"/zapier/v1/timestamp", "/zapier/v1/timestamp/wait"} {
		for _, c := range cases {
			t.Run(path[11:]+"/"+c.name, func(t *testing.T) {
				committed := w.uploads.count("committed")
				a := w.do(w.request("POST", path, c.body, append([]string{"x-api-key", key}, c.headers...)...))
				p := a.problem(t)
				if p.Status != c.status || p.Code != c.code {
					t.Errorf("got %d %s, want %d %s: %s", p.Status, p.Code, c.status, c.code, p.Detail)
				}
				if c.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != c.field) {
					t.Errorf("fields at fault: %+v, want %s", p.Errors, c.field)
				}
				if !strings.Contains(p.Detail, c.says) {
					t.Errorf("the detail does not say %q: %s", c.says, p.Detail)
				}
				if n := len(w.jobs.acceptances()); n != 0 {
					t.Errorf("%d submissions were accepted", n)
				}
				if n := w.uploads.open(); n != 0 || w.uploads.count("committed") != committed {
					t.Errorf("%d uploads are open, %d committed", n, w.uploads.count("committed"))
				}
			})
		}
	}
	if w.uploads.count("aborted") == 0 {
		t.Error("no case of the table ever opened an upload, so it shows less than it should")
	}
}

// A stated length over the limit is refused before the body is read.
func TestStatedLengthIsRefusedUnread(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Body = splitter.Limits{JSONBody: 256, Body: 1024} })
	key := w.allKey(acme)
	for contentType, limit := range map[string]int64{jsonType: 256, multiType: 1024} {
		for _, length := range []int64{limit, limit + 1} {
			r := w.request("POST", "/zapier/v1/timestamp", "", "x-api-key", key, "Content-Type", contentType)
			body := &countingBody{left: length}
			r.Body, r.ContentLength = body, length
			before := w.server.metricsOf(t, "verae_edge_received_bytes_total")
			p := w.do(r).problem(t)
			read := w.server.metricsOf(t, "verae_edge_received_bytes_total") - before
			if over := length > limit; over != (p.Status == 413) || over != (read == 0) {
				t.Errorf("%s with %d bytes: status %d after %v bytes: %s", contentType, length, p.Status, read, p.Detail)
			}
		}
	}
}

// countingBody is a body of blanks.
type countingBody struct{ left int64 }

func (b *countingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left)
	for i := range p[:n] {
		p[i] = ' '
	}
	b.left -= n
	return int(n), nil
}

func (b *countingBody) Close() error { return nil }

// What Accept refuses is told by its kind and code, and nothing is left open.
func TestErrorsOfAcceptBecomeProblems(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
		says   string
	}{
		{fault.New(fault.Transient, "NO_ARCHIVE", "no archive took submission 1").After(1500 * time.Millisecond), 503, "NO_ARCHIVE", "2", "submission 1"},
		{fault.New(fault.Transient, "NO_ARCHIVE", "x"), 503, "NO_ARCHIVE", "1", ""},
		{fault.New(fault.Invalid, "IDEMPOTENCY_KEY_REUSED", "other content"), 422, "IDEMPOTENCY_KEY_REUSED", "", "other content"},
		{fault.New(fault.Conflict, "IDEMPOTENCY_IN_FLIGHT", "still running"), 409, "IDEMPOTENCY_IN_FLIGHT", "", ""},
		{fault.New(fault.Invalid, "UNSUPPORTED", "callbackUrl").InField("callbackUrl"), 422, "UNSUPPORTED", "", ""},
		{fmt.Errorf("wrapped twice: %w", fault.New(fault.Conflict, "X", "plain words")), 409, "X", "", "plain words"},
		{fault.Wrap(fault.Transient, errors.New("dial tcp 10.0.0.7:4222")), 503, "UNAVAILABLE", "1", "try again"},
		{fault.New(fault.Corrupt, "ROW", "secret path"), 500, "INTERNAL", "", "requestId"},
		{fault.New(fault.Internal, "CRASH", "secret path"), 500, "INTERNAL", "", "requestId"},
		{errors.New("secret path"), 500, "INTERNAL", "", "requestId"},
		{fault.New(fault.Kind(77), "NEW", "secret path"), 500, "INTERNAL", "", "requestId"},
		{fault.New(fault.Internal, "DIGEST_MISMATCH", "secret path"), 500, "INTERNAL", "", "requestId"},
		{fault.Wrap(fault.Invalid, errors.New("no code")), 400, "INVALID", "", "no code"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			w := newWorld(t)
			w.jobs.acceptErr = c.err
			body := form(`name="sha256"`, sha256OfHello, `name="files"; filename="a"`, "hello")
			a := w.do(w.request("POST", "/zapier/v1/timestamp/wait", body, "x-api-key", w.allKey(acme), "Content-Type", multiType))
			p := a.problem(t)
			if p.Status != c.status || p.Code != c.code || a.Header.Get("Retry-After") != c.retry || !strings.Contains(p.Detail, c.says) {
				t.Errorf("got %d %s, Retry-After %q: %s", p.Status, p.Code, a.Header.Get("Retry-After"), p.Detail)
			}
			for _, secret := range []string{"secret", "10.0.0.7"} {
				if strings.Contains(string(a.body), secret) {
					t.Errorf("the answer tells what is inside: %s", a.body)
				}
			}
			if p.Status == 500 != strings.Contains(w.log.String(), `"level":"ERROR"`) {
				t.Errorf("log of a %d: %s", p.Status, w.log)
			}
			if w.uploads.count("aborted") != 1 {
				t.Error("the upload was not aborted")
			}
		})
	}
}

// Uploads that can not be opened are the archives' fault, not the sender's.
func TestNoArchiveForAFileIs503(t *testing.T) {
	w := newWorld(t)
	w.uploads.err = fault.New(fault.Transient, "NO_ARCHIVE", "0 of 3 archives are alive").After(3 * time.Second)
	a := w.do(w.request("POST", "/zapier/v1/timestamp", form(`name="files"; filename="a"`, "x"), "x-api-key", w.allKey(acme), "Content-Type", multiType))
	if p := a.problem(t); p.Status != 503 || p.Code != "NO_ARCHIVE" || a.Header.Get("Retry-After") != "3" {
		t.Errorf("got %d %s: %s", p.Status, p.Code, p.Detail)
	}
}

// While there is no room for a submission, a form is refused before its bytes
// are read.
func TestWithoutRoomNoBodyIsRead(t *testing.T) {
	w := newWorld(t)
	w.jobs.room = fault.New(fault.Transient, "DISK_FULL", "there is no room").After(30 * time.Second)
	headers := []string{"X-Api-Key", w.allKey("acme"), "Content-Type", multiType}
	res := w.do(w.request("POST", "/zapier/v1/timestamp", form(`name="files"; filename="a.bin"`, "hello"), headers...))
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "30" || !strings.Contains(string(res.body), "DISK_FULL") {
		t.Errorf("%d, Retry-After %q: %s", res.StatusCode, res.Header.Get("Retry-After"), res.body)
	}
	if len(w.jobs.accepted) != 0 {
		t.Error("it was accepted")
	}
}
