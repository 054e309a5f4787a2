package main

import (
	"fmt"
	"os"

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
