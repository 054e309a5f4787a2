package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/internal/serve"
)

// A decision that too few archives have stands; it is printed, and its exit code
// says that it is under way.
func TestPendingDecisionsHaveTheirExitCode(t *testing.T) {
	digest := strings.Repeat("0", 63) + "1"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		if _, err := io.WriteString(w, `{"kind":"hold","sha256":"`+digest+`","changed":true,"status":"pending","copies":0,"archives":3,"retention":{"holds":[{"name":"a"}]}}`); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	for _, args := range [][]string{{"hold", digest, "--name", "a"}, {"release", digest}, {"retain", digest, "--until", "2050-01-01"}, {"--json", "hold", digest}} {
		var out, diagnostics bytes.Buffer
		if code := run(append([]string{"--url", s.URL}, args...), []string{"VERAE_API_KEY=key"}, &out, &diagnostics); code != serve.ExitPending {
			t.Errorf("%q: exit code %d: %s", args, code, diagnostics.String())
		}
		if !strings.Contains(out.String(), digest) || !strings.Contains(diagnostics.String(), "by itself") {
			t.Errorf("%q: %q, %q", args, out.String(), diagnostics.String())
		}
	}
}

func TestInstants(t *testing.T) {
	for text, want := range map[string]string{
		"2036-11-30": "2036-11-30T00:00:00Z", "2036-11-30T12:00:00Z": "2036-11-30T12:00:00Z", "2036-11-30T12:00:00.5+02:00": "2036-11-30T10:00:00.5Z",
		"tomorrow": "", "2036": "", "30d": "", "2036-02-30": "", "": "",
	} {
		got, err := instant(text)
		if (err != nil) != (want == "") || err == nil && got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %s, %v, want %q", text, got, err, want)
		}
	}
}
