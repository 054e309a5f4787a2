//go:build !unix

package child

import (
	"os"
	"os/exec"
)

// ask requests an orderly end: without signals, by the end of standard input.
func (p *Process) ask() { p.stdin.Close() }

func killGroup(p *os.Process) { _ = p.Kill() }

// tie does nothing: the child's end with the parent rests on the pipe alone.
func tie(*exec.Cmd) {}
