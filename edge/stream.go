package edge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// streamBuffer is how much of a file is read at a time, in bytes: what travels
// from an archive in one message.
const streamBuffer = wire.FragmentSize

// openFile opens the bytes of a file and waits for the first of them, so that
// archives that can not deliver are found out before an answer has begun.
func (s *Server) openFile(ctx context.Context, f jobs.File, tenant wire.TenantID) (io.ReadCloser, error) {
	in, err := s.Files.ReadFile(ctx, f.ArchiveIDs, tenant, f.CID, f.Size)
	if err != nil {
		return nil, err
	}
	v := &verified{in: in, left: f.Size, want: f.SHA256, sum: sha256.New()}
	first := make([]byte, streamBuffer)
	n, err := io.ReadFull(v, first[:min(int64(len(first)), f.Size)])
	if err == nil && f.Size == 0 {
		_, err = v.Read(first)
	}
	if err != nil && err != io.EOF {
		return nil, errors.Join(err, in.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:n]), v), in}, nil
}

// verified reads a file of known size and digest. Its last bytes come out only
// if all of them are right, so that a client with a Content-Length in hand never
// takes a wrong file for whole. The archives check as well; this check is ours.
type verified struct {
	in   io.Reader
	left int64
	want wire.Digest
	sum  hash.Hash
	err  error // sticky
}

// Read returns the next bytes. A file that is not what it should be is Corrupt.
func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.in.Read(p)
	v.sum.Write(p[:n])
	v.left -= int64(n)
	switch {
	case v.left < 0:
		v.err = fault.New(fault.Corrupt, codeStoredBytesWrong, "edge: an archive sent more bytes than the file has")
	case v.left == 0:
		v.err = io.EOF
		if wire.Digest(v.sum.Sum(nil)) != v.want {
			v.err = fault.New(fault.Corrupt, codeStoredBytesWrong, "edge: an archive sent bytes that are not the file %s", v.want)
		}
	case err == io.EOF:
		v.err = fault.New(fault.Corrupt, codeStoredBytesWrong, "edge: an archive sent %d bytes too few of the file %s", v.left, v.want)
	default:
		v.err = err
	}
	if v.err != nil && v.err != io.EOF {
		return 0, v.err
	}
	return n, v.err
}

// stream sends what is left of an open file. An error that is returned after
// the answer began breaks the connection off.
func (x *exchange) stream(in io.ReadCloser) error {
	buf := make([]byte, streamBuffer)
	x.WriteHeader(http.StatusOK)
	var err error
	for err == nil {
		var n int
		n, err = in.Read(buf)
		if _, wrong := x.Write(buf[:n]); wrong != nil {
			err = wrong
		}
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, in.Close())
}
