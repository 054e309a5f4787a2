package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
)

// seedAtOnce is how many files are on their way at a time; the API takes no
// more of one key.
const seedAtOnce = 4

// seed timestamps every regular file below dir, with its bytes.
func seed(ctx context.Context, c *client.Client, dir string, stdout, stderr io.Writer) error {
	files, total, err := list(dir)
	if err != nil {
		return fault.Wrap(fault.Invalid, fmt.Errorf("--seed: %w", err))
	}
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription("sealing"), progressbar.OptionSetVisibility(terminal(stderr)), progressbar.OptionClearOnFinish())
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(seedAtOnce)
	for _, path := range files {
		g.Go(func() error {
			if err := sealFile(ctx, c, dir, path, bar); err != nil {
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
	_, err = fmt.Fprintf(stdout, "\nsealed %d files, %d bytes, of %s\n", len(files), total, dir)
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

func sealFile(ctx context.Context, c *client.Client, dir, path string, bar *progressbar.ProgressBar) error {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	_, err = c.Stamp(ctx, client.Submission{Files: []client.File{{
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

// counted is a file whose reads move a progress bar.
type counted struct {
	io.Closer
	io.Reader
}
