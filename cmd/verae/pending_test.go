package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/internal/serve"
)

// What is accepted and not done yet, and what failed, have exit codes of their
// own, and are printed all the same.
func TestUnfinishedAndFailedJobsHaveTheirExitCodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(file, []byte("file"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := strings.Repeat("0", 63) + "1"
	for name, tc := range map[string]struct {
		status int
		answer string
		code   int
	}{
		"pending": {http.StatusAccepted, `{"jobId":"job-1","status":"pending","sha256":"` + digest + `"}`, serve.ExitPending},
		"failed":  {http.StatusOK, `{"jobId":"job-1","status":"failed","sha256":"` + digest + `","reason":"the archives lost it"}`, serve.ExitFailed},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			w.WriteHeader(tc.status)
			if _, err := io.WriteString(w, tc.answer); err != nil {
				t.Error(err)
			}
		}))
		for _, json := range []bool{false, true} {
			args := []string{"--url", s.URL, "stamp", file}
			if json {
				args = append(args, "--json")
			}
			var out, diagnostics bytes.Buffer
			if code := run(args, []string{"VERAE_API_KEY=key"}, &out, &diagnostics); code != tc.code {
				t.Errorf("%s, json %v: exit code %d, want %d: %s", name, json, code, tc.code, diagnostics.String())
			}
			if !strings.Contains(out.String(), name) || !strings.Contains(out.String(), digest) || diagnostics.Len() == 0 {
				t.Errorf("%s, json %v: %q, %q", name, json, out.String(), diagnostics.String())
			}
		}
		s.Close()
	}
}
