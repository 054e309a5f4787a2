package main

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/need"
)

// nodeScripts are the programs of the tests here, and the packages they use.
const nodeScripts = "testdata/node"

// TestNodeTools holds our files to what IPFS tools in JavaScript make of them.
// All share one installation of packages, beside copies of the programs: the tree
// stays as it is.
func TestNodeTools(t *testing.T) {
	long(t)
	tools := installNode(t)
	t.Run("ipfs-unixfs-importer", func(t *testing.T) { importerMakesTheSameCIDs(t, tools) })
	t.Run("ipfs-unixfs-exporter", func(t *testing.T) { exporterReadsOurBlocks(t, tools) })
	t.Run("kubo-rpc-client", func(t *testing.T) { kuboClientsWork(t, tools) })
}

// node runs programs of nodeScripts.
type node struct{ program, dir string }

func installNode(t *testing.T) node {
	t.Helper()
	program, npm := need.Program(t, "node"), need.Program(t, "npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(nodeScripts)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), npm, "ci", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%v: %s", err, out)
		need.Missing(t, "the packages of harness/"+nodeScripts+", which npm could not install")
	}
	return node{program, dir}
}

// run runs a program with an input and returns the lines that it printed. What it
// says on standard error is shown.
func (n node) run(t *testing.T, input io.Reader, env []string, program string, args ...string) []string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, n.program, append([]string{program}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = n.dir, append(os.Environ(), env...), input
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if stderr.Len() > 0 {
		t.Logf("%s: %s", program, stderr.String())
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, stdout.String())
	}
	return strings.Split(strings.TrimSpace(stdout.String()), "\n")
}

// nodeFile is a file that both sides make of a seed.
type nodeFile struct {
	Seed      string `json:"seed"`
	Size      int    `json:"size"`
	ChunkSize int    `json:"chunkSize"`
	MaxLinks  int    `json:"maxLinks"`
}

// bytes are the key stream of AES-256-CTR under the SHA-256 of the seed.
func (f nodeFile) bytes(t testing.TB) io.Reader {
	t.Helper()
	key := sha256.Sum256([]byte(f.Seed))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		t.Fatal(err)
	}
	zeros := io.LimitReader(zeroReader{}, int64(f.Size))
	return cipher.StreamReader{S: cipher.NewCTR(block, make([]byte, aes.BlockSize)), R: zeros}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// importerMakesTheSameCIDs compares sizes around every boundary of trees with up
// to three levels, and random sizes and profiles. One process makes all.
func importerMakesTheSameCIDs(t *testing.T, tools node) {
	var files []nodeFile
	add := func(p blob.Profile, sizes ...int) {
		for _, size := range sizes {
			files = append(files, nodeFile{fmt.Sprint("file ", len(files)), size, p.ChunkSize, p.MaxLinks})
		}
	}
	around := func(p blob.Profile, chunks ...int) {
		for _, n := range chunks {
			add(p, n*p.ChunkSize-1, n*p.ChunkSize, n*p.ChunkSize+1)
		}
	}
	narrow := blob.Profile{ChunkSize: blob.MinChunkSize, MaxLinks: blob.MinLinks}
	for _, p := range []blob.Profile{blob.Default, blob.Legacy, narrow} {
		add(p, 0, 1)
		around(p, 1, 2)
	}
	around(narrow, narrow.MaxLinks, 2*narrow.MaxLinks, narrow.MaxLinks*narrow.MaxLinks)
	add(blob.Legacy, blob.Legacy.MaxLinks*blob.Legacy.ChunkSize, blob.Legacy.MaxLinks*blob.Legacy.ChunkSize+1)
	for range need.Rounds(20, 1000) {
		add(blob.Profile{
			ChunkSize: blob.MinChunkSize + rand.IntN(blob.MaxChunkSize-blob.MinChunkSize+1),
			MaxLinks:  blob.MinLinks + rand.IntN(blob.MaxLinks-blob.MinLinks+1),
		}, rand.IntN(4<<20))
	}

	var input bytes.Buffer
	for _, f := range files {
		if err := json.NewEncoder(&input).Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	lines := tools.run(t, &input, nil, "importer.mjs")
	if len(lines) != len(files) {
		t.Fatalf("%d files, %d lines", len(files), len(lines))
	}
	for i, f := range files {
		sums, err := blob.SumReader(f.bytes(t), blob.Profile{ChunkSize: f.ChunkSize, MaxLinks: f.MaxLinks})
		if want := fmt.Sprintf("%s %d", sums.CID, sums.DAGSize); err != nil || lines[i] != want {
			t.Errorf("%+v: we say %s, they say %s, %v", f, want, lines[i], err)
		}
	}
}
