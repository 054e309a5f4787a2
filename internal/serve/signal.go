package serve

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Signals returns a context that ends with the first SIGINT or SIGTERM; its
// cause names the signal. A second signal ends the process at once with the
// shell's code for it (128 + its number): whoever is in a hurry wins. The stop
// function gives both signals their former effect; call it when the program is
// done.
//
// The second signal is caught too, not left to its default: a program started
// in the background of a script inherits SIGINT ignored.
func Signals(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		first := true
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				if !first {
					os.Exit(128 + number(s))
				}
				first = false
				cancel(fmt.Errorf("signal: %v", s))
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		cancel(context.Canceled)
	})
}

func number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
