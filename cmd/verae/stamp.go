package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// attachments are the flags of what travels with a subject.
type attachments struct {
	PublicMetadata  string `help:"JSON object to attach in clear, or @FILE." placeholder:"JSON"`
	PrivateMetadata string `help:"JSON object to attach, encrypted to your tenant; @FILE keeps it out of the process list." placeholder:"JSON"`
	IncludeAttached bool   `negatable:"" help:"Also show what is attached already."`
}

func (a attachments) fill(s *client.Submission) (err error) {
	if s.PublicMetadata, err = textOrFile("--public-metadata", a.PublicMetadata); err != nil {
		return err
	}
	s.PrivateMetadata, err = textOrFile("--private-metadata", a.PrivateMetadata)
	s.IncludeAttached = a.IncludeAttached
	return err
}

// textOrFile returns nil for an empty value.
func textOrFile(flag, value string) ([]byte, error) {
	switch {
	case value == "":
		return nil, nil
	case value[0] != '@':
		return []byte(value), nil
	}
	data, err := os.ReadFile(value[1:])
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("%s: %w", flag, err))
	}
	return data, nil
}

type stampCmd struct {
	attachments
	Files []string `arg:"" name:"file" help:"Files to seal."`
}

// Run seals the digests of the files, one after the other.
func (c *stampCmd) Run(s *session) error {
	return s.each(c.Files, func(path string) error {
		digest, err := hashFile(path)
		if err != nil {
			return err
		}
		sub := client.Submission{SHA256: digest}
		if err := c.fill(&sub); err != nil {
			return err
		}
		return s.stamp(path, sub)
	})
}

type putCmd struct {
	attachments
	Public bool     `help:"Everybody with the CID may read the files."`
	Files  []string `arg:"" name:"file" help:"Files to seal and store."`
}

// Run seals and stores the files, one after the other.
func (c *putCmd) Run(s *session) error {
	return s.each(c.Files, func(path string) error {
		sub := client.Submission{Public: c.Public, Files: []client.File{{
			Name: filepath.Base(path),
			Open: func() (io.ReadCloser, error) { return s.progress(path) },
		}}}
		if err := c.fill(&sub); err != nil {
			return err
		}
		sub.IncludeAttached = true // the CID is among what is attached
		return s.stamp(path, sub)
	})
}

// each runs one for every path and goes on after a failure; the error is all of
// them, the exit code the first one's.
func (s *session) each(paths []string, one func(path string) error) error {
	var all []error
	for _, path := range paths {
		if err := s.ctx.Err(); err != nil {
			return errors.Join(append(all, err)...)
		}
		if err := one(path); err != nil {
			all = append(all, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(all...)
}

// stamp submits and prints the outcome. A job that is not done yet is exit code
// 4, one that failed exit code 1.
func (s *session) stamp(path string, sub client.Submission) error {
	outcome, err := s.client.Stamp(s.ctx, sub)
	if err != nil {
		return err
	}
	if outcome.Job == nil {
		a := outcome.Accepted
		if err := s.print(a, func() { s.line("pending", a.SHA256, path, "job "+string(a.JobID)) }); err != nil {
			return err
		}
		return &serve.ExitError{Code: serve.ExitPending, Err: errors.New("accepted and safe, but not sealed yet: look it up later")}
	}
	job := outcome.Job
	if err := s.print(job, func() { s.job(path, job) }); err != nil {
		return err
	}
	if job.Status == wire.StatusFailed {
		return fmt.Errorf("the job failed: %s", job.Reason)
	}
	return nil
}

// hashFile returns the SHA-256 of a file.
func hashFile(path string) (d wire.Digest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, fault.Wrap(fault.Invalid, err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return d, err
	}
	h.Sum(d[:0])
	return d, nil
}
