package edge

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestCatGivesAFileOrAPart(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789abcdef", 20<<10)
	id, _ := w.addFile(acme, content)
	cid := w.store.files[id][acme].CID
	key := w.key(acme, ScopeFiles)
	size := len(content)
	for query, want := range map[string]string{
		"": content, "&offset=0": content, "&offset=5": content[5:], "&length=7": content[:7], "&offset=65535&length=3": content[65535:65538],
		"&length=0": "", fmt.Sprint("&offset=", size): "", fmt.Sprint("&offset=", size+9): "", fmt.Sprintf("&offset=%d&length=99", size-1): content[size-1:],
		"&length=9223372036854775807&offset=1": content[1:], "&progress=true&encoding=json": content,
	} {
		a := w.do(w.request("POST", "/api/v0/cat?arg="+cid+query, "", "x-api-key", key))
		if a.StatusCode != 200 || string(a.body) != want {
			t.Errorf("?%s: %d, %d bytes, want %d", query, a.StatusCode, len(a.body), len(want))
		}
		n := strconv.Itoa(len(want))
		if h := a.Header; h.Get("Content-Type") != "text/plain" || h.Get("X-Stream-Output") != "1" || h.Get("X-Content-Length") != n || h.Get("Content-Length") != n ||
			h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("?%s: %v", query, h)
		}
	}
	for query, message := range map[string]string{
		"": `argument "ipfs-path" is required`, "arg=": `argument "ipfs-path" is required`, "arg=" + cid + "&arg=" + cid: "arg: it is given more than once; give it once",
		"arg=" + cid + "&offset=-1": "offset: it must be a number of bytes, 0 or more", "arg=" + cid + "&length=x": "length: it must be a number of bytes, 0 or more",
	} {
		a := w.do(w.request("POST", "/api/v0/cat?"+query, "", "x-api-key", key))
		if e := a.kuboError(t); a.StatusCode != 400 || e.Message != message {
			t.Errorf("?%s: %d %+v", query, a.StatusCode, e)
		}
	}
	for _, arg := range []string{"x", "/ipfs/" + cid + "/a", "/ipns/" + cid, "QmX", strings.Repeat("b", 200)} {
		a := w.do(w.request("POST", "/api/v0/cat?arg="+arg, "", "x-api-key", key))
		if e := a.kuboError(t); a.StatusCode != 400 || e.Reason != blob.CodeBadCID {
			t.Errorf("arg %s: %d %+v", arg, a.StatusCode, e)
		}
	}
}

// A block is found by its digest, in every spelling and codec.
func TestBlockGetGivesABlock(t *testing.T) {
	w := newWorld(t)
	id, _ := w.addFile(acme, "hello")
	cid := w.store.files[id][acme].CID
	w.store.blocks = map[string]map[wire.Digest][]byte{cid: {digestOf("a leaf"): []byte("a leaf")}}
	key := w.key(acme, ScopeFiles)
	leaf := blob.CID{Digest: digestOf("a leaf"), Raw: true}
	for arg, want := range map[string]string{
		cid: "hello", "/ipfs/" + cid: "hello", leaf.String(): "a leaf", blob.CID{Digest: leaf.Digest}.String(): "a leaf",
		"f01551220" + digestOf("a leaf").String(): "a leaf",
	} {
		a := w.do(w.request("POST", "/api/v0/block/get?arg="+arg, "", "x-api-key", key))
		if a.StatusCode != 200 || string(a.body) != want || a.Header.Get("Content-Type") != "application/vnd.ipld.raw" || a.Header.Get("X-Stream-Output") != "1" {
			t.Errorf("arg %s: %d %q %v", arg, a.StatusCode, a.body, a.Header)
		}
	}
	a := w.do(w.request("POST", "/api/v0/block/get", "", "x-api-key", key))
	if e := a.kuboError(t); a.StatusCode != 400 || e.Message != `argument "cid" is required` {
		t.Errorf("without an argument: %d %+v", a.StatusCode, e)
	}
}

// What is not there and what is another tenant's are one answer, byte for byte.
func TestKuboReadsHideWhatIsNotGranted(t *testing.T) {
	full, empty := newWorld(t), newWorld(t)
	id, _ := full.addFile(acme, "hello")
	cid := full.store.files[id][acme].CID
	for _, command := range []string{"cat", "block/get"} {
		var got [2]answered
		for i, w := range []*world{full, empty} {
			got[i] = w.do(w.request("POST", "/api/v0/"+command+"?arg="+cid, "", "x-api-key", w.key(other, ScopeFiles), "X-Request-Id", "same"))
			got[i].Header.Del("Date")
			if e := got[i].kuboError(t); got[i].StatusCode != 404 || e.Reason != blob.CodeUnknownCID {
				t.Errorf("%s: %d %+v", command, got[i].StatusCode, e)
			}
		}
		if diff := cmp.Diff(got[0].Header, got[1].Header); diff != "" || string(got[0].body) != string(got[1].body) {
			t.Errorf("%s: %s\n%s\n%s", command, diff, got[0].body, got[1].body)
		}
	}
}

// A file that can not be delivered is told in words, or broken off: never whole.
func TestBrokenCatIsNeverWhole(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789abcdef", 40<<10)
	id, _ := w.addFile(acme, content)
	cid := w.store.files[id][acme].CID
	key := w.key(acme, ScopeFiles)
	for _, command := range []string{"cat", "block/get"} {
		w.store.readErr = fault.New(fault.Corrupt, "BLOB_CORRUPT", "leaf")
		res, err := w.client.Do(w.request("POST", "/api/v0/"+command+"?arg="+cid, "", "x-api-key", key))
		if err != nil {
			t.Fatal(err)
		}
		if a, err := readAll(res); err == nil {
			t.Errorf("%s: status %d and %d bytes, as if whole", command, a.StatusCode, len(a.body))
		}
		w.store.readErr = nil
		w.store.openErr = fault.New(fault.Transient, "UNREACHABLE", "gone")
		if a := w.do(w.request("POST", "/api/v0/"+command+"?arg="+cid, "", "x-api-key", key)); a.StatusCode != 503 || a.kuboError(t).Reason != codeArchivesMissing {
			t.Errorf("%s of archives that are gone: %d %s", command, a.StatusCode, a.body)
		}
		w.store.openErr = nil
	}
}
