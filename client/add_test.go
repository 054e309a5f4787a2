package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A file is added in the words of Kubo's clients, and the last line is the answer.
func TestAddSpeaksAsToKubo(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.Method+" "+r.URL.RequestURI(), "POST /api/v0/add?chunker=size-262144&cid-version=1&max-file-links=174&raw-leaves=true&seal=true"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		parts, err := r.MultipartReader()
		if err != nil {
			t.Error(err)
			return
		}
		part, err := parts.NextRawPart()
		if err != nil {
			t.Error(err)
			return
		}
		if body, err := io.ReadAll(part); err != nil || string(body) != "bytes" || part.FileName() != "a+b%2B1.pdf" {
			t.Errorf("%q %q, %v", part.FileName(), body, err)
		}
		reply(http.StatusOK, "application/json", `{"Name":"a b+1.pdf","Bytes":5}`+"\n"+`{"Name":"a b+1.pdf","Hash":"bafy","Size":"7","JobId":"job-1","StatusUrl":"/s"}`+"\n")(w, r)
	})
	got, err := c.Add(t.Context(), textFile("a b+1.pdf", "bytes"), AddOptions{ChunkSize: 262144, MaxLinks: 174, Seal: true})
	want := Added{CID: "bafy", DAGSize: 7, Accepted: &wire.Accepted{JobID: "job-1", Status: wire.StatusPending, StatusURL: "/s"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// What is no answer is none, and Kubo's errors are faults as all others.
func TestAddTellsOfRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		status     int
		body       string
		kind       fault.Kind
		code, says string
	}{
		"nothing":      {http.StatusOK, "", fault.Internal, "", "names no file"},
		"progress":     {http.StatusOK, `{"Name":"f","Bytes":5}`, fault.Internal, "", "names no file"},
		"no size":      {http.StatusOK, `{"Hash":"bafy"}`, fault.Internal, "", "contract"},
		"half a line":  {http.StatusOK, `{"Hash":"bafy"`, fault.Transient, CodeUnreachable, "broke off"},
		"refused":      {http.StatusBadRequest, `{"Message":"no","Code":1,"Type":"error","Reason":"BAD_PARAMETER"}`, fault.Invalid, "BAD_PARAMETER", "no"},
		"of a Kubo":    {http.StatusInternalServerError, `{"Message":"disk","Code":0,"Type":"error"}`, fault.Internal, "", "disk"},
		"of something": {http.StatusBadGateway, "gone", fault.Transient, "", "gone"},
	} {
		c := server(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			reply(tc.status, "application/json", tc.body)(w, r)
		})
		got, err := c.Add(t.Context(), textFile("f", "bytes"), AddOptions{})
		if !fault.Is(err, tc.kind) || fault.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.says) || got != (Added{}) {
			t.Errorf("%s: %+v, %v %s %q", name, got, fault.KindOf(err), fault.CodeOf(err), err)
		}
	}
}

// A Kubo begins to answer while it still reads: the form is sent to its end, here
// only after the answer has begun to be read.
func TestAnswersMayBeginBeforeTheFormEnds(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		if err := errors.Join(conn.EnableFullDuplex(), conn.Flush()); err != nil {
			t.Error(err)
		}
		form, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(form), "first, and last") {
			t.Errorf("%q, %v", form, err)
		}
		if _, err := io.WriteString(w, `{"Hash":"bafy","Size":"7"}`); err != nil {
			t.Error(err)
		}
	})
	last, sendLast := io.Pipe()
	c.HTTP = &http.Client{Transport: &listening{c.HTTP.Transport, func() { go sendLast.CloseWithError(sendAll(sendLast, ", and last")) }}}
	file := File{Name: "f", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("first"), last)), nil
	}}
	if got, err := c.Add(t.Context(), file, AddOptions{}); err != nil || got.CID != "bafy" {
		t.Errorf("%+v, %v", got, err)
	}
}

func sendAll(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// listening tells when an answer begins to be read.
type listening struct {
	http.RoundTripper
	begun func()
}

func (l *listening) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &heard{ReadCloser: resp.Body, begun: l.begun}
	}
	return resp, err
}

type heard struct {
	io.ReadCloser
	once  sync.Once
	begun func()
}

func (h *heard) Read(p []byte) (int, error) {
	h.once.Do(h.begun)
	return h.ReadCloser.Read(p)
}
