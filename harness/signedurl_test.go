package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// Whoever has a signed URL and no key fetches one file, from the aggregator and
// from the archives that have it, and nothing else.
func TestSignedURLsOnRealProcesses(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: append(urlKey(t), "ARCHIVE_HTTP_ADDR=127.0.0.1:0")})
	c := w.Client("acme")
	data := randomBytes(1<<20+4321, 5)
	file := stamp(t, c, client.Submission{Files: []client.File{bytesFile("exhibit.pdf", data)}, IncludeAttached: true}).Files[0]
	other := stamp(t, c, client.Submission{Files: []client.File{bytesFile("other", []byte("other"))}, IncludeAttached: true}).Files[0]

	fetch := func(method, url string, header ...string) (int, []byte, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := bounded.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body, resp.Header
	}
	signed := signURL(t, c, file.CID)
	if !slices.Equal(signed.ArchiveIDs, file.ArchiveIDs) {
		t.Errorf("signed for %v, the file is on %v", signed.ArchiveIDs, file.ArchiveIDs)
	}
	doors := []string{c.URL}
	for _, id := range file.ArchiveIDs {
		doors = append(doors, w.FilesURL(id))
	}
	for _, door := range doors {
		if status, body, h := fetch("GET", door+signed.Path); status != http.StatusOK || !bytes.Equal(body, data) || !strings.HasPrefix(h.Get("Cache-Control"), "private") {
			t.Errorf("%s: %d, %d bytes, %v", door, status, len(body), h)
		}
		if status, body, h := fetch("GET", door+signed.Path, "Range", "bytes=1048570-1048585"); status != http.StatusPartialContent || !bytes.Equal(body, data[1048570:1048586]) {
			t.Errorf("%s: a range: %d, %d bytes, %v", door, status, len(body), h)
		}
		if status, _, h := fetch("HEAD", door+signed.Path); status != http.StatusOK || h.Get("Content-Length") != "1052897" {
			t.Errorf("%s: HEAD: %d, %v", door, status, h)
		}
		if status, body, h := fetch("GET", door+signed.Path+"&format=raw"); status != http.StatusOK || len(body) > 1<<10 || h.Get("Content-Type") != "application/vnd.ipld.raw" {
			t.Errorf("%s: the root block: %d, %d bytes, %v", door, status, len(body), h)
		}
		for name, path := range map[string]string{
			"another file":   strings.Replace(signed.Path, file.CID, other.CID, 1),
			"another tenant": strings.Replace(signed.Path, "tenant=acme", "tenant=globex", 1),
			"another time":   strings.Replace(signed.Path, "expires=1", "expires=2", 1),
		} {
			if status, body, h := fetch("GET", door+path); status != http.StatusForbidden || !bytes.Contains(body, []byte("URL_SIGNATURE")) || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %s: %d %s", door, name, status, body)
			}
		}
	}
	for _, name := range w.Names()[1:] {
		door := w.FilesURL(wire.ArchiveID(name))
		if status, body, _ := fetch("GET", door+"/ipfs/"+file.CID); status != http.StatusForbidden {
			t.Errorf("%s without a signature: %d %s", name, status, body)
		}
		if status, body, _ := fetch("GET", door+signed.Path); !slices.Contains(file.ArchiveIDs, wire.ArchiveID(name)) && status != http.StatusNotFound {
			t.Errorf("%s, which does not have it: %d %s", name, status, body)
		}
		if status, body, h := fetch("GET", door+"/metrics"); status != http.StatusNotFound || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: /metrics: %d %s, %v", name, status, body, h)
		}
	}
}

// urlKey makes a key that signs URLs, and the settings that trust it.
func urlKey(t *testing.T) []string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "url-key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"URL_KEY_FILE=" + path, "URL_KEYS=" + base64.StdEncoding.EncodeToString(public)}
}

type signedURL struct {
	Path       string           `json:"path"`
	ArchiveIDs []wire.ArchiveID `json:"archiveIds"`
}

// signURL asks for a signed URL.
func signURL(t *testing.T, c *client.Client, cid string) (s signedURL) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.URL+"/zapier/v1/urls", strings.NewReader(`{"cid":"`+cid+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("x-api-key", c.Key)
	resp, err := bounded.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, %v", resp.StatusCode, body, err)
	}
	return s
}
