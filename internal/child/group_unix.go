//go:build unix

package child

import (
	"os"
	"syscall"
)

// ask requests an orderly end. A child that ended meanwhile needs none.
func (p *Process) ask() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// killGroup kills p and whatever it has started in its group.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
