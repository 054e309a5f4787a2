package main

import (
	"errors"
	"os/exec"
	"strconv"
)

// exitCode is the exit code that a command's error tells.
func exitCode(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return strconv.Itoa(e.ExitCode())
	}
	return err.Error()
}
