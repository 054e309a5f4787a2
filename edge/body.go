package edge

import (
	"io"
	"net/http"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
)

// maxIgnored bounds the body that some clients send with a GET, in bytes. It
// means nothing (RFC 9110, section 9.3.1).
const maxIgnored = 64 << 10

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
	whole  bool          // all of it has arrived
	err    error         // why reading ended; io.EOF at the end; sticky
}

// Read returns the next bytes. Its errors are those of the connection, but for
// a refusal of large.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	start := time.Now()
	b.deadline(start.Add(b.patience()))
	n, err := b.in.Read(p)
	b.waited += time.Since(start)
	b.got += int64(n)
	// At the end of the body net/http clears the deadline, and reads on in the
	// background to see the client leave.
	b.whole, b.err = err == io.EOF, err
	if b.got > b.limits.LargeBody && !b.grown {
		b.grown = true
		if err := b.large(); err != nil {
			b.err = err
		}
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

// ignore reads past the body of a request that takes none.
func (b *body) ignore() error {
	if b.whole {
		return nil
	}
	switch _, err := io.CopyN(io.Discard, b, maxIgnored+1); {
	case err == nil:
		return fault.New(fault.Invalid, splitter.CodeTooLarge, "this request takes no body, and came with more than %d bytes; leave them out", maxIgnored)
	case err != io.EOF:
		return fault.New(fault.Invalid, splitter.CodeIncompleteBody, "the body did not arrive whole: %w", err)
	}
	return nil
}

// giveUp is called when the answer begins. net/http reads some of an unread
// body before it answers, for clients that listen only after they have spoken;
// it may not wait long for it.
func (b *body) giveUp() {
	if !b.whole {
		b.deadline(time.Now().Add(b.limits.DrainTime))
	}
}
