package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

const helloCID = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e" // of "hello world"

// kuboWorld starts a system for clients of Kubo, which answers only when both
// copies are there.
func kuboWorld(t *testing.T) *world.World {
	t.Helper()
	return startWorld(t, world.Config{InProcess: true, Env: []string{"PUT_MIN_COPIES=2", "PUT_WAIT_MS=60000", "WAIT_ARCHIVE_MS=20000"}})
}

// kuboClientsWork lets kubo-rpc-client and fetch do what they do with Kubo.
func kuboClientsWork(t *testing.T, tools node) {
	w := kuboWorld(t)
	large := nodeFile{Seed: "large", Size: 3<<20 + 17}
	sums := func(p blob.Profile) blob.Sums {
		s, err := blob.SumReader(large.bytes(t), p)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	theirs, ours := sums(blob.Legacy), sums(blob.Default)
	want := map[string]string{
		"version":            `"0.43.0"`,
		"add":                fmt.Sprintf(`{"path":"a b.txt","cid":%q,"size":11}`, helloCID),
		"add without a name": fmt.Sprintf(`{"path":%q,"cid":%q,"size":11}`, helloCID, helloCID),
		"add large":          fmt.Sprintf(`{"path":"large","cid":%q,"size":%d,"last":%d,"several":true}`, theirs.CID, theirs.DAGSize, large.Size),
		"trickle":            `{"error":"trickle: the layout is always balanced; leave it out"}`,
		"cidVersion 0":       `{"error":"cid-version: CIDs are always of version 1; leave it out, or send 1"}`,
		"two files":          `{"error":"there is more than one part; send one file a request"}`,
		"without a key":      `{"error":"this route needs an API key: send it in the header x-api-key, or as Authorization: Bearer KEY"}`,
		"fetch":              fmt.Sprintf(`{"status":200,"type":"application/json","Name":"scan 1.pdf","Hash":%q,"Size":"%d"}`, ours.CID, ours.DAGSize),
		"fetch from a page":  `403`,
		"cat":                `"hello world"`,
		"cat a part":         `"wor"`,
		"block":              `"hello world"`,
		"cat large":          fmt.Sprintf(`{"cid":%q,"same":true,"part":true}`, sums(blob.Profile{ChunkSize: 64 << 10, MaxLinks: blob.Legacy.MaxLinks}).CID),
		"cat nothing":        `{"error":"nothing is here for you under bafkreiaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: check the CID, and that the file was shared with your tenant"}`,
	}
	ready := w.Ready()
	got := map[string]string{}
	for _, line := range tools.run(t, nil, nil, "kubo.mjs", ready.HTTPURL, w.Client("acme").Key, fmt.Sprint(large.Size)) {
		var said struct {
			Name  string
			Value json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got[said.Name] = string(said.Value)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s, want %s", name, got[name], value)
		}
	}
	if !strings.Contains(got["pin"], `"error"`) {
		t.Errorf("pin: %s", got["pin"])
	}
	sealedIn(t, w, "to be sealed")
	body, size, err := w.Client("acme").File(t.Context(), ours.CID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if again, err := blob.SumReader(body, blob.Default); err != nil || again != ours || size != ours.Size {
		t.Errorf("the file that came back is %+v, %v", again, err)
	}
}

// sealedIn waits for the seal of a text that was added as a file, which is among
// the files of its digest.
func sealedIn(t *testing.T, w *world.World, text string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	digest := sum([]byte(text))
	for {
		job, err := w.Client("acme").Receipts(ctx, digest)
		if err == nil {
			if len(job.Receipts) == 0 || job.Receipts[0].Kind != wire.ReceiptSeal || len(job.Files) != 1 || job.Files[0].SHA256 != digest {
				t.Errorf("the receipts of a file that was added to be sealed: %+v", job)
			}
			return
		}
		select {
		case <-time.After(20 * time.Millisecond): // polls; nothing is timed by it
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// TestCurlUploads is the upload of the documents: a file that is kept twice and
// can be fetched by its CID, also after it was sent again.
func TestCurlUploads(t *testing.T) {
	curl := need.Program(t, "curl")
	w := kuboWorld(t)
	ready := w.Ready()
	tools := node{program: curl, dir: t.TempDir()}
	key := "x-api-key: " + w.Client("acme").Key
	add := ready.HTTPURL + "/api/v0/add"
	for range 2 {
		lines := tools.run(t, strings.NewReader("hello world"), nil, "-sS", "-H", key, "-F", "file=@-;filename=a b.txt", add+"?progress=true")
		want := []string{`{"Name":"a b.txt","Bytes":11}`, `{"Name":"a b.txt","Hash":"` + helloCID + `","Size":"11"}`}
		if fmt.Sprint(lines) != fmt.Sprint(want) {
			t.Errorf("curl printed %q", lines)
		}
	}
	lines := tools.run(t, strings.NewReader("x"), nil, "-sS", "-H", key, "-F", "file=@-;filename=x", add+"?cid-version=0")
	if want := `{"Message":"cid-version: CIDs are always of version 1; leave it out, or send 1","Code":1,"Type":"error","Reason":"BAD_PARAMETER"}`; lines[0] != want {
		t.Errorf("curl printed %q", lines)
	}
	body, _, err := w.Client("acme").File(t.Context(), helloCID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if data, err := io.ReadAll(body); err != nil || string(data) != "hello world" {
		t.Errorf("it came back as %q, %v", data, err)
	}
}
