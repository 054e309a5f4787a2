package child

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// tie makes the kernel kill the child when the thread that starts it ends, and
// puts it into a process group of its own. PDEATHSIG is not inherited: every
// level sets its own.
func tie(cmd *exec.Cmd) {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Setpgid = true
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attr
}

// FollowGoRun makes this process get SIGTERM when the "go run" that started it
// is killed; without it the program would stay behind. It does nothing, and
// returns false, if the parent is not the go command.
func FollowGoRun() bool {
	parent := os.Getppid()
	if !isGo(parent) {
		return false
	}
	set := make(chan bool)
	go func() {
		// The signal is bound to the thread that asks for it: this one stays.
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0)
		set <- err == nil
		if err == nil {
			select {}
		}
	}()
	ok := <-set
	if ok && os.Getppid() != parent {
		// It was killed before the signal was set.
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}
	return ok
}

func isGo(pid int) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && goName(exe)
}

// goName reports whether exe is the go command, also if its file was replaced
// since it was started.
func goName(exe string) bool {
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == "go"
}
