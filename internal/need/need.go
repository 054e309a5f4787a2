// Package need lets a test ask for what a machine with only Go does not have.
// Where it is missing the test is skipped with one line that names it, except
// under CI=true, where nothing may be skipped and the test fails.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Program skips the test unless the named program can be run, and returns its
// path.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name)
	}
	return path
}

// Missing skips the test because of what is not here.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("this test needs %s, which .ci/run must provide", what)
	}
	t.Skipf("this test needs %s", what)
}

// Rounds is how often a test that gets better with time repeats its work: few
// times in the suite, many times where VERAE_LONG=true asks for the long run
// (docs/testing.md).
func Rounds(few, many int) int {
	if os.Getenv("VERAE_LONG") == "true" {
		return many
	}
	return few
}
