package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// blobCmd works with files by their CID alone, as IPFS tools do.
type blobCmd struct {
	Put blobPut `cmd:"" help:"Store files and print their CIDs, without sealing them unless told to."`
	Get getCmd  `cmd:"" help:"Fetch a stored file by its CID; the same as verae get."`
	Cid blobCid `cmd:"" help:"Compute the CID that files have, here and without a server: what ipfs add says, with --cid-version=1 --raw-leaves and the same chunker and links."`
}

// profileFlags choose how a file is cut into blocks, in the words of Kubo's add.
type profileFlags struct {
	Chunker      string `placeholder:"size-N" help:"Bytes in a block. One that is named means 174 links, as it does for Kubo; default: 1 MiB and 1024 links."`
	MaxFileLinks int    `placeholder:"N" help:"Links in an inner block."`
}

// profile is what the flags say.
func (f *profileFlags) profile() (blob.Profile, error) {
	p := blob.Default
	if f.Chunker != "" {
		size, ok := strings.CutPrefix(f.Chunker, "size-")
		n, err := strconv.Atoi(size)
		if !ok || err != nil {
			return p, fault.New(fault.Invalid, blob.CodeBadProfile, "--chunker: %q is no chunker that is known here: write size-%d", f.Chunker, blob.Legacy.ChunkSize)
		}
		p = blob.Profile{ChunkSize: n, MaxLinks: blob.Legacy.MaxLinks}
	}
	if f.MaxFileLinks != 0 {
		p.MaxLinks = f.MaxFileLinks
	}
	return p, p.Check()
}

type blobCid struct {
	profileFlags
	Files []string `arg:"" name:"file|-" help:"Files, or - for standard input."`
}

// cidLine is what is known of a file by its bytes.
type cidLine struct {
	Name      string      `json:"name"`
	CID       string      `json:"cid"`
	Size      int64       `json:"size"`
	DAGSize   int64       `json:"dagSize"` // what ipfs add calls Size
	SHA256    wire.Digest `json:"sha256"`
	SHA1      string      `json:"sha1"`
	ChunkSize int         `json:"chunkSize"`
	MaxLinks  int         `json:"maxLinks"`
}

func newCIDLine(path string, sums blob.Sums, p blob.Profile) cidLine {
	return cidLine{
		Name: path, CID: sums.CID, Size: sums.Size, DAGSize: sums.DAGSize,
		SHA256: sums.SHA256, SHA1: fmt.Sprintf("%x", sums.SHA1), ChunkSize: p.ChunkSize, MaxLinks: p.MaxLinks,
	}
}

// Run prints the CIDs, a line each.
func (c *blobCid) Run(s *session) error {
	p, err := c.profile()
	if err != nil {
		return err
	}
	return s.each(c.Files, func(path string) error {
		sums, err := s.sums(path, p)
		if err != nil {
			return err
		}
		return s.print(newCIDLine(path, sums, p), func() { s.line(sums.CID, path) })
	})
}

// sums reads a file, or standard input for "-".
func (s *session) sums(path string, p blob.Profile) (blob.Sums, error) {
	if path == "-" {
		return blob.SumReader(io.TeeReader(s.stdin, s.bar("standard input", -1)), p)
	}
	f, err := s.progress(path)
	if err != nil {
		return blob.Sums{}, err
	}
	defer f.Close()
	return blob.SumReader(f, p)
}
