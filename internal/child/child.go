// Package child starts programs that never outlive the program that started
// them, however that one ends.
//
// Three things see to it. On Linux the kernel kills a child when the *thread*
// that started it ends (PDEATHSIG); a thread of the Go runtime ends whenever
// the runtime likes, so a [Spawner] starts all its children from one goroutine
// that is locked to its thread and stays. On every system the child gets a pipe
// as standard input whose other end only the parent holds: it reads end of file
// when the parent is gone, and a child that called [FollowParent] then stops.
// And the children form process groups of their own, so that Ctrl-C on a
// terminal reaches only the parent, which stops them in its own order.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("child: the spawner is closed")

// outputDelay bounds how long the end of a child may be held up by a grandchild
// that still has its output open.
const outputDelay = 2 * time.Second

// A Spawner starts children. It is safe for use by many goroutines.
type Spawner struct {
	requests chan request
	quit     chan struct{} // closed by Close
	ended    chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards alive and closed
	alive  map[*Process]bool
	closed bool
}

type request struct {
	cmd *exec.Cmd
	err chan<- error
}

// NewSpawner returns a spawner with its thread. Call Close to end it.
func NewSpawner() *Spawner {
	s := &Spawner{
		requests: make(chan request),
		quit:     make(chan struct{}),
		ended:    make(chan struct{}),
		alive:    map[*Process]bool{},
	}
	go s.loop()
	return s
}

// loop never unlocks its thread: when it ends, at Close, the thread ends with
// it, and by then Close has waited for every child.
func (s *Spawner) loop() {
	defer close(s.ended)
	runtime.LockOSThread()
	for {
		select {
		case r := <-s.requests:
			r.err <- r.cmd.Start()
		case <-s.quit:
			return
		}
	}
}

// Start starts cmd, which must not have been started, as a child that ends with
// this process. It takes over cmd.Stdin, which must be nil, and adds
// [EnvFollowParent] to the environment; everything else is the caller's. The
// returned process must be used instead of cmd.Wait.
func (s *Spawner) Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.Stdin != nil {
		return nil, fmt.Errorf("child: start %s: standard input is taken by the parent's pipe", cmd.Path)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("child: start %s: %w", cmd.Path, err)
	}
	defer r.Close()
	cmd.Stdin = r
	cmd.Env = append(cmd.Environ(), EnvFollowParent+"=stdin")
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = outputDelay
	}
	tie(cmd)
	p := &Process{cmd: cmd, stdin: w, done: make(chan struct{})}
	if err := s.start(p); err != nil {
		w.Close()
		return nil, fmt.Errorf("child: start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// start has the locked thread start p. The mutex is held meanwhile, so that
// Close sees either no child or a whole one.
func (s *Spawner) start(p *Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	err := make(chan error, 1)
	s.requests <- request{p.cmd, err}
	if err := <-err; err != nil {
		return err
	}
	s.alive[p] = true
	go func() {
		p.reap()
		s.mu.Lock()
		delete(s.alive, p)
		s.mu.Unlock()
	}()
	return nil
}

// Close kills every child that is still alive, waits until they are gone, and
// ends the spawner. Stop the children first if they are to end well.
func (s *Spawner) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	var left []*Process
	for p := range s.alive {
		left = append(left, p)
	}
	s.mu.Unlock()
	for _, p := range left {
		p.Kill()
	}
	for _, p := range left {
		<-p.Done()
	}
	if first {
		close(s.quit)
	}
	<-s.ended
}

// Self returns a path that starts this very program again. On Linux it is the
// running file itself, even if "go run" has removed it or a new build has
// replaced it.
func Self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
