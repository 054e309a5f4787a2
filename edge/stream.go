package edge

import (
	"cmp"
	"crypto/sha256"
	"hash"
	"io"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// fileOf is a file as the gateway sends it. Its bytes are asked for at the first
// Read. What goes wrong is noted with the exchange.
func (s *Server) fileOf(x *exchange, f jobs.File, tenant wire.TenantID) blob.File {
	out := blob.File{Size: f.Size, SHA256: f.SHA256, ContentType: f.ContentType, Name: f.Name, Public: f.Public}
	ctx := x.r.Context()
	out.Open = x.opener(out, func(off, length int64) (io.ReadCloser, error) {
		in, err := s.Files.ReadFile(ctx, f.ArchiveIDs, tenant, f.CID, off, length)
		if err != nil && f.Again != nil { // archives that were not waited for may have it
			if all, lookErr := f.Again(ctx); lookErr == nil && all.SHA256 == f.SHA256 {
				f = all
				in, err = s.Files.ReadFile(ctx, f.ArchiveIDs, tenant, f.CID, off, length)
			}
		}
		if err != nil {
			return nil, x.undelivered(err, f.AllHeard)
		}
		return in, nil
	})
	return out
}

// opener makes what opens a file, or a block, out of what reads it from archives.
func (x *exchange) opener(f blob.File, read func(off, length int64) (io.ReadCloser, error)) func(off, length int64) (io.ReadCloser, error) {
	return func(off, length int64) (io.ReadCloser, error) {
		d := &download{x: x, left: length, want: f.SHA256}
		if length == f.Size {
			d.sum = sha256.New()
		}
		d.open = func() (io.ReadCloser, error) { return read(off, length) }
		return d, nil
	}
}

// undelivered is what a caller is told when no archive gave a byte of a file
// that is his, whatever their reasons, which are for the log: a record of it was
// found, so that it is never "not there", and it may be had when others are back.
// It is called lost only when all were heard: a silent one may have the bytes.
func (x *exchange) undelivered(err error, allHeard bool) error {
	wait := cmp.Or(fault.RetryAfter(err), retryFile)
	x.note(fault.New(fault.KindOf(err), fault.CodeOf(err), "edge: no archive delivers the file: %w", err).After(wait))
	if allHeard && fault.CodeOf(err) == codeFileLost {
		return fault.New(fault.Transient, codeFileLost,
			"archives: the file was stored, every archive was heard, and those that had it have lost its bytes: whoever has the bytes can send them again").After(wait)
	}
	return fault.New(fault.Transient, codeArchivesMissing,
		"archives: the file is stored, and none of those that answer can deliver it now: ask again").After(wait)
}

// retryFile is what a caller is told to wait for a file when no archive says.
const retryFile = 5 * time.Second

// download reads a file of known size and digest, or a part of one. The last bytes
// of a whole file come out only if all of them are right, so that a client with a
// Content-Length in hand never takes a wrong file for whole. The archives check
// every block as well; this check is ours, and of a part there is none but theirs
// and that of its length.
type download struct {
	x    *exchange
	open func() (io.ReadCloser, error)
	in   io.ReadCloser // nil before the first Read
	left int64
	want wire.Digest // of the whole file
	sum  hash.Hash   // nil for a part
	err  error       // sticky
}

// Read returns the next bytes. A file that is not what it should be is Corrupt.
func (d *download) Read(p []byte) (n int, err error) {
	if d.err == nil && d.in == nil {
		d.in, d.err = d.open()
	}
	if d.err == nil {
		n, d.err = d.next(p)
	}
	if d.err != nil && d.err != io.EOF {
		d.x.note(d.err)
	}
	return n, d.err
}

// next reads from the archive, and checks.
func (d *download) next(p []byte) (int, error) {
	n, err := d.in.Read(p)
	if d.sum != nil {
		d.sum.Write(p[:n])
	}
	d.left -= int64(n)
	switch {
	case d.left < 0:
		return 0, damaged("an archive sent more bytes than the file %s has", d.want)
	case d.left == 0 && d.sum != nil && wire.Digest(d.sum.Sum(nil)) != d.want:
		return 0, damaged("an archive sent bytes that are not the file %s", d.want)
	case err == io.EOF && d.left > 0:
		return 0, damaged("an archive sent %d bytes too few of the file %s", d.left, d.want)
	case err != nil && err != io.EOF && d.left > 0:
		return 0, err
	}
	return n, err
}

func damaged(format string, args ...any) error {
	return fault.New(fault.Corrupt, "FILE_DAMAGED", "edge: "+format, args...)
}

// Close lets go of the archive.
func (d *download) Close() error {
	if d.in == nil {
		return nil
	}
	err := d.in.Close()
	if err != nil {
		d.x.note(err)
	}
	return err
}
