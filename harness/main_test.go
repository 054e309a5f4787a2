package main

import (
	"os"
	"testing"

	"github.com/verae/archive/harness/world"
)

// harnessCommand makes the test binary be the harness itself.
const harnessCommand = "harness-main"

func TestMain(m *testing.M) {
	if code, is := world.Child(os.Args); is {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == harnessCommand {
		os.Exit(run(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// long leaves a test out of a short run, as is the one with the race detector:
// each of its processes then takes seconds to start.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test takes long")
	}
}
