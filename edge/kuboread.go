package edge

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
)

const typeRaw = "application/vnd.ipld.raw"

// postCat answers with a file, or a part of it, as Kubo's cat does. It is found
// and checked as at /ipfs/{cid}.
func (s *Server) postCat(x *exchange) error {
	q, err := x.query()
	if err != nil {
		return err
	}
	c, err := cidAsked(q, "ipfs-path")
	if err != nil {
		return err
	}
	off, err := q.amount("offset", 0)
	if err != nil {
		return err
	}
	length, err := q.amount("length", -1)
	if err != nil {
		return err
	}
	f, err := source{s}.File(x.asked(), c)
	if err != nil {
		return hidden(c, err)
	}
	off = min(off, f.Size)
	if rest := f.Size - off; length < 0 || length > rest {
		length = rest
	}
	return x.sendSection(f, "text/plain", off, length)
}

// postBlockGet answers with a block, as Kubo's block/get does.
func (s *Server) postBlockGet(x *exchange) error {
	q, err := x.query()
	if err != nil {
		return err
	}
	c, err := cidAsked(q, "cid")
	if err != nil {
		return err
	}
	f, err := source{s}.Block(x.asked(), c.Digest)
	if err != nil {
		return hidden(c, err)
	}
	return x.sendSection(f, typeRaw, 0, f.Size)
}

// cidAsked reads the one argument of a command, in whatever spelling.
func cidAsked(q params, name string) (blob.CID, error) {
	text, err := q.text("arg")
	if err != nil {
		return blob.CID{}, err
	}
	if text == "" {
		return blob.CID{}, fault.New(fault.Invalid, codeBadParameter, "argument %q is required", name).InField("arg")
	}
	return blob.ParseAnyCID(text)
}

// amount returns a number of bytes, or other if it is not given.
func (p params) amount(name string, other int64) (int64, error) {
	text, err := p.text(name)
	if err != nil || len(p[name]) == 0 {
		return other, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badParameter(name, "it must be a number of bytes, 0 or more")
	}
	return n, nil
}

// asked is the context in which the gateway's source knows who asks.
func (x *exchange) asked() context.Context {
	return context.WithValue(x.r.Context(), exchangeKey{}, x)
}

// hidden makes one error of what is not there and what is not the caller's.
func hidden(c blob.CID, err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return fault.New(fault.NotFound, blob.CodeUnknownCID, "nothing is here for you under %s: check the CID, and that the file was shared with your tenant", c)
	}
	return err
}

// sendSection sends a part of a file in Kubo's way, but with its length, and with
// a broken connection where it can not be sent whole. What fails at once is told
// in words.
func (x *exchange) sendSection(f blob.File, contentType string, off, length int64) error {
	var body io.ReadCloser = http.NoBody
	if length > 0 {
		var err error
		if body, err = f.Open(off, length); err != nil {
			return err
		}
	}
	defer func() {
		if err := body.Close(); err != nil {
			x.note(err)
		}
	}()
	buf := make([]byte, writeChunk)
	n, err := fill(body, buf)
	if err != nil && err != io.EOF {
		return err
	}
	h := x.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	h.Set("X-Content-Length", strconv.FormatInt(length, 10))
	h.Set("X-Stream-Output", "1")
	x.WriteHeader(http.StatusOK)
	for {
		if _, wrong := x.Write(buf[:n]); wrong != nil {
			return wrong
		}
		if err != nil {
			return ended(err)
		}
		n, err = body.Read(buf)
	}
}

// ended is the error of a file that was sent to its end, or not.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
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
