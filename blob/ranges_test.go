package blob

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rangesOf are the Range headers around everything that begins or ends in a file,
// each with the section it stands for; one without bytes is for 416.
func rangesOf(size, chunk int64) map[string]section {
	out := map[string]section{}
	for _, from := range edgesOf(size, chunk) {
		out[fmt.Sprintf("bytes=%d-", from)] = section{off: from, length: size - from}
		if from > 0 {
			out[fmt.Sprintf("bytes=-%d", from)] = section{off: size - from, length: from}
		}
		for _, to := range edgesOf(size, chunk) {
			if to >= from && from < size {
				out[fmt.Sprintf("bytes=%d-%d", from, to)] = section{off: from, length: min(to+1, size) - from}
			}
		}
	}
	return out
}

// A range gives exactly its bytes, at every edge of every chunk, of a file in a
// real store; and only the leaves that have some of them are read.
func TestRangesOverHTTP(t *testing.T) {
	s := openStore(t, testConfig(t))
	const chunk = int64(MinChunkSize)
	for _, size := range []int64{1, chunk - 1, chunk, chunk + 1, 2*chunk + 7} {
		data := content(t, "ranges over http", int(size))
		sums, _ := store(t, s, "u", data, small)
		h := NewHandler(HandlerConfig{Source: storeSource{s, sums.CID}})
		for spec, want := range rangesOf(size, chunk) {
			before := s.Stats().LeavesVerified
			resp := serveRange(h, sums.CID, spec)
			told := resp.Header().Get("Content-Range")
			if want.length == 0 {
				if resp.Code != 416 || told != fmt.Sprintf("bytes */%d", size) || resp.Header().Get("ETag") != "" {
					t.Errorf("%s of %d: %d %v", spec, size, resp.Code, resp.Header())
				}
				continue
			}
			end := want.off + want.length
			if resp.Code != 206 || !bytes.Equal(resp.Body.Bytes(), data[want.off:end]) || told != fmt.Sprintf("bytes %d-%d/%d", want.off, end-1, size) {
				t.Errorf("%s of %d: %d, %d bytes, %q", spec, size, resp.Code, resp.Body.Len(), told)
			}
			if n, leaves := s.Stats().LeavesVerified-before, uint64((end-1)/chunk-want.off/chunk+1); n != leaves {
				t.Errorf("%s of %d: %d leaves were read, want %d", spec, size, n, leaves)
			}
		}
	}
}

func serveRange(h *Handler, cid, spec string, more ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/ipfs/"+cid, nil)
	r.Header.Set("Range", spec)
	for i := 0; i+1 < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// What is no single range of bytes gets the whole: RFC 9110 lets a server ignore
// the header, and a client that sees 200 knows.
func TestOtherRangesGetTheWhole(t *testing.T) {
	data := []byte("0123456789")
	src := &mapSource{}
	c := src.add(t, data, "", "")
	empty := src.add(t, nil, "", "")
	h := NewHandler(HandlerConfig{Source: src})
	for _, spec := range []string{
		"bytes=0-1,3-4", "bytes=0-1,", "bytes=", "bytes=-", "bytes", "bytes 0-1", "byte=0-1", "items=0-1", "bytes=4-2", "bytes=a-b", "bytes=1-b",
		"bytes=+1-2", "bytes=--1", "bytes=0x1-2", "bytes=1-2-3", "bytes=1 - 2", "",
	} {
		if w := serveRange(h, c.String(), spec); w.Code != 200 || w.Body.String() != string(data) || w.Header().Get("Content-Range") != "" {
			t.Errorf("%q: %d %q %q", spec, w.Code, w.Body, w.Header().Get("Content-Range"))
		}
	}
	for spec, want := range map[string]string{"BYTES=1-2": "12", "bytes= 1-2 ": "12", "bytes=8-99999999999999999999": "89", "bytes=-99999999999999999999": string(data)} {
		if w := serveRange(h, c.String(), spec); w.Code != 206 || w.Body.String() != want {
			t.Errorf("%q: %d %q", spec, w.Code, w.Body)
		}
	}
	for _, spec := range []string{"bytes=10-", "bytes=99999999999999999999-", "bytes=-0"} {
		if w := serveRange(h, c.String(), spec); w.Code != 416 {
			t.Errorf("%q: %d", spec, w.Code)
		}
	}
	for _, spec := range []string{"bytes=0-", "bytes=-5", "bytes=9-"} { // there are no ranges of nothing
		if w := serveRange(h, empty.String(), spec); w.Code != 200 || w.Body.Len() > 0 {
			t.Errorf("%q of an empty file: %d", spec, w.Code)
		}
	}
}

func TestIfRangeGuardsARange(t *testing.T) {
	src := &mapSource{}
	c := src.add(t, []byte("0123456789"), "", "")
	h := NewHandler(HandlerConfig{Source: src})
	tag := `"` + c.String() + `"`
	for cond, status := range map[string]int{tag: 206, " " + tag: 206, "W/" + tag: 200, `"x"`: 200, c.String(): 200, "*": 200, tag + "," + tag: 200, "Tue, 01 Dec 2026 00:00:00 GMT": 200} {
		if w := serveRange(h, c.String(), "bytes=2-3", "If-Range", cond); w.Code != status {
			t.Errorf("If-Range: %s: %d, want %d", cond, w.Code, status)
		}
	}
	// Conditions come first, and a range that can not be had does not hide them.
	if w := serveRange(h, c.String(), "bytes=99-", "If-None-Match", tag); w.Code != 304 {
		t.Errorf("a condition and a bad range: %d", w.Code)
	}
	if w := serveRange(h, c.String(), "bytes=99-", "If-Match", `"x"`); w.Code != 412 {
		t.Errorf("a condition that fails and a bad range: %d", w.Code)
	}
	if w := serveRange(h, c.String(), "bytes=99-", "If-Range", `"x"`); w.Code != 200 {
		t.Errorf("a bad range of another version: %d", w.Code)
	}
}

// The type of a file does not depend on which bytes are asked for, nor on the name
// that a client gives: fault 6 of other servers.
func TestTypeIsThatOfTheFile(t *testing.T) {
	src := &mapSource{}
	binary := src.add(t, append([]byte{0, 1, 2, 3}, "<html><script>alert(1)</script>"...), "text/html", "x.html")
	text := src.add(t, []byte("%PDF-1.7 really text"), "text/plain", "x.pdf")
	h := NewHandler(HandlerConfig{Source: src})
	for c, want := range map[CID]string{binary: typeOctetStream, text: "text/plain; charset=utf-8"} {
		for _, query := range []string{"", "?filename=x.html", "?filename=x.svg&download=false", "?download=true"} {
			for _, spec := range []string{"", "bytes=-5", "bytes=4-9", "bytes=0-0"} {
				w := serveRange(h, c.String()+query, spec)
				if w.Header().Get("Content-Type") != want || w.Header().Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s %s: %v", query, spec, w.Header())
				}
				if got := w.Header().Get("Content-Disposition"); len(got) < 10 || got[:10] != "attachment" {
					t.Errorf("%s %s: %s", query, spec, got)
				}
			}
		}
	}
}

// HEAD tells of the whole, whatever range it names, and reads nothing.
func TestHeadReadsNothing(t *testing.T) {
	src := &mapSource{}
	c := src.add(t, []byte("0123456789"), "", "")
	block := src.addBlock([]byte("a block"))
	h := NewHandler(HandlerConfig{Source: src})
	for path, length := range map[string]string{c.String(): "10", block.String() + "?format=raw": "7"} {
		r := httptest.NewRequest("HEAD", "/ipfs/"+path, nil)
		r.Header.Set("Range", "bytes=2-3")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || w.Header().Get("Content-Length") != length || w.Header().Get("Content-Range") != "" || w.Body.Len() > 0 {
			t.Errorf("HEAD %s: %d %v", path, w.Code, w.Header())
		}
	}
	if len(src.reads) > 0 {
		t.Errorf("HEAD read %v", src.reads)
	}
}

// A public file may be kept by everybody, and its answer does not vary by who asks.
func TestPublicFilesAreCachedByAll(t *testing.T) {
	src := &mapSource{}
	c := src.add(t, []byte("for all"), "text/plain", "all.txt")
	f := src.files[c]
	f.Public = true
	src.files[c] = f
	h := NewHandler(HandlerConfig{Source: src})
	for status, spec := range map[int]string{200: "", 206: "bytes=0-2", 304: "", 416: "bytes=99-"} {
		r := httptest.NewRequest("GET", "/ipfs/"+c.String(), nil)
		r.Header.Set("Range", spec)
		if status == 304 {
			r.Header.Set("If-None-Match", "*")
		}
		w := httptest.NewRecorder()
		w.Header().Set("Vary", "Authorization, X-Api-Key") // of whoever authenticated
		h.ServeHTTP(w, r)
		cache, vary := cachePublic, "Accept"
		if status == 416 {
			cache, vary = "no-store", whoAsks
		}
		if w.Code != status || w.Header().Get("Cache-Control") != cache || w.Header().Get("Vary") != vary {
			t.Errorf("%d: %d %v", status, w.Code, w.Header())
		}
	}
	// At an address of another route nothing is negotiated.
	w := httptest.NewRecorder()
	if err := h.Send(w, httptest.NewRequest("GET", "/files/x", nil), Entity{File: emptyFile, ETag: `"x"`}); err != nil {
		t.Fatal(err)
	}
	if _, ok := w.Header()["Vary"]; ok {
		t.Errorf("Vary: %q", w.Header().Get("Vary"))
	}
}

// rawHeaders are all headers of an answer with a block.
func rawHeaders(c CID, data []byte) map[string]string {
	h := fileHeaders(c, fmt.Sprint(len(data)), typeRaw, `attachment; filename="`+c.String()+`.bin"`)
	h["Etag"], h["Repr-Digest"] = `"`+c.String()+`.raw"`, reprDigestOf(data)
	return h
}

// A block is served raw under every codec and spelling, asked for by parameter or
// header; the parameter wins.
func TestRawBlocksOverHTTP(t *testing.T) {
	src := &mapSource{}
	data := content(t, "a leaf", 5000)
	c := src.addBlock(data)
	node := CID{Digest: c.Digest}
	srv := gateway(t, src)
	for _, tt := range []struct {
		path, accept string
		as           CID
		negotiated   bool
	}{
		{c.String() + "?format=raw", "", c, false},
		{c.String() + "?format=raw", "text/html", c, true},
		{c.String() + "?format=raw", "application/vnd.ipld.car", c, true},
		{c.String(), "application/vnd.ipld.raw", c, true},
		{c.String(), "application/vnd.ipld.raw; q=0.9, text/html;q=0.1", c, true},
		{c.String(), "*/*, Application/Vnd.IPLD.Raw", c, true},
		{c.String(), "application/vnd.ipld.car, application/vnd.ipld.raw", c, true},
		{node.String(), "application/vnd.ipld.raw", node, true},
		{asV0(node) + "?format=raw", "", node, false},
		{inBase(t, c, 'z') + "?format=raw&download=true", "", c, false},
	} {
		header := http.Header{}
		if tt.accept != "" {
			header.Set("Accept", tt.accept)
		}
		resp, body, err := fetch(t, srv, "GET", "/ipfs/"+tt.path, header)
		if err != nil || resp.StatusCode != 200 || !bytes.Equal(body, data) {
			t.Errorf("%s, %q: %s, %d bytes, %v", tt.path, tt.accept, resp.Status, len(body), err)
		}
		want := rawHeaders(tt.as, data)
		if tt.negotiated {
			want["Content-Location"] = "/ipfs/" + tt.as.String() + "?format=raw"
		}
		if diff := cmp.Diff(want, headersOf(resp)); diff != "" {
			t.Errorf("%s, %q: headers (-want +got):\n%s", tt.path, tt.accept, diff)
		}
	}
	if resp, _, err := fetch(t, srv, "GET", "/ipfs/"+c.String()+"?format=raw&filename=b.html", nil); err != nil || resp.Header.Get("Content-Disposition") != `attachment; filename="b.html"` || resp.Header.Get("Content-Type") != typeRaw {
		t.Errorf("a name of its own: %v, %v", resp.Header, err)
	}
	if resp, body, err := fetch(t, srv, "GET", "/ipfs/"+c.String()+"?format=raw", http.Header{"Range": {"bytes=1-3"}}); err != nil || resp.StatusCode != 206 || !bytes.Equal(body, data[1:4]) {
		t.Errorf("a range of a block: %s, %d bytes, %v", resp.Status, len(body), err)
	}
	tag := `"` + c.String() + `.raw"`
	for cond, status := range map[string]int{tag: 304, `"` + c.String() + `"`: 200} {
		if resp, _, err := fetch(t, srv, "GET", "/ipfs/"+c.String()+"?format=raw", http.Header{"If-None-Match": {cond}}); err != nil || resp.StatusCode != status {
			t.Errorf("If-None-Match %s: %s, %v", cond, resp.Status, err)
		}
	}
}

// Which Accept header asks for what.
func TestAcceptHeaders(t *testing.T) {
	for _, tt := range []struct {
		accept []string
		raw    bool
		err    bool
	}{
		{nil, false, false},
		{[]string{""}, false, false},
		{[]string{"*/*"}, false, false},
		{[]string{"text/html,application/xhtml+xml,*/*;q=0.8"}, false, false},
		{[]string{typeRaw}, true, false},
		{[]string{typeRaw + ";q=0"}, false, true},
		{[]string{typeRaw + ";q=0, */*"}, false, false},
		{[]string{typeRaw + ";q=0.5, */*"}, false, false},
		{[]string{typeRaw + ";q=nonsense, */*"}, true, false},
		{[]string{typeRaw + " ; v=1 ; Q=0.5", "text/html;q=0.4"}, true, false},
		{[]string{"application/vnd.ipld.car"}, false, true},
		{[]string{"application/vnd.ipld.dag-cbor", "application/vnd.ipfs.ipns-record"}, false, true},
		{[]string{"application/x-tar"}, false, true},
		{[]string{"application/vnd.ipld.car, */*;q=0.1"}, false, false},
		{[]string{"application/vnd.ipld.car", typeRaw}, true, false},
		{[]string{"text/html;q=0"}, false, false},
	} {
		raw, negotiated, err := formOf(nil, tt.accept)
		if raw != tt.raw || (err != nil) != tt.err || negotiated != tt.raw {
			t.Errorf("%q: raw %t, negotiated %t, %v", tt.accept, raw, negotiated, err)
		}
	}
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=0-1,2-3", "bytes=-0", "bytes=99999999999999999999-", "x"} {
		f.Add(s, `"e"`, int64(10))
	}
	f.Add("bytes=0-", "", int64(0))
	f.Fuzz(func(t *testing.T, spec, cond string, size int64) {
		if size < 0 {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Range"] = []string{spec}
		if cond != "" {
			r.Header["If-Range"] = []string{cond}
		}
		s, ok := sectionOf(r, `"e"`, size)
		if !ok {
			return
		}
		if s.off < 0 || s.length < 0 || s.off+s.length > size || s.part && s.length == 0 || !s.part && (s.off != 0 || s.length != size) {
			t.Errorf("%q of %d: %+v", spec, size, s)
		}
	})
}
