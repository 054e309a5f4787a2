//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package edge

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits until no other process holds the lock at path. The file stays
// behind, empty: removing it would let two processes lock two files.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil // closing lets go of the lock
}
