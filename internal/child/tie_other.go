//go:build !linux

package child

// FollowGoRun does nothing on this system and returns false.
func FollowGoRun() bool { return false }
