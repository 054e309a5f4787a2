package world

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/fault"
)

// Command runs a further command of a program of the world, such as backup, with
// the program's own settings, and returns what it said and its exit code. The
// world must be one of processes.
func (w *World) Command(ctx context.Context, name string, args ...string) (said string, code int, err error) {
	if w.cfg.InProcess {
		return "", 0, fault.New(fault.Invalid, "", "world: commands are run by worlds of processes")
	}
	self, err := child.Self()
	if err != nil {
		return "", 0, err
	}
	kind := "archived"
	if name == Aggregator {
		kind = Aggregator
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, self, append([]string{childCommand, kind}, args...)...)
	w.mu.Lock()
	cmd.Env = w.environment(name)
	w.mu.Unlock()
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return out.String(), 0, fmt.Errorf("world: %s %v: %w", name, args, err)
	}
	return out.String(), cmd.ProcessState.ExitCode(), nil
}

// Lose takes the directory of a program away, as the loss of its disk would, and
// returns where it is now. The program must not run.
func (w *World) Lose(name string) (dir string, err error) {
	for n := 1; ; n++ {
		lost := fmt.Sprintf("%s.lost-%d", w.dir(name), n)
		_, err := os.Lstat(lost)
		switch {
		case err == nil:
			continue // it was lost before
		case os.IsNotExist(err):
			err = os.Rename(w.dir(name), lost)
		}
		if err != nil {
			return "", fmt.Errorf("world: %w", err)
		}
		return lost, nil
	}
}
