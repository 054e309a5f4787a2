package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

type lookupCmd struct {
	Subject string `arg:"" name:"file|sha256" help:"A file, whose SHA-256 is looked up, or a SHA-256 in any published form."`
}

// Run prints the receipts of the subject.
func (c *lookupCmd) Run(s *session) error {
	digest, err := subject(c.Subject)
	if err != nil {
		return err
	}
	job, err := s.client.Receipts(s.ctx, digest)
	if err != nil {
		return err
	}
	return s.print(job, func() { s.job(c.Subject, &job) })
}

// subject is the digest of a file if there is one of that name, else the digest
// that the text is.
func subject(text string) (wire.Digest, error) {
	info, err := os.Stat(text)
	if err == nil && info.Mode().IsRegular() {
		return hashFile(text)
	}
	digest, parseErr := wire.ParseDigest(text)
	if parseErr != nil {
		return digest, fault.Wrap(fault.Invalid, fmt.Errorf("%q is no file here, and no SHA-256: %w", text, parseErr))
	}
	return digest, nil
}

type getCmd struct {
	CID    string `arg:"" name:"cid" help:"CID of the file."`
	Output string `short:"o" type:"path" help:"Where to write it; default: standard output." placeholder:"FILE"`
}

// Run fetches a file and computes its CID: the server is not believed. With
// --output the file appears only when all of it is here and is what the CID
// says; on standard output the exit code tells.
func (c *getCmd) Run(s *session) error {
	want, err := blob.ParseAnyCID(c.CID)
	if err != nil {
		return err
	}
	body, size, err := s.client.File(s.ctx, want.String())
	if err != nil {
		return err
	}
	defer body.Close()
	if c.Output == "" {
		return c.copy(s.stdout, body, size, want)
	}
	temp, err := os.CreateTemp(filepath.Dir(c.Output), ".verae-get-*")
	if err != nil {
		return fault.Wrap(fault.Invalid, fmt.Errorf("--output: %w", err))
	}
	defer os.Remove(temp.Name()) // gone already when all went well
	if err := errors.Join(c.copy(io.MultiWriter(temp, s.bar(c.CID, size)), body, size, want), temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), c.Output); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// copy copies the whole file that want names, or fails.
func (c *getCmd) copy(to io.Writer, body io.Reader, size int64, want blob.CID) error {
	hash := blob.NewHasher(blob.Default)
	n, err := io.Copy(io.MultiWriter(to, hash), body)
	if err == nil && size >= 0 && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fault.New(fault.Transient, "BROKEN_OFF", "after %d of %d bytes: %w", n, size, err)
	}
	if got := hash.Sum().CID; got != want.String() {
		return fault.New(fault.Corrupt, "CID_MISMATCH", "the bytes that came have the CID %s, not %s", got, want)
	}
	return nil
}
