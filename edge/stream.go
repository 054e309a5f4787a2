package edge

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// open returns the bytes of a file, which are asked for at the first Read and
// come whole or with an error. What goes wrong is noted with the exchange.
func (s *Server) open(x *exchange, f jobs.File, tenant wire.TenantID) io.ReadCloser {
	return &download{x: x, left: f.Size, want: f.SHA256, sum: sha256.New(), open: func() (io.ReadCloser, error) {
		in, err := s.Files.ReadFile(x.r.Context(), f.ArchiveIDs, tenant, f.CID, f.Size)
		if err != nil {
			return nil, x.undelivered(err, f.AllHeard)
		}
		return in, nil
	}}
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
	return fault.New(fault.Transient, "ARCHIVES_MISSING",
		"archives: the file is stored, and none of those that answer can deliver it now: ask again").After(wait)
}

// retryFile is what a caller is told to wait for a file when no archive says.
const retryFile = 5 * time.Second

// download reads a file of known size and digest. Its last bytes come out only
// if all of them are right, so that a client with a Content-Length in hand never
// takes a wrong file for whole. The archives check as well; this check is ours.
type download struct {
	x    *exchange
	open func() (io.ReadCloser, error)
	in   io.ReadCloser // nil before the first Read
	left int64
	want wire.Digest
	sum  hash.Hash
	err  error // sticky
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
	d.sum.Write(p[:n])
	d.left -= int64(n)
	switch {
	case d.left < 0:
		return 0, damaged("an archive sent more bytes than the file %s has", d.want)
	case d.left == 0 && wire.Digest(d.sum.Sum(nil)) != d.want:
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

// stream answers with an open file, and closes it. An error that is returned
// after the answer began breaks the connection off.
func (x *exchange) stream(in io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, in.Close()) }()
	buf := make([]byte, wire.FragmentSize)
	n, err := fill(in, buf) // what fails at once can still be told in words
	if err != nil && err != io.EOF {
		return err
	}
	x.WriteHeader(http.StatusOK)
	for {
		if _, wrong := x.Write(buf[:n]); wrong != nil {
			return wrong
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		n, err = in.Read(buf)
	}
}

// fill reads until buf is full. Unlike io.ReadFull it does not change the error
// of a reader that ended, or broke off, before.
func fill(in io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = in.Read(buf[n:])
		n += m
	}
	return n, err
}
