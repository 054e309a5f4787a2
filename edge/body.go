package edge

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
)

// maxEpilogue is what may follow the part of a body that means something, in
// bytes: the line ends behind a closing delimiter, or the body that some
// clients send with a GET.
const maxEpilogue = 64 << 10

// body is the body of a request. It reads under a deadline that moves on with
// what arrives, and tells when the body grows large. One goroutine uses it.
type body struct {
	in     io.Reader
	conn   *http.ResponseController
	limits *Limits
	large  func() error // called once, when more than limits.LargeBody arrived; may refuse the rest

	got    int64
	waited time.Duration // spent in Read, so waiting for the sender
	grown  bool          // large was called
	err    error         // why reading ended; io.EOF at the end; sticky
}

// Read returns the next bytes. All errors but io.EOF are faults.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	start := time.Now()
	b.deadline(start.Add(b.patience()))
	n, err := b.in.Read(p)
	b.waited += time.Since(start)
	b.got += int64(n)
	switch {
	case err == io.EOF:
		b.err = io.EOF
		// From here on net/http reads in the background, to see the client
		// leave. A deadline that passes would look like that.
		b.deadline(time.Time{})
	case err != nil:
		b.err = brokenBody(err)
	case b.got > b.limits.LargeBody && !b.grown:
		b.grown = true
		b.err = b.large()
	}
	return n, b.err
}

// patience is how long the next bytes are waited for.
func (b *body) patience() time.Duration {
	whole := b.limits.BodyGrace + time.Duration(float64(b.got)/float64(b.limits.BodyRate)*float64(time.Second))
	return min(b.limits.BodyIdle, whole-b.waited)
}

// deadline sets the connection's read deadline. A connection that can not have
// one is closed, and the next read says so; the recorders of tests have none.
func (b *body) deadline(at time.Time) { _ = b.conn.SetReadDeadline(at) }

// rest reads what follows the end of what was meant. It returns nil once the
// body has arrived in full.
func (b *body) rest() error {
	if b.ended() {
		return nil
	}
	if _, err := io.CopyN(io.Discard, b, maxEpilogue+1); err != io.EOF {
		if err == nil {
			err = fault.New(fault.Invalid, splitter.CodeTooLarge, "more than %d bytes follow the end of what the body says, or come with a request that takes no body; leave them out", maxEpilogue)
		}
		return err
	}
	return nil
}

// ended reports whether the body has arrived in full.
func (b *body) ended() bool { return b.err == io.EOF }

// giveUp is called when the answer begins. net/http reads some of an unread
// body before it answers, for clients that listen only after they have spoken;
// it may not wait long for it.
func (b *body) giveUp() {
	if !b.ended() {
		b.deadline(time.Now().Add(b.limits.DrainTime))
	}
}

// brokenBody says in our terms how a client's body failed. The connection is
// the client's: in whatever way it broke, the body did not arrive whole.
func brokenBody(err error) error {
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.New(fault.Invalid, splitter.CodeTooLarge, "the body is longer than %d bytes", tooLong.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.Invalid, splitter.CodeIncompleteBody, "the body stopped arriving, or came too slowly; send it again")
	}
	return fault.New(fault.Invalid, splitter.CodeIncompleteBody, "the body broke off before its end; send it again: %w", err)
}
