package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// seedAtOnce is how many files are on their way at a time; the API takes no
// more of one key.
const seedAtOnce = 4

// seeder sends the files of a directory through the API.
type seeder struct {
	client         *client.Client
	dir            string
	files          []string
	total          int64 // bytes
	stdout, stderr io.Writer
}

// seed timestamps every regular file below dir, with its bytes. With verify
// each is then looked up by its SHA-256, fetched by its CID and compared.
func seed(ctx context.Context, c *client.Client, dir string, verify bool, stdout, stderr io.Writer) error {
	files, total, err := list(dir)
	if err != nil {
		return fault.Wrap(fault.Invalid, fmt.Errorf("--seed: %w", err))
	}
	s := seeder{c, dir, files, total, stdout, stderr}
	if err := s.each(ctx, "sealed", s.sealFile); err != nil || !verify {
		return err
	}
	return s.each(ctx, "found again, byte for byte,", s.verifyFile)
}

// each runs one for every file, a few at a time, behind a progress bar, and
// says what was done. The first error ends it.
func (s *seeder) each(ctx context.Context, done string, one func(context.Context, string, *progressbar.ProgressBar) error) error {
	begin := time.Now()
	bar := progressbar.NewOptions64(s.total, progressbar.OptionSetWriter(s.stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionSetVisibility(terminal(s.stderr)), progressbar.OptionClearOnFinish())
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(seedAtOnce)
	for _, path := range s.files {
		g.Go(func() error {
			if err := one(ctx, path, bar); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := bar.Finish(); err != nil {
		return fmt.Errorf("--seed: %w", err)
	}
	_, err := fmt.Fprintf(s.stdout, "%s %d files, %d bytes, of %s in %s\n", done, len(s.files), s.total, s.dir, time.Since(begin).Round(time.Millisecond))
	return err
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// list returns the regular files below dir and the sum of their sizes.
func list(dir string) (files []string, total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files, total = append(files, path), total+info.Size()
		}
		return err
	})
	return files, total, err
}

func (s *seeder) sealFile(ctx context.Context, path string, bar *progressbar.ProgressBar) error {
	name, err := filepath.Rel(s.dir, path)
	if err != nil {
		return err
	}
	_, err = s.client.Stamp(ctx, client.Submission{Files: []client.File{{
		Name: filepath.ToSlash(name),
		Open: func() (io.ReadCloser, error) {
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			return counted{f, io.TeeReader(f, bar)}, nil
		},
	}}})
	return err
}

// verifyFile looks a file up by its own SHA-256 and compares what comes back by
// its CID.
func (s *seeder) verifyFile(ctx context.Context, path string, bar *progressbar.ProgressBar) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	want := wire.Digest(h.Sum(nil))
	job, err := s.client.Receipts(ctx, want)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(job.Files, func(f wire.FileEntry) bool { return f.SHA256 == want })
	if at < 0 || len(job.Receipts) == 0 || job.Receipts[0].Kind != wire.ReceiptSeal {
		return fault.New(fault.NotFound, "NOT_KEPT", "%s is sealed without its file", want)
	}
	body, _, err := s.client.File(ctx, job.Files[at].CID)
	if err != nil {
		return err
	}
	defer body.Close()
	h.Reset()
	got, err := io.Copy(io.MultiWriter(h, bar), body)
	if err == nil && (got != size || wire.Digest(h.Sum(nil)) != want) {
		err = fault.New(fault.Corrupt, "DIFFERENT", "%s came back as other bytes", job.Files[at].CID)
	}
	return err
}

// counted is a file whose reads move a progress bar.
type counted struct {
	io.Closer
	io.Reader
}
