package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// A Process is a running or ended child. All methods may be called from many
// goroutines.
type Process struct {
	cmd   *exec.Cmd
	stdin *os.File      // the parent's end of the child's standard input
	done  chan struct{} // closed when the child has ended and err is set
	err   error
}

// reap waits for the child, once.
func (p *Process) reap() {
	p.err = p.cmd.Wait()
	p.stdin.Close()
	close(p.done)
}

// PID returns the process id. It may belong to another process once Done is
// closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits until the child has ended and returns nil if its exit code was 0,
// else an *exec.ExitError or what kept its output from being read.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Stop asks the child to end and waits for it. When ctx ends first, the child
// and its process group are killed, and the error says so. A child that ended
// before Stop was called is not asked; its own error is returned.
func (p *Process) Stop(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	p.ask()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("child: process %d was killed: %w", p.PID(), context.Cause(ctx)), p.err)
	}
}

// Kill kills the child and its process group at once, without a chance to tidy
// up. It does not wait, and does nothing to a child that has ended.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		killGroup(p.cmd.Process)
	}
}
