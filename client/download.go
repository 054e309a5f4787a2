package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// CodeBrokenOff is the code of a download that ended early.
const CodeBrokenOff = "BROKEN_OFF"

// maxBlock bounds a block, in bytes; those of files here are of 1 MiB at most.
const maxBlock = 2 << 20

// A Download goes on where it was when its connection breaks, maxTries times
// without a byte in between. The first pause is firstPause, each further one twice
// as long.
const (
	maxTries   = 5
	firstPause = 100 * time.Millisecond
)

// Download is a file on its way here, read through Read. It is for one goroutine
// at a time and must be closed.
type Download struct {
	Size   int64       // of the file in bytes; -1 if the server did not say
	SHA256 wire.Digest // of the file, as the server says; zero if it did not

	open  func(from int64, etag string) (*http.Response, error)
	pause func(time.Duration) error
	body  io.ReadCloser // nil while the connection is broken
	etag  string        // of the file, if it is a strong one
	at    int64         // bytes read
	tries int           // since the last byte
	err   error         // sticky
}

// Download opens a file by its CID. What the server refuses is its error, as of
// all other calls. Reads fail with a fault of code BROKEN_OFF when the connection
// broke for good; what was read until then is not the file.
func (c *Client) Download(ctx context.Context, cid string) (*Download, error) {
	d := &Download{open: func(from int64, etag string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base()+"/ipfs/"+url.PathEscape(cid), nil)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, fmt.Errorf("client: %w", err))
		}
		if from > 0 {
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
			if etag != "" {
				req.Header.Set("If-Range", etag)
			}
		}
		return c.do(req)
	}, pause: func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}}
	resp, err := d.open(0, "")
	if err != nil {
		return nil, err
	}
	d.body, d.Size, d.SHA256 = resp.Body, resp.ContentLength, reprDigest(resp.Header)
	if etag := resp.Header.Get("ETag"); strings.HasPrefix(etag, `"`) {
		d.etag = etag
	}
	return d, nil
}

// Read returns the next bytes of the file.
func (d *Download) Read(p []byte) (n int, err error) {
	for n == 0 && d.err == nil && len(p) > 0 {
		if d.body == nil {
			d.err = d.reopen()
			continue
		}
		n, err = d.body.Read(p)
		d.at += int64(n)
		if n > 0 {
			d.tries = 0
		}
		switch {
		case err == nil:
		case err == io.EOF && (d.Size < 0 || d.at == d.Size):
			d.err = io.EOF
		case d.Size >= 0 && d.at > d.Size:
			d.err = fault.New(fault.Corrupt, "", "client: the server sent more than the %d bytes that it said", d.Size)
		default:
			d.err = d.broken(err)
		}
	}
	return n, d.err
}

// broken notes that the connection broke, and waits before the next try. It fails
// when there were enough of them.
func (d *Download) broken(why error) error {
	if d.body != nil {
		why = errors.Join(why, d.body.Close())
		d.body = nil
	}
	if d.tries == maxTries {
		return fault.New(fault.Transient, CodeBrokenOff, "client: after %d of %d bytes: %w", d.at, d.Size, why)
	}
	wait := max(firstPause<<d.tries, fault.RetryAfter(why))
	d.tries++
	return d.pause(wait)
}

// reopen asks for the rest of the file. A server that sends all of it anew has
// what is here already passed over: it is checked as a whole, once it is complete.
func (d *Download) reopen() error {
	resp, err := d.open(d.at, d.etag)
	if fault.Is(err, fault.Transient) {
		return d.broken(err)
	}
	if err != nil {
		return err
	}
	d.body = resp.Body
	if resp.StatusCode != http.StatusPartialContent {
		if _, err := io.CopyN(io.Discard, d.body, d.at); err != nil {
			return d.broken(err)
		}
		return nil
	}
	if got, want := resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.at); !strings.HasPrefix(got, want) {
		return fmt.Errorf("client: the server sent the range %q instead of %q", got, want)
	}
	return nil
}

// Close lets go of the connection.
func (d *Download) Close() error {
	if d.body == nil {
		return nil
	}
	return d.body.Close()
}

// reprDigest is the SHA-256 of a header Repr-Digest (RFC 9530), or zero.
func reprDigest(h http.Header) (d wire.Digest) {
	for member := range strings.SplitSeq(strings.Join(h.Values("Repr-Digest"), ","), ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(member), "sha-256=:")
		sum, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, ":"))
		if ok && err == nil && len(sum) == len(d) {
			copy(d[:], sum)
		}
	}
	return d
}

// Block returns the bytes of one block by its CID, as the server sent them: they
// are to be checked.
func (c *Client) Block(ctx context.Context, cid string) ([]byte, error) {
	resp, err := c.get(ctx, "/ipfs/"+url.PathEscape(cid)+"?format=raw")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBlock+1))
	if err != nil {
		return nil, fault.New(fault.Transient, CodeUnreachable, "client: %w", err)
	}
	if len(data) > maxBlock {
		return nil, fmt.Errorf("client: the block %s is longer than %d bytes", cid, maxBlock)
	}
	return data, nil
}
