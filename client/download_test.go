package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
)

// brittle is a server whose connections break: each answer to the end of its
// list brings so many bytes, and then the whole rest.
type brittle struct {
	file     []byte
	pieces   []int // -1: 503
	noRanges bool
	noSize   bool
	asked    []string
}

const brittleTag = `"bafytag"`

func (b *brittle) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked = append(b.asked, r.Header.Get("Range"))
	sum := sha256.Sum256(b.file)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{
		"Etag": {brittleTag}, "Repr-Digest": {"sha-512=:AAAA:, sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"},
	}}
	from := 0
	if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !b.noRanges && r.Header.Get("If-Range") == brittleTag {
		var err error
		if from, err = strconv.Atoi(strings.TrimSuffix(text, "-")); err != nil {
			return nil, err
		}
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b.file)-1, len(b.file)))
	}
	rest := b.file[from:]
	resp.ContentLength = int64(len(rest))
	if b.noSize {
		resp.ContentLength = -1
	}
	var body io.Reader = bytes.NewReader(rest)
	if len(b.pieces) > 0 {
		n := b.pieces[0]
		b.pieces = b.pieces[1:]
		if n < 0 {
			resp.StatusCode, resp.Body = http.StatusServiceUnavailable, io.NopCloser(strings.NewReader("later"))
			return resp, nil
		}
		body = io.MultiReader(bytes.NewReader(rest[:min(n, len(rest))]), brokenBody{})
	}
	resp.Body = io.NopCloser(body)
	return resp, nil
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// fetch reads a file from a server, and says what came and how long it took.
func fetch(ctx context.Context, b *brittle) ([]byte, time.Duration, error) {
	begin := time.Now()
	c := &Client{HTTP: &http.Client{Transport: b}}
	d, err := c.Download(ctx, "bafytag")
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	if d.SHA256 != sha256.Sum256(b.file) {
		return nil, 0, fmt.Errorf("digest %s", d.SHA256)
	}
	data, err := io.ReadAll(d)
	return data, time.Since(begin), err
}

// A download goes on where it was, however often the connection breaks, as long
// as something comes; the same from a server that knows no ranges.
func TestDownloadGoesOnWhereItWas(t *testing.T) {
	file := bytes.Repeat([]byte("0123456789"), 1000)
	for name, b := range map[string]*brittle{
		"whole":               {},
		"broken":              {pieces: []int{3000, 0, 0, 1, 0, 0, 0, 0, 17}},
		"busy":                {pieces: []int{3000, -1, -1}},
		"no ranges":           {pieces: []int{3000, 4000, 2000, 9999}, noRanges: true},
		"no ranges, no bytes": {pieces: []int{0, 0, 0}, noRanges: true},
		"no size":             {pieces: []int{3000, 10}, noSize: true},
		"at the end":          {pieces: []int{10000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b.file = file
			got, _, err := fetch(t.Context(), b)
			if err != nil || !bytes.Equal(got, file) {
				t.Errorf("%s: %d bytes, %v; asked for %q", name, len(got), err, b.asked)
			}
		})
	}
}

// One that brings nothing any more ends, after pauses that grow.
func TestDownloadEndsWhenNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brittle{file: make([]byte, 100), pieces: []int{40, 0, 0, 0, 0, 0, 0, 0}}
		got, took, err := fetch(t.Context(), b)
		if fault.CodeOf(err) != CodeBrokenOff || !fault.Is(err, fault.Transient) || len(got) != 40 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if want := 31 * firstPause; took != want {
			t.Errorf("it took %v, want %v", took, want)
		}
		if len(b.asked) != 1+maxTries || b.asked[1] != "bytes=40-" {
			t.Errorf("asked for %q", b.asked)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(firstPause/2, cancel)
		if _, took, err := fetch(ctx, &brittle{file: make([]byte, 100), pieces: []int{40, 0, 0}}); !errors.Is(err, context.Canceled) || took != firstPause/2 {
			t.Errorf("a caller who left waited for %v: %v", took, err)
		}
	})
}

// A refusal of the rest is told as it is, and another part than the one asked for
// is not taken for it.
func TestDownloadTakesNoOtherPart(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		header string
		kind   fault.Kind
	}{
		"gone":      {http.StatusNotFound, "", fault.NotFound},
		"elsewhere": {http.StatusPartialContent, "bytes 5-99/100", fault.Internal},
	} {
		var asked atomic.Bool
		c := server(t, func(w http.ResponseWriter, r *http.Request) {
			if !asked.Swap(true) {
				w.Header().Set("Content-Length", "100")
				reply(http.StatusOK, "text/plain", "0123456789")(w, r)
				return
			}
			reply(tc.status, "text/plain", "rest", "Content-Range", tc.header)(w, r)
		})
		d, err := c.Download(t.Context(), "bafy")
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(d); !fault.Is(err, tc.kind) || string(data) != "0123456789" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBlockIsBounded(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/ipfs/bafy?format=raw" {
			t.Errorf("asked for %s", r.URL)
		}
		reply(http.StatusOK, "application/vnd.ipld.raw", strings.Repeat("x", maxBlock+1))(w, r)
	})
	if data, err := c.Block(t.Context(), "bafy"); err == nil {
		t.Errorf("%d bytes were taken for a block", len(data))
	}
}
