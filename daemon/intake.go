package daemon

import "sync"

// intake runs handlers of messages, some at a time, until it is stopped. It
// needs no order between the last message and the stop: what comes too late is
// not run.
type intake struct {
	slots   chan struct{}
	mu      sync.Mutex // guards stopped, and running against growing after it is set
	stopped bool
	running sync.WaitGroup
}

func newIntake(atOnce int) *intake { return &intake{slots: make(chan struct{}, atOnce)} }

// run runs handle on a goroutine of its own as soon as there is room.
func (i *intake) run(handle func()) {
	i.slots <- struct{}{}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		<-i.slots
		return
	}
	i.running.Go(func() {
		defer func() { <-i.slots }()
		handle()
	})
}

// stop takes nothing more, and returns when what was taken is done.
func (i *intake) stop() {
	i.mu.Lock()
	i.stopped = true
	i.mu.Unlock()
	i.running.Wait()
}
