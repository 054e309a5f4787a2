package serve_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/serve"
)

// journal records events in the order in which they happen.
type journal struct {
	mu   sync.Mutex
	list []string
}

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, s)
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.list, want) {
		t.Errorf("events %q, want %q", j.list, want)
	}
}

func (j *journal) closer(name string, err error) func(context.Context) error {
	return func(context.Context) error { j.add(name); return err }
}

func TestStackClosesInReverseOrderAndJoinsErrors(t *testing.T) {
	var j journal
	var s serve.Stack
	boom, bang := errors.New("boom"), errors.New("bang")
	for _, c := range []struct {
		name string
		err  error
	}{{"store", boom}, {"bus", nil}, {"http", bang}} {
		if err := s.Push(c.name, time.Second, j.closer(c.name, c.err)); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Close()
	j.want(t, "http", "bus", "store")
	if !errors.Is(err, boom) || !errors.Is(err, bang) {
		t.Errorf("Close = %v, want both errors", err)
	}
	if !strings.Contains(err.Error(), "stop store: boom") {
		t.Errorf("Close = %q does not name the part", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close = %v", err)
	}
	j.want(t, "http", "bus", "store")
}

func TestStackPushAfterCloseStopsThePart(t *testing.T) {
	var j journal
	var s serve.Stack
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err := s.Push("late", time.Second, j.closer("late", nil))
	if err == nil || !strings.Contains(err.Error(), "late") {
		t.Errorf("Push after Close = %v, want an error naming the part", err)
	}
	j.want(t, "late")
}

func TestStackPanicInOneCloserDoesNotKeepTheOthersOpen(t *testing.T) {
	var j journal
	var s serve.Stack
	_ = s.Push("store", time.Second, j.closer("store", nil))
	_ = s.Push("http", time.Second, func(context.Context) error { panic("ouch") })
	err := s.Close()
	j.want(t, "store")
	if err == nil || !strings.Contains(err.Error(), "ouch") {
		t.Errorf("Close = %v, want the panic", err)
	}
}

func TestStackDeadlineOfEachCloserIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var s serve.Stack
		hang := make(chan struct{})
		_ = s.Push("store", time.Second, func(ctx context.Context) error {
			d, _ := ctx.Deadline()
			if left := time.Until(d); left != time.Second {
				t.Errorf("store has %v left, want its full second", left)
			}
			j.add("store")
			return nil
		})
		_ = s.Push("polite", 2*time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("cut three requests off")
		})
		_ = s.Push("deaf", 3*time.Second, func(context.Context) error { <-hang; return nil })
		start := time.Now()
		err := s.Close()
		if d, want := time.Since(start), 5*time.Second+serve.StopGrace; d != want {
			t.Errorf("Close took %v, want %v", d, want)
		}
		for _, want := range []string{"deaf: still running after 3s", "polite: cut three requests off"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Close = %v, want %q in it", err, want)
			}
		}
		j.want(t, "store")
		close(hang)
	})
}

func TestRunStopsByTheStackBeforeTheTasksContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var s serve.Stack
		ctx, cancel := context.WithCancel(t.Context())
		var taskCtx context.Context
		_ = s.Push("poller", time.Second, func(context.Context) error {
			if taskCtx.Err() != nil {
				t.Error("the tasks' context ended before the closers ran")
			}
			j.add("closer")
			return nil
		})
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx,
				serve.Task{Name: "poller", Run: func(ctx context.Context) error {
					taskCtx = ctx
					<-ctx.Done()
					j.add("task")
					return ctx.Err()
				}},
				serve.Task{Name: "once", Run: func(context.Context) error { return nil }},
			)
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil after a signal", err)
		}
		j.want(t, "closer", "task")
	})
}

func TestRunEndsWhenATaskFails(t *testing.T) {
	var j journal
	var s serve.Stack
	_ = s.Push("store", time.Second, j.closer("store", nil))
	boom := errors.New("boom")
	err := s.Run(t.Context(),
		serve.Task{Name: "http", Run: func(context.Context) error { return boom }},
		serve.Task{Name: "poller", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }},
	)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "http") {
		t.Errorf("Run = %v, want boom of http", err)
	}
	j.want(t, "store")
}

func TestRunNamesTasksThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s serve.Stack
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		hang := make(chan struct{})
		deaf := func(context.Context) error { <-hang; return nil }
		start := time.Now()
		err := s.Run(ctx, serve.Task{Name: "b", Run: deaf}, serve.Task{Name: "a", Run: deaf})
		if d := time.Since(start); d != serve.TaskGrace {
			t.Errorf("Run took %v, want %v", d, serve.TaskGrace)
		}
		if err == nil || !strings.Contains(err.Error(), "a, b") {
			t.Errorf("Run = %v, want both names", err)
		}
		close(hang)
	})
}
