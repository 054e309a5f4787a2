package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/serve"
)

// A server that gives other bytes than the CID names is found out: exit code 1,
// and no file.
func TestGetDoesNotBelieveTheServer(t *testing.T) {
	hash := blob.NewHasher(blob.Default)
	fmt.Fprint(hash, "the file")
	cid := hash.Sum().CID
	for body, want := range map[string]int{"the file": serve.ExitOK, "the fake": serve.ExitFailed, "the": serve.ExitFailed} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }))
		defer server.Close()
		path := filepath.Join(t.TempDir(), "out")
		var stdout, stderr bytes.Buffer
		code := run([]string{"get", cid, "-o", path, "--url", server.URL}, nil, &stdout, &stderr)
		_, err := os.Stat(path)
		if code != want || os.IsNotExist(err) != (want != serve.ExitOK) {
			t.Errorf("%q: exit code %d, want %d; the file: %v; %s", body, code, want, err, stderr.String())
		}
	}
}
