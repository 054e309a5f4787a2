package splitter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/verae/archive/internal/fault"
)

// source reads the sender's body up to a limit and says in our terms how the
// reading ended: with io.EOF only where the body itself does.
type source struct {
	ctx   context.Context // of the call this source lives in
	r     io.Reader
	left  int64
	limit error // returned once more than left bytes came
	err   error // how it ended; sticky
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil || len(p) == 0 {
		return 0, s.err
	}
	if err := s.ctx.Err(); err != nil {
		s.err = fmt.Errorf("splitter: read the request: %w", err)
		return 0, s.err
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left+1)]) // one byte over the limit tells the excess
	if s.left -= int64(n); s.left < 0 {
		s.err = s.limit
		return 0, s.err
	}
	if err != nil {
		s.err = ended(err)
	}
	return n, s.err
}

// ended classifies the error a body's reader ended with. The reader is the
// sender's connection: in whatever way it failed, the body did not arrive whole,
// and nobody else is to blame. Errors that already say what they are, and those
// of a context, are left alone.
func ended(err error) error {
	if err == io.EOF {
		return err
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("splitter: read the request: %w", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(CodeIncompleteBody, "", "the body stopped arriving before its end; send it again: %w", err)
	}
	return refuse(CodeIncompleteBody, "", "the body broke off before its end; send it again: %w", err)
}
