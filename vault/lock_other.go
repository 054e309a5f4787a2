//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package vault

import "os"

// lock does nothing on this system. Two processes on one directory still never
// overwrite each other's keys: files are only ever linked into place.
func lock(dir string) (unlock func() error, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}
