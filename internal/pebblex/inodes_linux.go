package pebblex

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// inodesOf returns how many files the file system of an open directory has room
// for, and had when it was empty; zero if it does not tell, or has no such bound.
func inodesOf(dir vfs.File) (free, total uint64) {
	var st syscall.Statfs_t
	if fd := dir.Fd(); fd == vfs.InvalidFd || syscall.Fstatfs(int(fd), &st) != nil {
		return 0, 0
	}
	return st.Ffree, st.Files
}
