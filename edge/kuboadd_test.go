package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// addForm is the body of an add, as kubo-rpc-client writes it.
func addForm(name, content string) string {
	return "--cut\r\nContent-Disposition: form-data; name=\"file-0\"; filename=\"" + name + "\"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + "\r\n--cut--\r\n"
}

// add sends a file.
func (w *world) add(key, query, name, content string, headers ...string) answered {
	w.t.Helper()
	return w.do(w.request("POST", "/api/v0/add?"+query, addForm(name, content), append(headers, "x-api-key", key, "Content-Type", multiType)...))
}

const cidOfHelloWorld = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"

// The answers of add, byte for byte.
func TestAddAnswersAsKuboDoes(t *testing.T) {
	w := newWorld(t)
	key := w.key(acme, ScopeStamp)
	large := strings.Repeat("0123456789abcdef", 1<<16+1) // 1 MiB and 16 bytes
	two, err := blob.SumReader(strings.NewReader(large), blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ query, name, content, want string }{
		{"", "a%20b.pdf", "hello world", `{"Name":"a b.pdf","Hash":"` + cidOfHelloWorld + `","Size":"11"}` + "\n"},
		{"", "", "hello world", `{"Name":"` + cidOfHelloWorld + `","Hash":"` + cidOfHelloWorld + `","Size":"11"}` + "\n"},
		{"", "empty", "", `{"Name":"empty","Hash":"bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku","Size":"0"}` + "\n"},
		{"progress=true", "a", "hello world", `{"Name":"a","Bytes":11}` + "\n" + `{"Name":"a","Hash":"` + cidOfHelloWorld + `","Size":"11"}` + "\n"},
		{"progress", "", "hello world", `{"Name":"","Bytes":11}` + "\n" + `{"Name":"` + cidOfHelloWorld + `","Hash":"` + cidOfHelloWorld + `","Size":"11"}` + "\n"},
		{"silent=true&progress=true", "a", "hello world", ""},
		{"quieter=true", "a", "hello world", `{"Name":"a","Hash":"` + cidOfHelloWorld + `","Size":"11"}` + "\n"},
		{"", "large", large, `{"Name":"large","Hash":"` + two.CID + `","Size":"` + strconv.FormatInt(two.DAGSize, 10) + `"}` + "\n"},
		{"only-hash=true", "large", large, `{"Name":"large","Hash":"` + two.CID + `","Size":"` + strconv.FormatInt(two.DAGSize, 10) + `"}` + "\n"},
		{"seal=true", "a", "hello world", `{"Name":"a","Hash":"` + cidOfHelloWorld + `","Size":"11","JobId":"` + string(fakeJobID) + `","StatusUrl":"/zapier/v1/timestamp/` + string(fakeJobID) + `?submission=`},
	} {
		a := w.add(key, tt.query, tt.name, tt.content)
		got := string(a.body)
		if strings.HasPrefix(tt.query, "seal") {
			got = got[:min(len(got), len(tt.want))] // the submission is another each time
		}
		if a.StatusCode != 200 || got != tt.want {
			t.Errorf("?%s %q: %d\n%s%s", tt.query, tt.name, a.StatusCode, a.body, tt.want)
		}
		if a.Header.Get("Content-Type") != "application/json" || a.Header.Get("X-Chunked-Output") != "1" {
			t.Errorf("?%s: headers %v", tt.query, a.Header)
		}
	}
}

// A file that is added is one submission of the key's tenant, sealed on demand. One
// that is only hashed is none.
func TestAddIsASubmission(t *testing.T) {
	w := newWorld(t)
	key := w.key(acme, ScopeStamp)
	w.add(key, "", "a.txt", "hello", "Idempotency-Key", "one")
	w.add(key, "seal=true&chunker=size-262144", "a.txt", "hello")
	w.add(key, "only-hash=true", "a.txt", "hello")
	list := w.jobs.acceptances()
	if len(list) != 2 {
		t.Fatalf("%d submissions", len(list))
	}
	for i, got := range list {
		req, f := got.request, got.request.Files[0]
		if got.caller.TenantID != acme || req.Unsealed != (i == 0) || req.Subject != digestOf("hello") || len(req.Files) != 1 ||
			f.Name != "a.txt" || f.ContentType != "application/octet-stream" {
			t.Errorf("%d: %+v %+v", i, got.caller, req)
		}
	}
	if list[0].caller.IdempotencyKey != "one" || list[0].request.Files[0].Profile != blob.Default || list[1].request.Files[0].Profile != blob.Legacy {
		t.Errorf("%+v, %+v", list[0], list[1].request.Files[0].Profile)
	}
	if n := len(w.uploads.list); n != 2 {
		t.Errorf("%d uploads", n)
	}
}

// Every option: what it means, or that it is refused. Nothing is uploaded then.
func TestAddOptions(t *testing.T) {
	honoured := map[string]addOptions{
		"":                                      {profile: blob.Default},
		"chunker=":                              {profile: blob.Default},
		"chunker=size-262144":                   {profile: blob.Legacy},
		"s=size-262144":                         {profile: blob.Legacy},
		"chunker=size-1048576":                  {profile: blob.Profile{ChunkSize: 1 << 20, MaxLinks: 174}},
		"chunker=size-65536":                    {profile: blob.Profile{ChunkSize: 64 << 10, MaxLinks: 174}},
		"chunker=size-262144&max-file-links=16": {profile: blob.Profile{ChunkSize: 256 << 10, MaxLinks: 16}},
		"max-file-links=174":                    {profile: blob.Profile{ChunkSize: 1 << 20, MaxLinks: 174}},
		"max-file-links=1024":                   {profile: blob.Default},
		"only-hash=true":                        {profile: blob.Default, onlyHash: true},
		"n=1":                                   {profile: blob.Default, onlyHash: true},
		"only-hash=false":                       {profile: blob.Default},
		"progress=true":                         {profile: blob.Default, progress: true},
		"p":                                     {profile: blob.Default, progress: true},
		"silent=true":                           {profile: blob.Default, silent: true},
		"seal=true":                             {profile: blob.Default, seal: true},
		"pin=true":                              {profile: blob.Default},
		"pin=false":                             {profile: blob.Default},
		"quiet=true&quieter=true":               {profile: blob.Default},
		"stream-channels=true":                  {profile: blob.Default},
		"cid-version=1":                         {profile: blob.Default},
		"raw-leaves=true":                       {profile: blob.Default},
		"hash=sha2-256":                         {profile: blob.Default},
		"hash=SHA2-256":                         {profile: blob.Default},
		"trickle=false&t=":                      {}, // twice; see below
		"trickle=false":                         {profile: blob.Default},
		"wrap-with-directory=false":             {profile: blob.Default},
		"inline=false&inline-limit=32":          {profile: blob.Default},
		"nocopy=false&fscache=false":            {profile: blob.Default},
		"preserve-mode=false":                   {profile: blob.Default},
		"recursive=true&hidden=true&timeout=5s": {profile: blob.Default},
		"never-heard-of=1&Trickle=true":         {profile: blob.Default},
	}
	delete(honoured, "trickle=false&t=")
	for query, want := range honoured {
		got, err := addOptionsOf(paramsOf(t, query))
		if err != nil || got != want {
			t.Errorf("?%s: %+v, %v, want %+v", query, got, err, want)
		}
	}
	w := newWorld(t)
	key := w.key(acme, ScopeStamp)
	for _, query := range []string{
		"hash=sha3-256", "hash=blake2b-256", "hash=", "trickle=true", "t", "trickle=yes", "inline=true", "nocopy=true", "fscache=true", "wrap-with-directory=true", "w=1",
		"cid-version=0", "cid-version=", "raw-leaves=false", "preserve-mode=true", "preserve-mtime=true", "mode=0644", "mtime=1", "mtime-nsecs=1", "to-files=/x", "to-files=",
		"chunker=rabin", "chunker=rabin-16-32-64", "chunker=buzhash", "chunker=default", "chunker=size-", "chunker=size-0", "chunker=size-65535", "chunker=size-1048577",
		"chunker=size-+262144", "chunker=size-0262144", "chunker=size-99999999999999999999", "max-file-links=15", "max-file-links=1025", "max-file-links=", "max-file-links=x",
		"progress=perhaps", "seal=2", "trickle=false&t=false", "chunker=size-262144&chunker=size-262144", "%zz",
	} {
		a := w.add(key, query, "a", "hello")
		if e := a.kuboError(t); a.StatusCode != 400 || e.Reason != codeBadParameter || e.Code != 1 {
			t.Errorf("?%s: %d %+v", query, a.StatusCode, e)
		}
	}
	if len(w.jobs.acceptances()) != 0 || len(w.uploads.list) != 0 {
		t.Error("something was taken")
	}
}

func paramsOf(t *testing.T, query string) params {
	t.Helper()
	r, err := http.NewRequest("POST", "http://edge/api/v0/add?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := (&exchange{r: r}).query()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestAddRefusesWhatIsNoFile(t *testing.T) {
	w := newWorld(t)
	key := w.key(acme, ScopeStamp)
	for _, tt := range []struct {
		contentType, body string
		status            int
		reason            string
	}{
		{multiType, "--cut--\r\n", 400, "BAD_PART"},
		{multiType, form(`name="a"; filename="a"`, "x", `name="b"; filename="b"`, "y"), 400, "MANY_FILES"},
		{multiType, "", 400, "INCOMPLETE_BODY"},
		{"application/json", "{}", 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"multipart/form-data", "x", 400, "BAD_CONTENT_TYPE"},
		{"", "x", 400, "BAD_CONTENT_TYPE"},
	} {
		a := w.do(w.request("POST", "/api/v0/add", tt.body, "x-api-key", key, "Content-Type", tt.contentType))
		if e := a.kuboError(t); a.StatusCode != tt.status || e.Reason != tt.reason {
			t.Errorf("%s %q: %d %+v", tt.contentType, tt.body, a.StatusCode, e)
		}
	}
	if a := w.add(key, "", "a", "x", "Content-Encoding", "gzip"); a.StatusCode != 415 {
		t.Errorf("an encoded body: %d %s", a.StatusCode, a.body)
	}
	if len(w.jobs.acceptances()) != 0 {
		t.Error("something was taken")
	}
}

// A body that is cut behind any byte, with a clean end of the request or without,
// is refused and leaves nothing.
func TestAddOfACutBodyLeavesNothing(t *testing.T) {
	w := newWorld(t)
	key := w.key(acme, ScopeStamp)
	whole := addForm("cut.txt", "some text\r\n--cu\r\nmore")
	for n := range len(whole) - len("\r\n") {
		for _, query := range []string{"", "progress=true"} {
			r := w.request("POST", "/api/v0/add?"+query, whole[:n], "x-api-key", key, "Content-Type", multiType)
			if n == 0 {
				r.Body = http.NoBody
			}
			a := w.do(r)
			if e := a.kuboError(t); a.StatusCode != 400 || e.Reason != "INCOMPLETE_BODY" {
				t.Fatalf("%d bytes: %d %+v", n, a.StatusCode, e)
			}
		}
		r := w.request("POST", "/api/v0/add", whole[:n], "x-api-key", key, "Content-Type", multiType)
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(whole[:n]), failingReader{errors.New("gone")})), int64(len(whole))
		if res, err := w.client.Do(r); err == nil {
			res.Body.Close()
			t.Fatalf("%d bytes and a lost connection: status %d", n, res.StatusCode)
		}
	}
	if len(w.jobs.acceptances()) != 0 {
		t.Error("something was taken")
	}
}

// Progress is told while the body is on its way. What fails then breaks the
// connection off: the answer has begun, and must not look whole.
func TestAddTellsItsProgress(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := newWorld(t)
		send, body := io.Pipe()
		r := w.request("POST", "/api/v0/add?progress=true&pin=false", "", "x-api-key", w.key(acme, ScopeStamp), "Content-Type", multiType)
		r.Body = send
		piece := strings.Repeat("x", wire.FragmentSize)
		wrote := make(chan error, 1)
		more := make(chan struct{})
		go func() {
			_, err := io.WriteString(body, strings.TrimSuffix(addForm("big", piece+piece), "\r\n--cut--\r\n"))
			<-more
			if err == nil && !cut {
				_, err = io.WriteString(body, piece+"\r\n--cut--\r\n")
			}
			wrote <- errors.Join(err, body.Close())
		}()
		res, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(res.Body)
		line, err := lines.ReadString('\n')
		if want := fmt.Sprintf(`{"Name":"big","Bytes":%d}`, len(piece)) + "\n"; line != want || err != nil {
			t.Errorf("the first line, before the body's end: %q, %v", line, err)
		}
		close(more)
		rest, err := io.ReadAll(lines)
		res.Body.Close()
		if err := <-wrote; err != nil && !cut {
			t.Errorf("the body: %v", err)
		}
		if cut {
			if err == nil || len(w.jobs.acceptances()) != 0 {
				t.Errorf("a body that was cut ended well: %q", rest)
			}
			if log := w.log.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, "delimiter") || !strings.Contains(log, "INCOMPLETE_BODY") {
				t.Errorf("the log has what is the caller's fault: %s", log)
			}
			continue
		}
		sums, sumErr := blob.SumReader(strings.NewReader(piece+piece+piece), blob.Default)
		if sumErr != nil {
			t.Fatal(sumErr)
		}
		want := fmt.Sprintf(`{"Name":"big","Bytes":%d}`, 2*len(piece)) + "\n" + fmt.Sprintf(`{"Name":"big","Bytes":%d}`, 3*len(piece)) + "\n" + fmt.Sprintf(`{"Name":"big","Hash":"%s","Size":"%d"}`, sums.CID, sums.DAGSize) + "\n"
		if err != nil || string(rest) != want {
			t.Errorf("the rest: %v\n%s\nwant\n%s", err, rest, want)
		}
	}
}

// A file of a GiB has few lines of progress: a client that does not listen before
// it has sent all must not be stuck.
func TestProgressLinesAreFew(t *testing.T) {
	var out countingWriter
	x := &exchange{w: &out, conn: http.NewResponseController(&out), limits: &Limits{}, body: &body{whole: true}}
	l := &addLines{x: x, options: addOptions{progress: true}}
	for n := int64(0); n <= 4<<30; n += wire.FragmentSize {
		l.progress("a file with a name", n)
	}
	if out.writes > 400 || out.writes < 100 || out.bytes > 32<<10 {
		t.Errorf("%d lines of %d bytes", out.writes, out.bytes)
	}
}

// countingWriter is the connection of an exchange that goes nowhere.
type countingWriter struct {
	header        http.Header
	writes, bytes int
}

func (c *countingWriter) Header() http.Header {
	if c.header == nil {
		c.header = http.Header{}
	}
	return c.header
}
func (c *countingWriter) WriteHeader(int)         {}
func (c *countingWriter) EnableFullDuplex() error { return nil }
func (c *countingWriter) FlushError() error       { return nil }
func (c *countingWriter) Write(p []byte) (int, error) {
	c.writes++
	c.bytes += len(p)
	return len(p), nil
}

// 64 uploads at a time, every other given up in the middle: the rest is kept, and
// nothing stays open.
func TestManyAddsHalfOfThemAborted(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Uploads, c.Limits.InFlight = 64, 64 })
	key := w.key(acme, ScopeStamp)
	content := bytes.Repeat([]byte("y"), 2*wire.FragmentSize)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			head := strings.NewReader(strings.TrimSuffix(addForm(fmt.Sprintf("f%d", i), string(content)), "\r\n--cut--\r\n"))
			tail := io.Reader(strings.NewReader("\r\n--cut--\r\n"))
			if i%2 == 1 {
				tail = stopper{stop}
			}
			query := ""
			if i%4 < 2 {
				query = "?progress=true"
			}
			r, err := http.NewRequestWithContext(ctx, "POST", "http://edge/api/v0/add"+query, io.MultiReader(head, tail))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("x-api-key", key)
			r.Header.Set("Content-Type", multiType)
			res, err := w.client.Do(r)
			var a answered
			if err == nil {
				a, err = readAll(res)
			}
			if aborted := i%2 == 1; aborted != (err != nil) {
				t.Errorf("upload %d: %v", i, err)
			} else if !aborted && (a.StatusCode != 200 || !bytes.Contains(a.body, []byte(`"Hash"`))) {
				t.Errorf("upload %d: %d %s", i, a.StatusCode, a.body)
			}
		})
	}
	all.Wait()
	if n := len(w.jobs.acceptances()); n != 32 {
		t.Errorf("%d were kept", n)
	}
}

// stopper is the end of a body whose sender gives up.
type stopper struct{ stop func() }

func (s stopper) Read([]byte) (int, error) {
	s.stop()
	return 0, errors.New("given up")
}
