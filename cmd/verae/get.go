package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

type getCmd struct {
	CID          string `arg:"" name:"cid" help:"CID of the file."`
	Output       string `short:"o" type:"path" help:"Where to write it, in place of what is there; - or nothing: standard output." placeholder:"FILE"`
	AcceptDigest bool   `help:"Also take a file of a layout that is unknown here, whose CID can not be computed, if it has the SHA-256 that the server names."`
}

// gotLine is what is said of a file that was fetched.
type gotLine struct {
	CID     string      `json:"cid"`
	Size    int64       `json:"size"`
	SHA256  wire.Digest `json:"sha256"`
	Name    string      `json:"name"`
	Checked string      `json:"checked"` // cid, or digest: only that the server names
}

// Run fetches a file and computes its CID: the server is not believed. With
// --output the file appears only when all of it is here and is what the CID
// says; on standard output the exit code tells.
func (c *getCmd) Run(s *session) error {
	want, err := blob.ParseAnyCID(c.CID)
	if err != nil {
		return err
	}
	if info, err := os.Stat(c.Output); err == nil && info.IsDir() { // before all of it was fetched
		return fault.New(fault.Invalid, "", "--output: %s is a directory: name a file in it", c.Output)
	}
	d, err := s.client.Download(s.ctx, want.String())
	if err != nil {
		return err
	}
	defer d.Close()
	if c.Output == "" || c.Output == "-" {
		_, err := c.copy(s, s.stdout, d, want)
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(c.Output), ".verae-get-*")
	if err != nil {
		return fault.Wrap(fault.Invalid, fmt.Errorf("--output: %w", err))
	}
	defer os.Remove(temp.Name()) // gone already when all went well
	got, err := c.copy(s, io.MultiWriter(temp, s.bar(c.CID, d.Size)), d, want)
	if err == nil {
		err = temp.Sync() // before it has its name
	}
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), c.Output); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return s.print(got, func() {})
}

// copy copies the whole file that want names, or fails.
func (c *getCmd) copy(s *session, to io.Writer, d *client.Download, want blob.CID) (*gotLine, error) {
	profile, unknown := blob.ProfileOf(want, func(cid blob.CID) ([]byte, error) { return s.client.Block(s.ctx, cid.String()) })
	if unknown != nil {
		profile = blob.Default // what is not known may be this
	}
	hash := blob.NewHasher(profile)
	if _, err := io.Copy(io.MultiWriter(to, hash), d); err != nil {
		return nil, err
	}
	sums := hash.Sum()
	got := &gotLine{CID: want.String(), Size: sums.Size, SHA256: sums.SHA256, Name: c.Output, Checked: "cid"}
	switch {
	case sums.CID == want.String():
		return got, nil
	case unknown == nil:
		return nil, fault.New(fault.Corrupt, "CID_MISMATCH", "the bytes that came have the CID %s, not %s", sums.CID, want)
	case d.SHA256.IsZero():
		return nil, fault.New(fault.Corrupt, "CID_UNCHECKED", "the bytes that came could not be checked: the server names no SHA-256, and in which layout they have the CID %s is unknown: %w", want, unknown)
	case sums.SHA256 != d.SHA256:
		return nil, fault.New(fault.Corrupt, "DIGEST_MISMATCH", "the bytes that came have the SHA-256 %x, and the server itself names %s", sums.SHA256, d.SHA256)
	case !c.AcceptDigest:
		return nil, fault.New(fault.Corrupt, "CID_UNCHECKED", "the bytes that came have the SHA-256 that the server names, but whether they are those of %s is unknown: %w; --accept-digest takes them all the same", want, unknown)
	}
	fmt.Fprintf(s.stderr, "verae: %s: in which layout the file has this CID is unknown: checked was only that it has the SHA-256 that the server names\n", want)
	got.Checked = "digest"
	return got, nil
}
