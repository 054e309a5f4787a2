package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
)

// mapSource is a source for a caller who may see the files in it.
type mapSource struct {
	files  map[CID]mapFile
	blocks map[[32]byte]mapFile
	err    error // of every look-up, if set
	opens  int   // look-ups
	reads  []section
}

type mapFile struct {
	File
	body func() io.Reader // of all of it
}

func (m *mapSource) File(_ context.Context, c CID) (File, error) {
	f, ok := m.files[c]
	return m.found(f, ok)
}

func (m *mapSource) Block(_ context.Context, digest [32]byte) (File, error) {
	f, ok := m.blocks[digest]
	return m.found(f, ok)
}

func (m *mapSource) found(f mapFile, ok bool) (File, error) {
	m.opens++
	if m.err != nil {
		return File{}, m.err
	}
	if !ok {
		return File{}, fault.New(fault.NotFound, "WHATEVER", "internal words")
	}
	f.Open = func(off, length int64) (io.ReadCloser, error) {
		m.reads = append(m.reads, section{off: off, length: length})
		body := f.body()
		if off > 0 {
			if _, err := io.CopyN(io.Discard, body, off); err != nil {
				return nil, err
			}
		}
		if off+length < f.Size {
			body = io.LimitReader(body, length)
		}
		return io.NopCloser(body), nil
	}
	return f.File, nil
}

func (m *mapSource) add(t testing.TB, data []byte, contentType, name string) CID {
	t.Helper()
	sums := sumsOf(t, data, small)
	c, err := ParseCID(sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	if m.files == nil {
		m.files = map[CID]mapFile{}
	}
	m.files[c] = mapFile{File{Size: int64(len(data)), SHA256: sums.SHA256, ContentType: contentType, Name: name}, func() io.Reader { return bytes.NewReader(data) }}
	return c
}

// addBlock adds a block.
func (m *mapSource) addBlock(data []byte) CID {
	c := CID{Digest: sha256.Sum256(data), Raw: true}
	if m.blocks == nil {
		m.blocks = map[[32]byte]mapFile{}
	}
	m.blocks[c.Digest] = mapFile{File{Size: int64(len(data)), SHA256: c.Digest}, func() io.Reader { return bytes.NewReader(data) }}
	return c
}

// storeSource gives every file of a store, with its blocks, to everybody.
type storeSource struct {
	store *Store
	file  string // the CID of the file that has the blocks
}

func (s storeSource) File(ctx context.Context, c CID) (File, error) {
	r, err := s.store.NewReader(ctx, c.String())
	if err != nil {
		return File{}, err
	}
	f := File{Size: r.Size(), SHA256: r.root.file, Open: func(off, length int64) (io.ReadCloser, error) {
		return s.store.NewSection(ctx, c.String(), off, length)
	}}
	return f, r.Close()
}

func (s storeSource) Block(ctx context.Context, digest [32]byte) (File, error) {
	_, size, err := s.store.ReadBlock(ctx, s.file, digest, 0, 0)
	if err != nil {
		return File{}, err
	}
	return File{Size: size, SHA256: digest, Open: func(off, length int64) (io.ReadCloser, error) {
		data, _, err := s.store.ReadBlock(ctx, s.file, digest, off, int(length))
		return io.NopCloser(bytes.NewReader(data)), err
	}}, nil
}

// TestStoreOverHTTP serves a stored file and its blocks, and breaks off where it is
// damaged.
func TestStoreOverHTTP(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "store over http", 20*MinChunkSize)
	sums, _ := store(t, s, "u", data, small)
	srv := gateway(t, storeSource{s, sums.CID})
	resp, body, err := fetch(t, srv, "GET", "/ipfs/"+sums.CID, nil)
	if err != nil || resp.StatusCode != 200 || !bytes.Equal(body, data) {
		t.Errorf("%s, %d bytes, %v", resp.Status, len(body), err)
	}
	blocks, err := s.Blocks(t.Context(), sums.SHA256, sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	for _, digest := range blocks {
		resp, body, err := fetch(t, srv, "GET", "/ipfs/"+CID{Digest: digest}.String()+"?format=raw", nil)
		if err != nil || resp.StatusCode != 200 || sha256.Sum256(body) != digest {
			t.Errorf("block %x: %s, %d bytes, %v", digest, resp.Status, len(body), err)
		}
	}
	change(t, s.cfg.FS, s.filePath(sums.SHA256), flip(15*MinChunkSize))
	_, body, err = fetch(t, srv, "GET", "/ipfs/"+sums.CID, nil)
	if err == nil || len(body) > 15*MinChunkSize || !bytes.HasPrefix(data, body) {
		t.Errorf("%d bytes of a file damaged at %d, %v", len(body), 15*MinChunkSize, err)
	}
	resp, body, err = fetch(t, srv, "GET", "/ipfs/"+rawCID.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	checkProblem(t, resp, body, 404, CodeUnknownCID)
}

func gateway(t testing.TB, src Source) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/ipfs/", NewHandler(HandlerConfig{Source: src}))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func fetch(t testing.TB, srv *httptest.Server, method, path string, header http.Header) (*http.Response, []byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); closeErr != nil {
		t.Error(closeErr)
	}
	return resp, body, err
}

// fileHeaders are all headers of an answer with the file c.
func fileHeaders(c CID, length, contentType, disposition string) map[string]string {
	return map[string]string{
		"Content-Length":               length,
		"Content-Type":                 contentType,
		"Content-Disposition":          disposition,
		"Etag":                         `"` + c.String() + `"`,
		"Cache-Control":                "private, max-age=29030400, immutable",
		"Vary":                         "Authorization, X-Api-Key, Accept",
		"X-Ipfs-Path":                  "/ipfs/" + c.String(),
		"Ipfs-Uri":                     "ipfs://" + c.String(),
		"Accept-Ranges":                "bytes",
		"X-Content-Type-Options":       "nosniff",
		"Content-Security-Policy":      "sandbox; default-src 'none'",
		"Cross-Origin-Resource-Policy": "same-origin",
	}
}

func reprDigestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func headersOf(resp *http.Response) map[string]string {
	got := map[string]string{}
	for k, v := range resp.Header {
		if k != "Date" {
			got[k] = strings.Join(v, ", ")
		}
	}
	return got
}

func TestFileOverHTTP(t *testing.T) {
	src := &mapSource{}
	large := content(t, "http", 3*MinChunkSize+1)
	pdf := src.add(t, large, "application/pdf", "scan.pdf")
	empty := src.add(t, nil, "", "")
	srv := gateway(t, src)
	for _, tt := range []struct {
		path   string
		data   []byte
		header map[string]string
	}{
		{"/ipfs/" + pdf.String(), large, fileHeaders(pdf, "196609", "application/pdf", `attachment; filename="scan.pdf"`)},
		{"/ipfs/" + asV0(pdf), large, fileHeaders(pdf, "196609", "application/pdf", `attachment; filename="scan.pdf"`)},
		{"/ipfs/" + inBase(t, pdf, 'f') + "?filename=x.html&download=true", large, fileHeaders(pdf, "196609", "application/pdf", `attachment; filename="x.html"`)},
		{"/ipfs/" + empty.String(), []byte{}, fileHeaders(empty, "0", "application/octet-stream", `attachment; filename="`+empty.String()+`"`)},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body, err := fetch(t, srv, method, tt.path, nil)
			if err != nil || resp.StatusCode != 200 {
				t.Errorf("%s %s: %s, %v", method, tt.path, resp.Status, err)
			}
			tt.header["Repr-Digest"] = reprDigestOf(tt.data)
			if diff := cmp.Diff(tt.header, headersOf(resp)); diff != "" {
				t.Errorf("%s %s: headers (-want +got):\n%s", method, tt.path, diff)
			}
			if method == "GET" && !bytes.Equal(body, tt.data) || method == "HEAD" && len(body) > 0 {
				t.Errorf("%s %s: %d bytes", method, tt.path, len(body))
			}
		}
	}
}

// checkProblem checks an answer that is not a file: no header of a file, no
// caching, and words for a person.
func checkProblem(t *testing.T, resp *http.Response, body []byte, status int, code string) {
	t.Helper()
	var p problem
	if err := json.Unmarshal(body, &p); err != nil || p.Status != status || p.Code != code || p.Detail == "" {
		t.Errorf("%s: %s; want %d %s", resp.Request.URL, body, status, code)
	}
	got := headersOf(resp)
	delete(got, "Content-Length")
	delete(got, "Allow")
	delete(got, "Retry-After")
	delete(got, "Content-Range")
	want := map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "application/problem+json"}
	if diff := cmp.Diff(want, got); resp.StatusCode != status || diff != "" {
		t.Errorf("%s: %s, want %d; headers (-want +got):\n%s", resp.Request.URL, resp.Status, status, diff)
	}
}

func TestRefusalsOverHTTP(t *testing.T) {
	src := &mapSource{}
	c := src.add(t, []byte("a file"), "text/plain", "a.txt")
	path := "/ipfs/" + c.String()
	srv := gateway(t, src)
	for _, tt := range []struct {
		name, method, path string
		header             http.Header
		status             int
		code               string
		opens              int
	}{
		{"post", "POST", path, nil, 405, "METHOD_NOT_ALLOWED", 0},
		{"options", "OPTIONS", path, nil, 405, "METHOD_NOT_ALLOWED", 0},
		{"delete of nothing", "DELETE", "/ipfs/x", nil, 405, "METHOD_NOT_ALLOWED", 0},
		{"service worker", "GET", path, http.Header{"Service-Worker": {"script"}}, 400, "SERVICE_WORKER", 0},
		{"bad query", "GET", path + "?a=%zz", nil, 400, "BAD_QUERY", 0},
		{"long filename", "GET", path + "?filename=" + strings.Repeat("x", maxFilename+1), nil, 400, "BAD_QUERY", 0},
		{"no CID", "GET", "/ipfs/", nil, 400, CodeBadCID, 0},
		{"bad CID", "GET", "/ipfs/bafkreaa", nil, 400, CodeBadCID, 0},
		{"identity", "GET", "/ipfs/bafkqabtbmrwws3th", nil, 400, CodeBadCID, 0},
		{"path below", "GET", path + "/a.txt", nil, 400, CodeBadCID, 0},
		{"no such block", "GET", path + "?format=raw", nil, 404, CodeUnknownCID, 1},
		{"CAR", "GET", path + "?format=car", nil, 406, "NOT_ACCEPTABLE", 0},
		{"tar", "HEAD", path + "?format=tar", nil, 406, "", 0},
		{"unknown format", "GET", path + "?format=foo", nil, 400, "BAD_QUERY", 0},
		{"empty format", "GET", path + "?format=", nil, 400, "BAD_QUERY", 0},
		{"two formats", "GET", path + "?format=raw&format=car", nil, 400, "BAD_QUERY", 0},
		{"probe in another format", "GET", "/ipfs/bafkqaaa?format=car", nil, 406, "NOT_ACCEPTABLE", 0},
		{"accepts archives only", "GET", path, http.Header{"Accept": {"application/vnd.ipld.dag-json, application/vnd.ipld.car;version=1"}}, 406, "NOT_ACCEPTABLE", 0},
		{"bad CID of a block", "GET", "/ipfs/bafkreaa?format=raw", nil, 400, CodeBadCID, 0},
		{"only if cached", "GET", "/ipfs/" + CID{someDigest, true}.String(), http.Header{"Cache-Control": {"max-age=0, Only-If-Cached"}}, 412, CodeNotCached, 1},
		{"block only if cached", "GET", path + "?format=raw", http.Header{"Cache-Control": {"only-if-cached"}}, 412, CodeNotCached, 1},
		{"range behind the end", "GET", path, http.Header{"Range": {"bytes=6-"}}, 416, "RANGE_NOT_SATISFIABLE", 1},
		{"another version wanted", "GET", path, http.Header{"If-Match": {`"bafy"`}}, 412, "PRECONDITION_FAILED", 1},
		{"not here", "GET", "/ipfs/" + CID{someDigest, true}.String(), nil, 404, CodeUnknownCID, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src.opens = 0
			resp, body, err := fetch(t, srv, tt.method, tt.path, tt.header)
			if err != nil {
				t.Fatal(err)
			}
			if tt.method == "HEAD" { // has no words
				if resp.StatusCode != tt.status || len(body) > 0 {
					t.Errorf("%s with %d bytes", resp.Status, len(body))
				}
			} else {
				checkProblem(t, resp, body, tt.status, tt.code)
			}
			if allow := resp.Header.Get("Allow"); (tt.status == 405) != (allow == "GET, HEAD") {
				t.Errorf("Allow: %q", allow)
			}
			if got := resp.Header.Get("Content-Range"); (tt.status == 416) != (got == "bytes */6") {
				t.Errorf("Content-Range: %q", got)
			}
			if src.opens != tt.opens {
				t.Errorf("the source was asked %d times, want %d", src.opens, tt.opens)
			}
		})
	}
}

// TestMissingAndNotGrantedLookTheSame, whatever the source says and whatever
// condition the request has.
func TestMissingAndNotGrantedLookTheSame(t *testing.T) {
	src := &mapSource{}
	c := CID{someDigest, true}
	srv := gateway(t, src)
	path := "/ipfs/" + c.String()
	for _, header := range []http.Header{nil, {"If-None-Match": {`"` + c.String() + `"`}}, {"If-None-Match": {"*"}}, {"If-Match": {`"x"`}}, {"Range": {"bytes=5-"}}} {
		var first map[string]string
		var words []byte
		for i, err := range []error{nil, fault.New(fault.Denied, "DENIED", "not yours"), fault.New(fault.NotFound, "NONE", "none")} {
			src.err = err
			resp, body, err := fetch(t, srv, "GET", path, header)
			if err != nil {
				t.Fatal(err)
			}
			checkProblem(t, resp, body, 404, CodeUnknownCID)
			if i == 0 {
				first, words = headersOf(resp), body
			}
			if diff := cmp.Diff(first, headersOf(resp)); diff != "" || !bytes.Equal(words, body) {
				t.Errorf("%v: differs: %s %s", header, diff, body)
			}
		}
	}
}

func TestSourceErrorsOverHTTP(t *testing.T) {
	c := CID{someDigest, true}
	for _, tt := range []struct {
		err    error
		status int
		code   string
		retry  string
		secret string
	}{
		{fault.New(fault.Transient, "NO_ARCHIVE", "busy").After(1500 * time.Millisecond), 503, "NO_ARCHIVE", "2", ""},
		{fault.New(fault.Corrupt, CodeCorrupt, "sector 7"), 500, CodeCorrupt, "", "sector 7"},
		{errors.New("secret path"), 500, "", "", "secret path"},
		{fault.New(fault.Invalid, "X", "odd"), 400, "X", "", ""},
		{fault.New(fault.Conflict, "X", "odd"), 409, "X", "", ""},
	} {
		resp, body, err := fetch(t, gateway(t, &mapSource{err: tt.err}), "GET", "/ipfs/"+c.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkProblem(t, resp, body, tt.status, tt.code)
		if got := resp.Header.Get("Retry-After"); got != tt.retry {
			t.Errorf("%v: Retry-After %q", tt.err, got)
		}
		if tt.secret != "" && bytes.Contains(body, []byte(tt.secret)) {
			t.Errorf("told the client: %s", body)
		}
	}
	if got := statusOf(fault.New(fault.Denied, "", "")); got != 403 {
		t.Errorf("Denied is %d", got)
	}
}

func TestConditionalRequests(t *testing.T) {
	src := &mapSource{}
	c := src.add(t, []byte("conditional"), "", "")
	srv := gateway(t, src)
	tag := `"` + c.String() + `"`
	for _, tt := range []struct {
		header http.Header
		status int
	}{
		{http.Header{"If-None-Match": {tag}}, 304},
		{http.Header{"If-None-Match": {"W/" + tag}}, 304},
		{http.Header{"If-None-Match": {"*"}}, 304},
		{http.Header{"If-None-Match": {`"a,b", ` + tag}}, 304},
		{http.Header{"If-None-Match": {`"a"`, `W/"b",` + tag}}, 304},
		{http.Header{"If-None-Match": {`"a"`}}, 200},
		{http.Header{"If-None-Match": {c.String()}}, 200},
		{http.Header{"If-None-Match": {`"` + c.String()}}, 200},
		{http.Header{"If-None-Match": {`"` + c.String() + `.raw"`}}, 200},
		{http.Header{"If-None-Match": {""}}, 200},
		{http.Header{"If-Match": {tag}}, 200},
		{http.Header{"If-Match": {"*"}}, 200},
		{http.Header{"If-Match": {"W/" + tag}}, 412},
		{http.Header{"If-Match": {tag}, "If-None-Match": {tag}}, 304},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body, err := fetch(t, srv, method, "/ipfs/"+c.String(), tt.header)
			if err != nil || resp.StatusCode != tt.status {
				t.Errorf("%s %v: %s, %v; want %d", method, tt.header, resp.Status, err, tt.status)
			}
			if tt.status != 304 {
				continue
			}
			want := fileHeaders(c, "", "", "")
			for _, h := range []string{"Content-Length", "Content-Type", "Content-Disposition", "Repr-Digest"} {
				delete(want, h)
			}
			if diff := cmp.Diff(want, headersOf(resp)); diff != "" || len(body) > 0 {
				t.Errorf("304 with %d bytes, headers (-want +got):\n%s", len(body), diff)
			}
		}
	}
}

func TestProbe(t *testing.T) {
	src := &mapSource{}
	srv := gateway(t, src)
	for path, media := range map[string]string{"/ipfs/bafkqaaa": typeOctetStream, "/ipfs/bafkqaaa?format=raw": typeRaw} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body, err := fetch(t, srv, method, path, nil)
			if err != nil || resp.StatusCode != 200 || len(body) > 0 || resp.ContentLength != 0 || resp.Header.Get("Content-Type") != media {
				t.Errorf("%s %s: %s, %q, %v", method, path, resp.Status, body, err)
			}
		}
	}
	if src.opens != 0 {
		t.Error("the source was asked for the probe")
	}
}

// TestBrokenFileBreaksTheBody: a part of a file never ends like a whole one, and
// what fails before the first byte is told in words.
func TestBrokenFileBreaksTheBody(t *testing.T) {
	data := content(t, "broken", 3*sendStep)
	corrupt := fault.New(fault.Corrupt, CodeCorrupt, "leaf")
	bodies := map[string]func(n int) io.Reader{
		"cut":   func(n int) io.Reader { return bytes.NewReader(data[:n]) },
		"fails": func(n int) io.Reader { return io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(corrupt)) },
		"network": func(n int) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
	}
	for name, body := range bodies {
		for _, n := range []int{0, 1, sendStep - 1, sendStep, sendStep + 1, 2 * sendStep, len(data) - 1} {
			checkBroken(t, fmt.Sprintf("%s after %d", name, n), len(data), func() io.Reader { return body(n) }, n >= sendStep)
		}
	}
	checkBroken(t, "fails at the end", len(data), func() io.Reader { return io.MultiReader(bytes.NewReader(data), iotest.ErrReader(corrupt)) }, true)
	checkBroken(t, "longer", len(data)-1, func() io.Reader { return bytes.NewReader(data) }, true)
	checkBroken(t, "longer than a piece", sendStep, func() io.Reader { return bytes.NewReader(data) }, false)
	checkBroken(t, "not empty", 0, func() io.Reader { return bytes.NewReader(data) }, false)
}

func checkBroken(t *testing.T, name string, size int, body func() io.Reader, midway bool) {
	t.Helper()
	c := CID{someDigest, false}
	src := &mapSource{files: map[CID]mapFile{c: {File{Size: int64(size)}, body}}}
	resp, got, err := fetch(t, gateway(t, src), "GET", "/ipfs/"+c.String(), nil)
	if !midway {
		if err != nil || resp.StatusCode != 500 || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s, %v; want 500", name, resp.Status, err)
		}
		return
	}
	if err == nil || len(got) >= size {
		t.Errorf("%s: the client got %d of %d bytes and %v", name, len(got), size, err)
	}
	// net/http breaks off by itself when bytes are missing, but a wrapper that
	// compresses or buffers would end the body: the panic is the promise.
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("%s: the handler ended with %v", name, got)
		}
	}()
	NewHandler(HandlerConfig{Source: src}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/ipfs/"+c.String(), nil))
}

// TestStalledClientIsDropped: a client that takes no piece within the write
// timeout is cut off; one that is slow but alive is served to the end.
func TestStalledClientIsDropped(t *testing.T) {
	data := content(t, "slow", 4*sendStep)
	for _, pause := range []time.Duration{DefaultWriteTimeout / 4, DefaultWriteTimeout + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			src := &mapSource{}
			c := src.add(t, data, "", "")
			client, server := net.Pipe()
			l := &oneConn{conn: server, closed: make(chan struct{})}
			srv := &http.Server{Handler: NewHandler(HandlerConfig{Source: src})}
			go srv.Serve(l)
			defer srv.Close()
			if _, err := fmt.Fprintf(client, "GET /ipfs/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", c); err != nil {
				t.Fatal(err)
			}
			var got int
			buf := make([]byte, sendStep/2)
			for {
				time.Sleep(pause)
				n, err := io.ReadFull(client, buf)
				got += n
				if err != nil {
					break
				}
			}
			if whole := got > len(data); whole != (pause < DefaultWriteTimeout) {
				t.Errorf("a client that pauses %v got %d of %d bytes", pause, got, len(data))
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestKeepAliveSurvivesADownload: the deadline of one answer must not end the
// next request, which another handler may answer.
func TestKeepAliveSurvivesADownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &mapSource{}
		c := src.add(t, []byte("short"), "", "")
		client, server := net.Pipe()
		l := &oneConn{conn: server, closed: make(chan struct{})}
		mux := http.NewServeMux()
		mux.Handle("/ipfs/", NewHandler(HandlerConfig{Source: src}))
		mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") })
		srv := &http.Server{Handler: mux}
		go srv.Serve(l)
		defer srv.Close()
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
		defer tr.CloseIdleConnections()
		for _, path := range []string{"/ipfs/" + c.String(), "/other", "/ipfs/" + c.String()} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://x"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != "short" {
				t.Fatalf("%q, %v", body, err)
			}
			time.Sleep(2 * DefaultWriteTimeout)
		}
	})
}

func TestContentTypesAreAFewHarmlessOnes(t *testing.T) {
	for in, want := range map[string]string{
		"application/pdf": "application/pdf", "IMAGE/PNG": "image/png", "image/jpeg; x=y": "image/jpeg", "image/tiff": "image/tiff",
		"text/plain": "text/plain; charset=utf-8", "text/plain; charset=utf-7": "text/plain; charset=utf-8",
		"text/html": typeOctetStream, "image/svg+xml": typeOctetStream, "application/javascript": typeOctetStream,
		"": typeOctetStream, "pdf": typeOctetStream, "image/png\r\nX: y": typeOctetStream, "application/pdf; =": typeOctetStream,
	} {
		if got := ContentType(in); got != want {
			t.Errorf("ContentType(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNamesAreOnlyNames(t *testing.T) {
	for in, want := range map[string]string{
		"a b.pdf":                `attachment; filename="a b.pdf"`,
		"../../etc/passwd":       `attachment; filename=".._.._etc_passwd"`,
		`c:\x.exe`:               `attachment; filename="c:_x.exe"`,
		"..":                     `attachment; filename="__"`,
		"a\r\nSet-Cookie: x=1":   `attachment; filename="a__Set-Cookie: x=1"`,
		"tab\tnul\x00del\x7f":    `attachment; filename="tab_nul_del_"`,
		`q"uote`:                 `attachment; filename="q_uote"; filename*=UTF-8''q%22uote`,
		"100%.txt":               `attachment; filename="100_.txt"; filename*=UTF-8''100%25.txt`,
		"Überweisung.pdf":        `attachment; filename="_berweisung.pdf"; filename*=UTF-8''%C3%9Cberweisung.pdf`,
		"gpj\u202efdp.exe":       `attachment; filename="gpj_fdp.exe"`,
		"bad\xffutf8":            `attachment; filename="bad_utf8"`,
		strings.Repeat("ä", 200): `attachment; filename="` + strings.Repeat("_", 127) + `"; filename*=UTF-8''` + strings.Repeat("%C3%A4", 127),
	} {
		if got := Disposition(in); got != want {
			t.Errorf("Disposition(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzDisposition(f *testing.F) {
	for _, s := range []string{"", "a.pdf", "ä\"\\/\r\n", "%", "..", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		v := Disposition(name)
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q: %q is not printable ASCII", name, v)
		}
		kind, params, err := mime.ParseMediaType(v)
		if err != nil || kind != "attachment" {
			t.Fatalf("%q: %q does not parse: %v", name, v, err)
		}
		if got := params["filename"]; got != harmless(name) || strings.ContainsAny(got, "/\\") {
			t.Fatalf("%q arrives as %q", name, got)
		}
	})
}

func FuzzETags(f *testing.F) {
	f.Add(`"a", W/"b"`, false)
	f.Add(`*`, true)
	f.Add(`W/`, true)
	f.Fuzz(func(t *testing.T, s string, strong bool) {
		lines := slices.Collect(strings.SplitSeq(s, "\n"))
		if MatchesETag(lines, `"cid"`, strong) && strings.TrimSpace(strings.Join(lines, ",")) != "*" && !strings.Contains(s, `"cid"`) {
			t.Errorf("%q matches", s)
		}
	})
}
