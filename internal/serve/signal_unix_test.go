//go:build unix

package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verae/archive/internal/serve"
)

// roleEnv makes this test binary wait for signals instead of running the tests.
const roleEnv = "SERVE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := serve.Signals(context.Background())
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	time.Sleep(time.Minute) // a stop that hangs; the test ends it
}

func TestFirstSignalStopsAndSecondKills(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), exe)
			cmd.Env = append(os.Environ(), roleEnv+"=signals")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			for _, want := range []string{"ready", sig.String()} {
				line, err := lines.ReadString('\n')
				if err != nil || !strings.Contains(line, want) {
					t.Fatalf("child says %q, %v, want %q", line, err, want)
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = io.Copy(io.Discard, lines)
			e, ok := errors.AsType[*exec.ExitError](cmd.Wait())
			if want := 128 + int(sig); !ok || e.ExitCode() != want {
				t.Errorf("ended with %v, want exit code %d", e, want)
			}
		})
	}
}
