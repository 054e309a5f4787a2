package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// server answers every request with answer, and a client for it.
func server(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return &Client{URL: s.URL + "/", Key: "the-key", HTTP: s.Client()}
}

func reply(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // a client that left is what some tests are about
	}
}

func textFile(name, text string) File {
	return File{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

func TestSubmissionIsAForm(t *testing.T) {
	var got []string
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "the-key" || r.Header.Get("Idempotency-Key") != "once" || r.URL.Path != "/zapier/v1/timestamp" {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
		parts, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		for {
			p, err := parts.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(p)
			if err != nil {
				t.Error(err)
			}
			got = append(got, fmt.Sprintf("%s %q %s=%s", p.FormName(), p.FileName(), p.Header.Get("Content-Type"), body))
		}
		reply(http.StatusAccepted, "application/json", `{"jobId":"j","sha256":"`+strings.Repeat("0", 63)+`1"}`)(w, r)
	})
	a, err := c.Submit(t.Context(), Submission{
		SHA256: wire.Digest{31: 1}, Data: []byte{}, PublicMetadata: []byte(`{}`), PrivateMetadata: []byte(`{"s":1}`),
		Files:           []File{textFile(`a "b".txt`, "text"), {Name: "c", ContentType: "image/png", Open: textFile("", "png").Open}},
		IncludeAttached: true, Public: true, IdempotencyKey: "once",
	})
	if err != nil || a.JobID != "j" {
		t.Fatal(a, err)
	}
	want := []string{
		`sha256 "" =` + strings.Repeat("0", 63) + "1", `data "" =`, `publicMetadata "" ={}`, `privateMetadata "" ={"s":1}`,
		`includeAttached "" =true`, `public "" =true`, `files "a \"b\".txt" =text`, `files "c" image/png=png`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the form is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStampTellsPendingFromDone(t *testing.T) {
	c := server(t, reply(http.StatusAccepted, "application/json", `{"jobId":"j"}`))
	if o, err := c.Stamp(t.Context(), Submission{Data: []byte("x")}); err != nil || o.Job != nil || o.Accepted == nil {
		t.Errorf("202: %+v, %v", o, err)
	}
	c = server(t, reply(http.StatusOK, "application/json", `{"jobId":"j","status":"completed"}`))
	if o, err := c.Stamp(t.Context(), Submission{Data: []byte("x")}); err != nil || o.Job == nil || o.Accepted != nil {
		t.Errorf("200: %+v, %v", o, err)
	}
}

func TestJobFollowsTheStatusURL(t *testing.T) {
	var path string
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.RequestURI()
		reply(http.StatusOK, "application/json", `{}`)(w, r)
	})
	a := wire.Accepted{StatusURL: "/zapier/v1/timestamp/j?submission=s"}
	for wait, want := range map[bool]string{false: a.StatusURL, true: "/zapier/v1/timestamp/j/wait?submission=s"} {
		if _, err := c.Job(t.Context(), a, wait); err != nil || path != want {
			t.Errorf("wait %v: %s, %v", wait, path, err)
		}
	}
}

// A refusal is a fault with the server's code and words, of the status's kind.
func TestRefusalsBecomeFaults(t *testing.T) {
	problem := `{"code":"THE_CODE","detail":"what to do","title":"ignored"}`
	for status, kind := range map[int]fault.Kind{
		400: fault.Invalid, 401: fault.Denied, 403: fault.Denied, 404: fault.NotFound, 409: fault.Conflict, 413: fault.Invalid,
		422: fault.Invalid, 429: fault.Transient, 500: fault.Internal, 502: fault.Transient, 503: fault.Transient, 504: fault.Transient,
	} {
		c := server(t, reply(status, "application/problem+json", problem, "Retry-After", "7"))
		_, err := c.Receipts(t.Context(), wire.Digest{})
		if fault.KindOf(err) != kind || fault.CodeOf(err) != "THE_CODE" || !strings.Contains(err.Error(), "what to do") || fault.RetryAfter(err) != 7*time.Second {
			t.Errorf("%d: %v, kind %s", status, err, fault.KindOf(err))
		}
	}
	c := server(t, reply(502, "text/html", "<h1>bad gateway</h1>"))
	if _, err := c.Archives(t.Context()); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "bad gateway") {
		t.Errorf("a proxy's page: %v", err)
	}
}

func TestAnswerThatIsNoJSONIsAnError(t *testing.T) {
	c := server(t, reply(200, "application/json", `{"jobId":`))
	if _, err := c.Receipts(t.Context(), wire.Digest{}); err == nil {
		t.Error("half an answer is taken")
	}
}

func TestNobodyListens(t *testing.T) {
	c := &Client{URL: "http://127.0.0.1:1"}
	if _, err := c.Receipts(t.Context(), wire.Digest{}); fault.CodeOf(err) != CodeUnreachable || !fault.Is(err, fault.Transient) {
		t.Errorf("%v", err)
	}
	c.URL = "http://bad host"
	if _, err := c.Receipts(t.Context(), wire.Digest{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// A file that can not be read breaks the request off: the server never sees an
// end that looks whole.
func TestFileThatFailsBreaksTheRequestOff(t *testing.T) {
	whole := make(chan error, 1)
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		whole <- err
		w.WriteHeader(http.StatusBadRequest)
	})
	boom := errors.New("the disk is gone")
	for name, f := range map[string]File{
		"open": {Name: "f", Open: func() (io.ReadCloser, error) { return nil, boom }},
		"read": {Name: "f", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("half"), broken{boom})), nil
		}},
	} {
		if _, err := c.Submit(t.Context(), Submission{Files: []File{f}}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := <-whole; err == nil {
			t.Errorf("%s: the server saw a whole body", name)
		}
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// The server may answer before it read the form; nobody is left writing it.
func TestEarlyAnswerEndsTheForm(t *testing.T) {
	c := server(t, reply(http.StatusUnauthorized, "application/problem+json", `{"code":"NO_KEY","detail":"a key is needed"}`, "Connection", "close"))
	closed := make(chan struct{})
	var opened atomic.Bool // the answer may come before the file's turn
	endless := File{Name: "f", Open: func() (io.ReadCloser, error) {
		opened.Store(true)
		return endlessFile{closed}, nil
	}}
	_, err := c.Submit(t.Context(), Submission{Files: []File{endless}})
	if err == nil {
		t.Error("an endless form was taken")
	}
	if opened.Load() {
		<-closed
	}
}

type endlessFile struct{ closed chan struct{} }

func (endlessFile) Read(p []byte) (int, error) { return len(p), nil }
func (f endlessFile) Close() error             { close(f.closed); return nil }

func TestContextEndsARequest(t *testing.T) {
	block := make(chan struct{})
	c := server(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-block:
		}
	})
	defer close(block)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := c.Receipts(ctx, wire.Digest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestFileIsStreamed(t *testing.T) {
	c := server(t, reply(200, "application/pdf", "bytes"))
	body, size, err := c.File(t.Context(), "bafy")
	if err != nil || size != 5 {
		t.Fatal(size, err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != "bytes" {
		t.Errorf("%q, %v", got, err)
	}
}
