//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// tie puts the child into a process group of its own. Its end with the parent
// rests on the pipe alone here.
func tie(cmd *exec.Cmd) {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Setpgid = true
	cmd.SysProcAttr = &attr
}
