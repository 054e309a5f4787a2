package child

import "io"

// EnvFollowParent is the environment variable by which a [Spawner] tells its
// children that their standard input is the parent's pipe. Its value is "stdin".
const EnvFollowParent = "VERAE_FOLLOW_PARENT"

// FollowParent calls gone, in a goroutine of its own, when the parent has
// ended: when stdin, this program's standard input, reaches end of file. It
// does so only if the environment says that stdin is the parent's pipe, and
// reports whether it does; a program that somebody started by hand with
// standard input closed keeps running.
func FollowParent(getenv func(string) string, stdin io.Reader, gone func()) bool {
	if getenv(EnvFollowParent) != "stdin" {
		return false
	}
	go func() {
		// A pipe that can not be read has no parent behind it either.
		_, _ = io.Copy(io.Discard, stdin)
		gone()
	}()
	return true
}
