//go:build !linux

package pebblex

import "github.com/cockroachdb/pebble/v2/vfs"

// Forget asks the system to drop what it keeps of a file in memory, so that the
// next reads come from the disk. On this system there is no way to ask.
func Forget(vfs.File) {}
