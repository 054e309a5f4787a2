package main

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

type blobPut struct {
	profileFlags
	Seal  bool     `help:"Also seal the files, as verae put does."`
	Files []string `arg:"" name:"file" help:"Files to store."`
}

// putLine is what became of a file.
type putLine struct {
	cidLine
	Job *wire.Job `json:"job,omitempty"` // of a file that is sealed
}

// Run stores the files, one after the other. A CID that is not that of the bytes
// which were sent is a failure.
func (c *blobPut) Run(s *session) error {
	p, err := c.profile()
	if err != nil {
		return err
	}
	return s.each(c.Files, func(path string) error {
		hash := blob.NewHasher(p)
		added, err := s.client.Add(s.ctx, client.File{Name: filepath.Base(path), Open: func() (io.ReadCloser, error) {
			in, err := s.progress(path)
			if err != nil {
				return nil, err
			}
			return reader{io.TeeReader(in, hash), in}, nil
		}}, client.AddOptions{ChunkSize: p.ChunkSize, MaxLinks: p.MaxLinks, Seal: c.Seal})
		if err != nil {
			return err
		}
		sums := hash.Sum()
		if sums.CID != added.CID {
			return fault.New(fault.Corrupt, "CID_MISMATCH", "the server says that the file has the CID %q; the bytes that were sent have %s", added.CID, sums.CID)
		}
		return s.added(putLine{cidLine: newCIDLine(path, sums, p)}, added.Accepted)
	})
}

// added prints what became of a file, once its seal is there.
func (s *session) added(line putLine, accepted *wire.Accepted) error {
	if accepted == nil {
		return s.print(line, func() { s.line(line.CID, line.Name) })
	}
	outcome, err := s.client.Job(s.ctx, *accepted, true)
	if err != nil {
		return err
	}
	if line.Job = outcome.Job; line.Job == nil || line.Job.Status == wire.StatusPending {
		line.Job = &wire.Job{JobID: accepted.JobID, Status: wire.StatusPending, SHA256: line.SHA256}
	}
	if err := s.print(line, func() {
		s.line(line.CID, line.Name)
		s.job(line.Name, line.Job)
	}); err != nil {
		return err
	}
	switch line.Job.Status {
	case wire.StatusPending:
		return &serve.ExitError{Code: serve.ExitPending, Err: errors.New("stored and safe, but not sealed yet: look it up later")}
	case wire.StatusFailed:
		return errors.New("the job failed: " + line.Job.Reason)
	}
	return nil
}
