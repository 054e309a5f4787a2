package pebblex

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// Forget asks the system to drop what it keeps of a file in memory, so that the
// next reads come from the disk. It is advice: a system that can not take it
// reads from memory, and what was not written yet stays.
func Forget(f vfs.File) {
	if fd := f.Fd(); fd != vfs.InvalidFd {
		_ = unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED)
	}
}
