package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Task is something that runs as long as the program does. Run returns nil
// when it was stopped by its closer or its context, an error when it could not
// go on.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// TaskGrace is how long tasks may take to return after everything was stopped.
const TaskGrace = 5 * time.Second

// end is how the task with the given index ended.
type end struct {
	task int
	err  error
}

// Run runs the tasks until ctx ends or one of them returns an error, then calls
// Close, and returns all errors joined; the end of ctx is no error. The context
// of the tasks ends only after Close: the order of the stop is the order of the
// stack, not the luck of whoever sees a signal first. A task that returns nil
// early has done its work; the others go on.
func (s *Stack) Run(ctx context.Context, tasks ...Task) error {
	taskCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ends := make(chan end, len(tasks))
	running := make(map[int]string, len(tasks))
	for i, t := range tasks {
		running[i] = t.Name
		go func() { ends <- end{i, t.Run(taskCtx)} }()
	}
	err := s.wait(ctx, ends, running)
	err = errors.Join(err, s.Close())
	cancel()
	return errors.Join(err, collect(ends, running))
}

// wait returns nil when ctx has ended, and otherwise why a task ended.
func (s *Stack) wait(ctx context.Context, ends <-chan end, running map[int]string) error {
	for {
		select {
		case <-ctx.Done():
			orDiscard(s.Log).InfoContext(ctx, "stopping", "cause", context.Cause(ctx))
			return nil
		case e := <-ends:
			name := running[e.task]
			delete(running, e.task)
			if e.err != nil {
				orDiscard(s.Log).ErrorContext(ctx, "stopping because a part ended", "part", name, "err", e.err)
				return fmt.Errorf("serve: %s: %w", name, e.err)
			}
		}
	}
}

// collect waits for the tasks that are still running, at most TaskGrace. That
// their context was cancelled by now is no error.
func collect(ends <-chan end, running map[int]string) error {
	var errs []error
	late := time.NewTimer(TaskGrace)
	defer late.Stop()
	for len(running) > 0 {
		select {
		case e := <-ends:
			if e.err != nil && !errors.Is(e.err, context.Canceled) {
				errs = append(errs, fmt.Errorf("serve: %s: %w", running[e.task], e.err))
			}
			delete(running, e.task)
		case <-late.C:
			names := slices.Sorted(maps.Values(running))
			errs = append(errs, fmt.Errorf("serve: still running after the stop: %s", strings.Join(names, ", ")))
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}
