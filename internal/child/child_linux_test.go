package child_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verae/archive/internal/child"
)

// watch returns a function that waits until the process pid, which need not be
// a child of ours, has ended.
func watch(t *testing.T, pid int) (gone func()) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd_open(%d): %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			left := max(0, time.Until(deadline))
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n != 1 {
				t.Fatalf("process %d is still there: poll gives %d, %v", pid, n, err)
			}
			break
		}
		if !isGone(t, pid) {
			t.Errorf("process %d has ended but /proc still shows it running", pid)
		}
	}
}

// isGone reports whether pid has no /proc entry or is a zombie: the first
// process of a container may not reap orphans.
func isGone(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	// pid (name) state ...; the name may contain anything, also ")".
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return bytes.HasPrefix(rest, []byte(" Z")) || bytes.HasPrefix(rest, []byte(" X"))
}

func TestChildIsGoneWhenItsParentIsKilled(t *testing.T) {
	for _, role := range []string{"sleeper", "follower", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			cmd := command("parent:" + role)
			pid := pids(t, cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			gone := watch(t, pid())
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // "signal: killed"
			gone()
		})
	}
}

func TestKillReachesTheWholeGroup(t *testing.T) {
	cmd := command("nest:stubborn")
	pid := pids(t, cmd)
	p, err := spawner(t).Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	grandchild := pid()
	gone := watch(t, grandchild)
	p.Kill()
	gone()
	<-p.Done()
}

func TestProgramFollowsAKilledGoRun(t *testing.T) {
	// A parent whose file is named go, which is how FollowGoRun knows it.
	fake := filepath.Join(t.TempDir(), "go")
	copyFile(t, fake)
	cmd := exec.Command(fake)
	cmd.Env = append(os.Environ(), roleEnv+"=nest:gorun")
	cmd.Stderr = os.Stderr
	pid := pids(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := watch(t, pid())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone()
}

func TestFollowGoRunLeavesOtherParentsAlone(t *testing.T) {
	if child.IsGo(os.Getpid()) {
		t.Error("this test binary is taken for the go command")
	}
	for exe, want := range map[string]bool{
		"/usr/local/go/bin/go": true, "/usr/local/go/bin/go (deleted)": true,
		"/usr/bin/gopls": false, "/usr/bin/bash": false, "/opt/go/harness": false, "": false,
	} {
		if got := child.GoName(exe); got != want {
			t.Errorf("goName(%q) = %v", exe, got)
		}
	}
}
