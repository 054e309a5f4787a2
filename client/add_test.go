package client

import (
	"io"
	"net/http"
	"strings"
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
