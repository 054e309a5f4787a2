package pebblex

import (
	"errors"
	"os"
	"syscall"
)

// RefusedBySystem reports whether an error is what the system said of something
// that is there: a permission, a limit, a failing or full disk. What else keeps a
// store from being opened is in its bytes.
func RefusedBySystem(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok && !errors.Is(err, os.ErrNotExist)
}
