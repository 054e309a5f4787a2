package splitter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// Uploader opens uploads to the archives that a placement key chooses. It may
// be used by many requests at once.
type Uploader interface {
	// OpenUpload returns an upload to archives that took it. Without enough of
	// them the error is of kind Transient, code NO_ARCHIVE. The upload outlives
	// ctx: it is committed later, or aborted. p is how the archives build the
	// file's DAG; it has passed blob.Profile.Check.
	OpenUpload(ctx context.Context, key [32]byte, p blob.Profile) (Upload, error)
}

// Upload is the way of one file's bytes to its archives. One goroutine uses it.
// Every upload that was opened is ended: by a commit that names its ID, which is
// not this package's business, or by exactly one Abort. Nothing is written after
// Finish or Abort; Abort may follow Finish.
type Upload interface {
	// Write sends the next bytes, in order, and keeps nothing of p. It may wait
	// for credit, and gives up when the context of OpenUpload ends.
	io.Writer
	// ID names the upload in the commit.
	ID() string
	// Finish waits until all bytes are acknowledged as written, and returns the
	// archives that did so. Nothing is visible to anybody yet.
	Finish(ctx context.Context) ([]wire.ArchiveID, error)
	// Abort gives up the upload, wherever it stands. It does not wait.
	Abort()
}

// intake takes the files of one request: it hashes them, passes them on, and
// remembers what it opened.
type intake struct {
	to        Uploader
	opened    []Upload
	placed    bool
	placement [32]byte
	progress  func(name string, sent int64) // after every fragment of a multipart file; nil: nobody asks
	bufs      [2][]byte                     // a fragment each, made when needed, used in turn
}

// place fixes the placement key unless that has happened.
func (in *intake) place(key [32]byte) {
	if !in.placed {
		in.placed, in.placement = true, key
	}
}

// submissionKey is the placement key of a request whose subject is not known
// when its first file begins.
func submissionKey(id wire.SubmissionID) [32]byte { return sha256.Sum256([]byte(id)) }

// abort gives up every upload. It is called at most once, and not after keep.
func (in *intake) abort() {
	for _, u := range in.opened {
		u.Abort()
	}
	in.opened = nil
}

// fragment reads the next fragment of a file from r. It returns fewer bytes than
// a fragment, with last true, only when r ended; any other error of r is
// returned. Only io.EOF itself is an end: an error that merely wraps it tells of
// a cut. The bytes are good until the call after the next.
func (in *intake) fragment(r io.Reader) (p []byte, last bool, err error) {
	in.bufs[0], in.bufs[1] = in.bufs[1], in.bufs[0]
	if in.bufs[0] == nil {
		in.bufs[0] = make([]byte, wire.FragmentSize)
	}
	buf := in.bufs[0]
	for n := 0; ; {
		m, err := r.Read(buf[n:])
		n += m
		switch {
		case err == io.EOF:
			return buf[:n], true, nil
		case err != nil:
			return nil, false, err
		case n == len(buf):
			return buf, false, nil
		}
	}
}

// pass takes a file as it arrives: the fragment p is its first, the rest is read
// from r. Each byte is hashed once, on its way to the archives; while a fragment
// is hashed it is also sent, and the next one read.
func (in *intake) pass(ctx context.Context, f *File, p []byte, last bool, r io.Reader) error {
	up, err := in.open(ctx, f.Profile)
	if err != nil {
		return err
	}
	hasher := blob.NewHasher(f.Profile)
	sent := int64(0)
	for done := false; !done; {
		var hashing sync.WaitGroup
		var hashErr error
		hashing.Go(func() { _, hashErr = hasher.Write(p) })
		err := send(ctx, up, p)
		if sent += int64(len(p)); err == nil && in.progress != nil {
			in.progress(f.Name, sent)
		}
		var next []byte
		if done = last; err == nil && !last {
			next, last, err = in.fragment(r)
		}
		hashing.Wait()
		if err = cmp.Or(err, hashErr); err != nil {
			return err
		}
		p = next
	}
	f.describe(hasher.Sum())
	return f.finish(ctx, up)
}

// store sends a file that is in memory and was hashed before.
func (in *intake) store(ctx context.Context, f *File, content []byte) error {
	up, err := in.open(ctx, f.Profile)
	if err != nil {
		return err
	}
	for p := range slices.Chunk(content, wire.FragmentSize) {
		if err := send(ctx, up, p); err != nil {
			return err
		}
	}
	return f.finish(ctx, up)
}

// open opens an upload of a file at the request's placement.
func (in *intake) open(ctx context.Context, p blob.Profile) (Upload, error) {
	if in.to == nil {
		return nil, errors.New("splitter: Config.Uploader is nil and a file was sent")
	}
	up, err := in.to.OpenUpload(ctx, in.placement, p)
	if err != nil {
		return nil, fmt.Errorf("splitter: open an upload: %w", err)
	}
	in.opened = append(in.opened, up)
	return up, nil
}

// send passes one fragment to an upload.
func send(ctx context.Context, up Upload, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	err := ctx.Err()
	if err == nil {
		var n int
		if n, err = up.Write(p); err == nil && n != len(p) {
			err = io.ErrShortWrite
		}
	}
	if err != nil {
		return fmt.Errorf("splitter: write to upload %s: %w", up.ID(), err)
	}
	return nil
}

// finish completes f once all its bytes were sent.
func (f *File) finish(ctx context.Context, up Upload) (err error) {
	f.UploadID = up.ID()
	if f.Archives, err = up.Finish(ctx); err != nil {
		return fmt.Errorf("splitter: finish upload %s: %w", up.ID(), err)
	}
	return nil
}

// describe takes over what the hasher knows.
func (f *File) describe(s blob.Sums) {
	f.Size, f.SHA256, f.SHA1, f.CID, f.DAGSize = s.Size, s.SHA256, s.SHA1, s.CID, s.DAGSize
}
