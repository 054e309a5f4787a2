package child_test

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/internal/child"
)

func TestStopAsksAndWaits(t *testing.T) {
	p := start(t, spawner(t), "polite")
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("Stop = %v, want nil after an orderly end", err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("Stop returned before the child ended")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("second Stop = %v", err)
	}
}

func TestStopKillsWhenItsTimeIsOver(t *testing.T) {
	p := start(t, spawner(t), "stubborn")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Stop(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Stop = %v, want it to say that the child was killed", err)
	}
	if err := p.Err(); err == nil {
		t.Error("Err = nil for a killed child")
	}
	p.Kill() // of the dead: nothing happens
}

func TestChildrenSurviveTheThreadsOfTheirCallers(t *testing.T) {
	s := spawner(t)
	const n = 10
	var all [n]*child.Process
	var errs [n]error
	var up [n]func() int
	var wg sync.WaitGroup
	for i := range n {
		cmd := command("polite")
		up[i] = pids(t, cmd)
		wg.Go(func() {
			runtime.LockOSThread() // and never unlocks: the thread ends with it
			all[i], errs[i] = s.Start(cmd)
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		up[i]()
	}
	for _, p := range all {
		if err := p.Stop(t.Context()); err != nil {
			t.Errorf("child %d was not alive to be stopped: %v", p.PID(), err)
		}
	}
}

func TestCloseKillsWhatIsLeftAndRefusesMore(t *testing.T) {
	s := child.NewSpawner()
	p, q := start(t, s, "stubborn"), start(t, s, "polite")
	s.Close()
	s.Close()
	for _, p := range []*child.Process{p, q} {
		select {
		case <-p.Done():
		default:
			t.Errorf("child %d is alive after Close", p.PID())
		}
	}
	if _, err := s.Start(command("sleeper")); !errors.Is(err, child.ErrClosed) {
		t.Errorf("Start after Close = %v, want ErrClosed", err)
	}
}

func TestAFailedStartIsReportedAndHarmless(t *testing.T) {
	s := spawner(t)
	if _, err := s.Start(exec.Command("/nonexistent/program")); err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("Start = %v, want an error naming the program", err)
	}
	cmd := command("sleeper")
	cmd.Stdin = strings.NewReader("mine")
	if _, err := s.Start(cmd); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("Start with an input of its own = %v", err)
	}
	if err := start(t, s, "polite").Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFollowerEndsWhenThePipeDoes(t *testing.T) {
	cmd := command("follower")
	cmd.Env = append(cmd.Env, child.EnvFollowParent+"=stdin")
	up := pids(t, cmd)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up()
	pipe.Close()
	err = cmd.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 7 {
		t.Errorf("the follower ended with %v, want exit code 7", err)
	}
}

func TestFollowParentNeedsTheVariable(t *testing.T) {
	for _, value := range []string{"", "1", "STDIN"} {
		if child.FollowParent(func(string) string { return value }, strings.NewReader(""), func() { t.Errorf("%q: called", value) }) {
			t.Errorf("%q: following", value)
		}
	}
	gone := make(chan struct{})
	if !child.FollowParent(func(string) string { return "stdin" }, strings.NewReader("noise"), func() { close(gone) }) {
		t.Error("not following")
	}
	<-gone
}
