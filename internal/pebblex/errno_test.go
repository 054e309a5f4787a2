package pebblex_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/verae/archive/internal/pebblex"
)

func TestSystemOrBytes(t *testing.T) {
	for _, c := range []struct {
		err    error
		system bool
	}{
		{nil, false},
		{errors.New("bad magic"), false},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, false},
		{fmt.Errorf("open: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}), true},
		{errors.Join(errors.New("close"), syscall.EIO), true},
		{syscall.ENOSPC, true},
	} {
		if got := pebblex.RefusedBySystem(c.err); got != c.system {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
