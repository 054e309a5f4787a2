package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// exporterReadsOurBlocks stores files with trees of no level to two, and has them
// read a block at a time, each held to its CID.
func exporterReadsOurBlocks(t *testing.T, tools node) {
	w := startWorld(t, world.Config{InProcess: true})
	narrow := blob.Profile{ChunkSize: blob.MinChunkSize, MaxLinks: blob.MinLinks}
	var input bytes.Buffer
	var want []string
	for _, f := range []nodeFile{
		{"empty", 0, blob.Default.ChunkSize, blob.Default.MaxLinks},
		{"a chunk", 1 << 20, blob.Default.ChunkSize, blob.Default.MaxLinks},
		{"a chunk and a byte", 1<<20 + 1, blob.Default.ChunkSize, blob.Default.MaxLinks},
		{"older", 3 << 20, blob.Legacy.ChunkSize, blob.Legacy.MaxLinks},
		{"two levels", 17*narrow.ChunkSize + 5, narrow.ChunkSize, narrow.MaxLinks},
	} {
		sums, err := blob.SumReader(f.bytes(t), blob.Profile{ChunkSize: f.ChunkSize, MaxLinks: f.MaxLinks})
		if err != nil {
			t.Fatal(err)
		}
		added, err := w.Client("acme").Add(t.Context(), client.File{
			Name: f.Seed, Open: func() (io.ReadCloser, error) { return io.NopCloser(f.bytes(t)), nil },
		}, client.AddOptions{ChunkSize: f.ChunkSize, MaxLinks: f.MaxLinks})
		if err != nil || added.CID != sums.CID || added.DAGSize != sums.DAGSize {
			t.Fatalf("%+v: %+v, want %+v: %v", f, added, sums, err)
		}
		line, err := json.Marshal(map[string]any{"cid": sums.CID, "sha256": wire.Digest(sums.SHA256), "size": sums.Size})
		if err != nil {
			t.Fatal(err)
		}
		input.Write(append(line, '\n'))
		want = append(want, sums.CID+" true")
	}
	env := []string{"URL=" + w.Ready().HTTPURL, "API_KEY=" + w.Ready().APIKeys["acme"]}
	if diff := cmp.Diff(want, tools.run(t, &input, env, "exporter.mjs")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
