package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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

// A file whose layout is unknown is taken only by somebody who says so, and only
// with the digest that the server names.
func TestGetSaysWhatItCouldNotCheck(t *testing.T) {
	file := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // one chunk, and four of the older profile
	cid := func(p blob.Profile, more string) string {
		sums, err := blob.SumReader(io.MultiReader(bytes.NewReader(file), strings.NewReader(more)), p)
		if err != nil {
			t.Fatal(err)
		}
		return sums.CID
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	}
	for name, tc := range map[string]struct {
		cid, body, digest string
		accept            bool
		want              int
		says              string
	}{
		"default":            {cid(blob.Default, "+"), string(file) + "+", "", false, serve.ExitOK, ""},
		"unknown":            {cid(blob.Legacy, ""), string(file), digest(string(file)), false, serve.ExitFailed, "--accept-digest"},
		"unknown, accepted":  {cid(blob.Legacy, ""), string(file), digest(string(file)), true, serve.ExitOK, "checked was only"},
		"unknown, changed":   {cid(blob.Legacy, ""), string(file), digest("other"), true, serve.ExitFailed, "itself names"},
		"unknown, no digest": {cid(blob.Legacy, ""), string(file), "", true, serve.ExitFailed, "names no SHA-256"},
		"one block, changed": {cid(blob.Default, ""), "fake", digest("fake"), true, serve.ExitFailed, "have the CID"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "" {
				http.Error(w, "no such format", http.StatusNotAcceptable)
				return
			}
			w.Header().Set("Repr-Digest", tc.digest)
			fmt.Fprint(w, tc.body)
		}))
		defer server.Close()
		path := filepath.Join(t.TempDir(), "out")
		args := []string{"get", tc.cid, "-o", path, "--url", server.URL, "--json"}
		if tc.accept {
			args = append(args, "--accept-digest")
		}
		var stdout, stderr bytes.Buffer
		code := run(args, nil, &stdout, &stderr)
		_, err := os.Stat(path)
		if code != tc.want || os.IsNotExist(err) != (tc.want != serve.ExitOK) || !strings.Contains(stderr.String(), tc.says) {
			t.Errorf("%s: exit code %d, want %d; the file: %v; %s", name, code, tc.want, err, stderr.String())
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".verae-get-*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %q, %v", name, left, err)
		}
		if checked := `"checked":"cid"`; code == serve.ExitOK && strings.Contains(stdout.String(), checked) == tc.accept {
			t.Errorf("%s: %s", name, stdout.String())
		}
	}
}
