package main

import (
	"bytes"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/serve"
)

// getGoesOn stores a file in a profile that nothing knows beforehand, and gets it
// through connections that break: bytes and CID are right, and each time only the
// rest is asked for. What does not come whole does not appear.
func getGoesOn(t *testing.T, ready world.Ready) {
	dir := t.TempDir()
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	verae := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(args, []string{"VERAE_API_KEY=" + ready.APIKeys["acme"]}, &stdout, &stderr); code != want {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, want, stderr.String())
		}
		return stdout.String()
	}
	cid, _, _ := strings.Cut(verae(serve.ExitOK, "--url", ready.HTTPURL, "blob", "put", path, "--chunker", "size-65536", "--max-file-links", "16"), " ")

	target, err := url.Parse(ready.HTTPURL)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pieces []int64 // bytes of each answer with file bytes
		gone   bool    // the file, instead of the rest
		want   int
	}{
		"breaks often":       {[]int64{1, 100_000, 65536, 0, 1_000_000}, false, serve.ExitOK},
		"breaks and is gone": {[]int64{500_000}, true, serve.ExitNotFound},
	} {
		var mu sync.Mutex // guards at and the pieces
		at := int64(0)
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.FlushInterval = -1
		proxy.ErrorLog = log.New(io.Discard, "", 0)
		proxy.ModifyResponse = func(resp *http.Response) error {
			mu.Lock()
			defer mu.Unlock()
			if tc.gone && len(tc.pieces) == 0 {
				resp.StatusCode = http.StatusNotFound
			}
			if resp.Request.URL.RawQuery != "" || len(tc.pieces) == 0 {
				return nil
			}
			if at > 0 && resp.StatusCode != http.StatusPartialContent {
				t.Errorf("%s: from byte %d: %s", name, at, resp.Status)
			}
			at += tc.pieces[0]
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(resp.Body, tc.pieces[0]), breaking{}), resp.Body}
			tc.pieces = tc.pieces[1:]
			return nil
		}
		server := httptest.NewServer(proxy)
		out := filepath.Join(t.TempDir(), "out")
		said := verae(tc.want, "--json", "--url", server.URL, "blob", "get", cid, "-o", out)
		server.Close()
		if got, err := os.ReadFile(out); tc.want == serve.ExitOK && (err != nil || !bytes.Equal(got, data) || !strings.Contains(said, `"checked":"cid"`)) {
			t.Errorf("%s: %d bytes, %v; %s", name, len(got), err, said)
		} else if tc.want != serve.ExitOK && !os.IsNotExist(err) {
			t.Errorf("%s: there is a file: %d bytes, %v", name, len(got), err)
		}
		if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) > 1 {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
	}
}

type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, errors.New("the cable was pulled") }
