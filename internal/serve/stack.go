package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Stack holds what a program has started, in the order in which it was
// started, and stops it in reverse. The zero value is ready to use; Log may be
// set before the first use.
//
// A closer has a deadline of its own, so that one part that hangs costs its
// share and not the whole stop. A closer that is still running when its
// deadline has passed is left behind and reported: the process is about to end,
// and what it guards must be safe against a kill at any time anyway.
type Stack struct {
	Log *slog.Logger // gets one line for every part that stopped; nil discards

	mu      sync.Mutex // guards closers and closed
	closers []closer
	closed  bool
}

type closer struct {
	name  string
	limit time.Duration
	close func(context.Context) error
}

// Push adds a part that was just started. On Close its function gets a context
// that ends after limit. Push on a closed stack stops the part at once and
// returns why it was too late, so a start that races with a stop leaks nothing.
func (s *Stack) Push(name string, limit time.Duration, close func(context.Context) error) error {
	c := closer{name, limit, close}
	s.mu.Lock()
	if !s.closed {
		s.closers = append(s.closers, c)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return errors.Join(fmt.Errorf("serve: %s started while the program stops", name), s.stop(c))
}

// Close stops every part in reverse order, the next one only after the one
// before it ended or used up its limit, and returns all errors joined. A second
// call does nothing.
func (s *Stack) Close() error {
	s.mu.Lock()
	list := s.closers
	s.closers, s.closed = nil, true
	s.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(list) {
		errs = append(errs, s.stop(c))
	}
	return errors.Join(errs...)
}

func (s *Stack) stop(c closer) error {
	start := time.Now()
	err := c.run()
	log := orDiscard(s.Log).With("part", c.name, "dur", time.Since(start))
	if err != nil {
		log.Error("stopped with an error", "err", err)
		return fmt.Errorf("serve: stop %s: %w", c.name, err)
	}
	log.Info("stopped")
	return nil
}

// run calls the closer and waits for it, but not longer than its limit.
func (c closer) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- recovered(func() error { return c.close(ctx) }) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// It may have seen the same deadline and be about to return: its own error
	// says more than ours.
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return fmt.Errorf("still running after %v, left behind", c.limit)
	}
}

// stopGrace is what a closer gets beyond its limit to return after its context
// ended.
const stopGrace = 250 * time.Millisecond

// recovered turns a panic of f into an error: one broken closer must not keep
// the stores below it from being closed.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}
