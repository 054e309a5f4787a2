//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package edge

import (
	"errors"
	"fmt"
	"os"
)

// lockFile takes the lock at path or fails: where flock is not to be had, the
// existence of the file is the lock.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("another program is changing the keys; if none is, remove %s", path)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(f.Close(), os.Remove(path)) }, nil
}
