package bus

import (
	"context"
	"sync"
)

// workers run tasks on a fixed number of goroutines behind a bounded queue. A
// callback of nats.go hands its work over and never waits.
type workers struct {
	tasks   chan func(context.Context)
	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      sync.RWMutex // held shared while a task is queued, so that none is queued after close
	closed  bool
}

// startWorkers starts n goroutines; up to queue tasks wait for them.
func startWorkers(n, queue int) *workers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &workers{tasks: make(chan func(context.Context), queue), cancel: cancel}
	for range n {
		w.running.Go(func() {
			for task := range w.tasks {
				task(ctx)
			}
		})
	}
	return w
}

// try queues a task and reports whether there was room.
func (w *workers) try(task func(context.Context)) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return false
	}
	select {
	case w.tasks <- task:
		return true
	default:
		return false
	}
}

// close takes no more tasks and returns when those queued have run. When ctx is
// done first, the context of the tasks is cancelled; they are waited for still.
func (w *workers) close(ctx context.Context) {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.tasks)
	}
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, w.cancel)
	w.running.Wait()
	stop()
	w.cancel()
}
