package edge

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// How long what is sent may be kept, and by whom.
const (
	privateForEver = "private, max-age=29030400, immutable"
	publicForEver  = "public, max-age=29030400, immutable"
)

// A range gives its bytes, under the name of the whole, by every door.
func TestRangesOfFiles(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789abcdef", 20<<10) // more than one piece
	id, _ := w.addFile(acme, content)
	cid := w.store.files[id][acme].CID
	key := w.allKey(acme)
	size := len(content)
	const piece = 128 << 10
	for door, etag := range map[string]string{"/zapier/v1/files/" + id.String(): `"` + digestOf(content).String() + `"`, "/ipfs/" + cid: `"` + cid + `"`} {
		for _, c := range []struct {
			spec     string
			off, end int // -1: 416
		}{
			{"0-0", 0, 1}, {"0-", 0, size}, {fmt.Sprintf("%d-%d", piece-1, piece), piece - 1, piece + 1}, {fmt.Sprintf("%d-", size-1), size - 1, size},
			{"-1", size - 1, size}, {"-999999999", 0, size}, {fmt.Sprintf("7-%d", size*9), 7, size}, {fmt.Sprintf("%d-", size), -1, 0}, {"-0", -1, 0},
		} {
			a := w.do(w.request("GET", door, "", "x-api-key", key, "Range", "bytes="+c.spec))
			if c.off < 0 {
				if p := a.problem(t); p.Status != 416 || p.Code != "RANGE_NOT_SATISFIABLE" || a.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", size) {
					t.Errorf("%s of %s: %d %s %q", c.spec, door, p.Status, p.Code, a.Header.Get("Content-Range"))
				}
				continue
			}
			want := content[c.off:c.end]
			if a.StatusCode != 206 || string(a.body) != want || a.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", c.off, c.end-1, size) {
				t.Errorf("%s of %s: %d, %d bytes, %q", c.spec, door, a.StatusCode, len(a.body), a.Header.Get("Content-Range"))
			}
			if a.Header.Get("ETag") != etag || a.Header.Get("Repr-Digest") != reprDigest(digestOf(content)) || a.ContentLength != int64(len(want)) {
				t.Errorf("%s of %s: %v", c.spec, door, a.Header)
			}
		}
		for cond, part := range map[string]bool{etag: true, `"other"`: false, "W/" + etag: false, "Mon, 01 Dec 2025 00:00:00 GMT": false} {
			a := w.do(w.request("GET", door, "", "x-api-key", key, "Range", "bytes=1-2", "If-Range", cond))
			if (a.StatusCode == 206) != part || !part && len(a.body) != size {
				t.Errorf("If-Range %s of %s: %d, %d bytes", cond, door, a.StatusCode, len(a.body))
			}
		}
	}
}

// A range that can not be delivered is broken off, or told as what it is, like the
// whole file.
func TestBrokenRangeIsNeverWhole(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789abcdef", 40<<10)
	id, _ := w.addFile(acme, content)
	key := w.allKey(acme)
	w.store.readErr = fault.New(fault.Corrupt, "BLOB_CORRUPT", "leaf")
	for _, door := range []string{"/zapier/v1/files/" + id.String(), "/ipfs/" + w.store.files[id][acme].CID} {
		if p := w.do(w.request("GET", door, "", "x-api-key", key, "Range", "bytes=5-9")).problem(t); p.Status != 500 {
			t.Errorf("%s: %d %s", door, p.Status, p.Code)
		}
		res, err := w.client.Do(w.request("GET", door, "", "x-api-key", key, "Range", "bytes=1-"))
		if err != nil {
			t.Fatal(err)
		}
		if a, err := readAll(res); err == nil {
			t.Errorf("%s: status %d, and %d of %d bytes read as whole", door, a.StatusCode, len(a.body), a.ContentLength)
		}
		w.client.CloseIdleConnections()
	}
	w.store.readErr, w.store.openErr = nil, fault.New(fault.NotFound, "NOT_FOUND", "no such file")
	if p := w.do(w.request("GET", "/zapier/v1/files/"+id.String(), "", "x-api-key", key, "Range", "bytes=5-9")).problem(t); p.Status != 503 || p.Code != codeArchivesMissing {
		t.Errorf("nobody has the bytes: %d %s", p.Status, p.Code)
	}
}

// A small file costs no large buffer for each answer: fault 15 of other servers.
func TestTinyFilesShareBuffers(t *testing.T) {
	w := newWorld(t)
	id, _ := w.addFile(acme, "tiny")
	key := w.allKey(acme)
	path := "/ipfs/" + w.store.files[id][acme].CID
	const answers = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range answers {
		if a := w.do(w.request("GET", path, "", "x-api-key", key)); string(a.body) != "tiny" {
			t.Fatal(a.StatusCode)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / answers; n > 100<<10 {
		t.Errorf("%d bytes an answer of 4 bytes", n)
	}
}

// blockWorld has a file of acme with a leaf that is not its root.
func blockWorld(t *testing.T) (w *world, file jobs.File, leaf []byte, leafCID string) {
	w = newWorld(t)
	id, _ := w.addFile(acme, "hello")
	file = w.store.files[id][acme]
	leaf = []byte("a leaf")
	w.store.blocks = map[string]map[wire.Digest][]byte{file.CID: {digestOf("a leaf"): leaf}}
	return w, file, leaf, rawCID("a leaf")
}

func TestBlocksAreServedRaw(t *testing.T) {
	w, file, leaf, cid := blockWorld(t)
	key := w.allKey(acme)
	for path, want := range map[string]string{"/ipfs/" + cid + "?format=raw": string(leaf), "/ipfs/" + file.CID + "?format=raw": "hello"} {
		a := w.do(w.request("GET", path, "", "x-api-key", key))
		if a.StatusCode != 200 || string(a.body) != want || a.Header.Get("Content-Type") != "application/vnd.ipld.raw" || a.Header.Get("Cache-Control") != privateForEver {
			t.Errorf("%s: %d %q %v", path, a.StatusCode, a.body, a.Header)
		}
	}
	if a := w.do(w.request("GET", "/ipfs/"+cid, "", "x-api-key", key)); a.StatusCode != 404 {
		t.Errorf("a leaf as a file: %d", a.StatusCode)
	}
}

// A block that is stored and not to be had is 503 or 500, never 404; what is under
// the digest for another reason is 404 only when all were heard.
func TestBlockThatIsKnownIsNeverDenied(t *testing.T) {
	for name, c := range map[string]struct {
		stat, open error
		allHeard   bool
		status     int
		code       string
	}{
		"no block, all heard":    {fault.New(fault.NotFound, "NOT_FOUND", "n"), nil, true, 404, "UNKNOWN_CID"},
		"no block, one silent":   {fault.New(fault.NotFound, "NOT_FOUND", "n"), nil, false, 503, codeArchivesMissing},
		"damaged":                {fault.New(fault.Corrupt, "BLOB_CORRUPT", "c"), nil, true, 503, codeArchivesMissing},
		"lost":                   {fault.New(fault.Corrupt, "FILE_LOST", "l"), nil, true, 503, codeFileLost},
		"silent":                 {fault.New(fault.Transient, "ARCHIVE_UNREACHABLE", "u"), nil, true, 503, codeArchivesMissing},
		"gone after its size":    {nil, fault.New(fault.NotFound, "NOT_FOUND", "n"), true, 503, codeArchivesMissing},
		"damaged after its size": {nil, fault.New(fault.Corrupt, "BLOB_CORRUPT", "c"), true, 503, codeArchivesMissing},
	} {
		t.Run(name, func(t *testing.T) {
			w, file, _, cid := blockWorld(t)
			file.AllHeard = c.allHeard
			w.store.files[file.ID][acme] = file
			w.store.statErr, w.store.openErr = c.stat, c.open
			if p := w.do(w.request("GET", "/ipfs/"+cid+"?format=raw", "", "x-api-key", w.allKey(acme))).problem(t); p.Status != c.status || p.Code != c.code {
				t.Errorf("%d %s: %s", p.Status, p.Code, p.Detail)
			}
		})
	}
	w, file, _, cid := blockWorld(t)
	w.store.blocks[file.CID][digestOf("a leaf")] = []byte("b leaf")
	if p := w.do(w.request("GET", "/ipfs/"+cid+"?format=raw", "", "x-api-key", w.allKey(acme))).problem(t); p.Status != 500 {
		t.Errorf("other bytes than the block's: %d %s", p.Status, p.Code)
	}
}

// Archives that were not waited for are asked when the others can not deliver.
func TestArchivesThatWereNotWaitedForAreAsked(t *testing.T) {
	w, file, leaf, cid := blockWorld(t)
	slow := file
	slow.ArchiveIDs = nil // the fake delivers nothing from nowhere
	again := 0
	slow.Again = func(context.Context) (jobs.File, error) { again++; return file, nil }
	w.store.files[file.ID][acme] = slow
	w.store.blockAgain = func(context.Context) (jobs.Block, error) {
		again++
		return jobs.Block{ArchiveIDs: file.ArchiveIDs}, nil
	}
	key := w.allKey(acme)
	for path, want := range map[string]string{
		"/zapier/v1/files/" + file.ID.String(): "hello", "/ipfs/" + file.CID: "hello", "/ipfs/" + cid + "?format=raw": string(leaf),
	} {
		before := again
		if a := w.do(w.request("GET", path, "", "x-api-key", key)); a.StatusCode != 200 || string(a.body) != want || again != before+1 {
			t.Errorf("%s: %d %q, asked again %d times", path, a.StatusCode, a.body, again-before)
		}
		if a := w.do(w.request("HEAD", path, "", "x-api-key", key)); a.StatusCode != 200 {
			t.Errorf("HEAD %s: %d", path, a.StatusCode)
		}
	}
	// Another file under the same name is not taken for this one.
	slow.Again = func(context.Context) (jobs.File, error) {
		other := file
		other.SHA256 = digestOf("other")
		return other, nil
	}
	w.store.files[file.ID][acme] = slow
	if p := w.do(w.request("GET", "/ipfs/"+file.CID, "", "x-api-key", key)).problem(t); p.Status != 503 {
		t.Errorf("another file: %d %s", p.Status, p.Code)
	}
}
