package child_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verae/archive/internal/child"
)

// roleEnv makes this test binary play a part instead of running the tests.
const roleEnv = "CHILD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role, arg, _ := strings.Cut(os.Getenv(roleEnv), ":"); role {
	case "":
		os.Exit(m.Run())
	case "sleeper": // knows nothing of its parent
		up()
		rest()
	case "follower": // ends with code 7 when its parent is gone
		if !child.FollowParent(os.Getenv, os.Stdin, func() { os.Exit(7) }) {
			os.Exit(3)
		}
		up()
		rest()
	case "polite": // ends with code 0 when asked
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		up()
		<-c
	case "stubborn": // ends only when killed
		signal.Ignore(syscall.SIGTERM)
		up()
		rest()
	case "parent": // has a child that plays arg, by a spawner
		if _, err := child.NewSpawner().Start(command(arg)); err != nil {
			panic(err)
		}
		rest()
	case "nest": // has a child that plays arg, without a spawner
		if err := command(arg).Start(); err != nil {
			panic(err)
		}
		rest()
	case "gorun": // what "go run" starts
		if !child.FollowGoRun() {
			os.Exit(3)
		}
		up()
		rest()
	default:
		panic("unknown role " + role)
	}
}

// rest waits to be ended, but not for ever: nothing may stay behind a broken
// test.
func rest() { time.Sleep(2 * patience) }

// patience bounds the wait for an end that is due at once.
const patience = 30 * time.Second

// up tells the test that this process plays its part.
func up() { fmt.Println(os.Getpid()) }

// command returns a command that plays role and writes its pid to our standard
// output once it does.
func command(role string) *exec.Cmd {
	exe, err := child.Self()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	return cmd
}

// pids connects the output of cmd and returns a function that, once cmd was
// started, reads the next pid from it.
func pids(t *testing.T, cmd *exec.Cmd) func() int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	cmd.Stdout = w
	lines := bufio.NewReader(r)
	return func() int {
		t.Helper()
		w.Close() // the child has its own by now; its end is our end of file
		var pid int
		if _, err := fmt.Fscanln(lines, &pid); err != nil {
			t.Fatalf("a child did not say its pid: %v", err)
		}
		return pid
	}
}

func spawner(t *testing.T) *child.Spawner {
	s := child.NewSpawner()
	t.Cleanup(s.Close)
	return s
}

func start(t *testing.T, s *child.Spawner, role string) *child.Process {
	t.Helper()
	cmd := command(role)
	pid := pids(t, cmd)
	p, err := s.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if got := pid(); got != p.PID() {
		t.Fatalf("child says it is %d, PID says %d", got, p.PID())
	}
	return p
}

// copyFile copies the running test binary to path.
func copyFile(t *testing.T, path string) {
	t.Helper()
	exe, err := child.Self()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
