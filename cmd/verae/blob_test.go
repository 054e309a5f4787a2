package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/serve"
)

// The options mean what they mean to Kubo's add: the size that is named brings
// 174 links with it.
func TestOptionsOfAddChooseTheProfile(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 17<<12) // 17 chunks of 64 KiB
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want blob.Profile
	}{
		{nil, blob.Default},
		{[]string{"--chunker", "size-262144"}, blob.Legacy},
		{[]string{"--chunker", "size-1048576"}, blob.Profile{ChunkSize: 1 << 20, MaxLinks: 174}},
		{[]string{"--chunker", "size-65536", "--max-file-links", "16"}, blob.Profile{ChunkSize: 64 << 10, MaxLinks: 16}},
		{[]string{"--max-file-links=16"}, blob.Profile{ChunkSize: 1 << 20, MaxLinks: 16}},
	} {
		want, err := blob.SumReader(bytes.NewReader(data), tc.want)
		if err != nil {
			t.Fatal(err)
		}
		var out, diagnostics bytes.Buffer
		code := run(append([]string{"blob", "cid", path}, tc.args...), nil, &out, &diagnostics)
		if code != serve.ExitOK || !strings.HasPrefix(out.String(), want.CID+" ") {
			t.Errorf("%q: exit code %d, %s%s, want %s", tc.args, code, out.String(), diagnostics.String(), want.CID)
		}
	}
}
