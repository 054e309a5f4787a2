package daemon

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Once stop has returned nothing runs, and nothing is started, however many
// messages come beside it; at no time do more run than there is room for.
func TestIntakeStopsForGood(t *testing.T) {
	const room, senders, messages = 3, 8, 200
	for range 20 {
		in := newIntake(room)
		var running, most, stopped atomic.Int64
		handle := func() {
			if n := running.Add(1); n > room {
				most.Store(n)
			}
			if stopped.Load() != 0 {
				t.Error("a handler runs after the stop")
			}
			running.Add(-1)
		}
		var sending sync.WaitGroup
		first := make(chan struct{}, senders)
		for range senders {
			sending.Go(func() {
				for range messages {
					in.run(handle)
					select {
					case first <- struct{}{}:
					default:
					}
				}
			})
		}
		<-first
		in.stop()
		stopped.Store(1)
		sending.Wait()
		if running.Load() != 0 || most.Load() != 0 || len(in.slots) != 0 {
			t.Fatalf("%d run after the stop, %d ran at a time, %d slots are taken", running.Load(), most.Load(), len(in.slots))
		}
	}
}

// stop waits for what was taken.
func TestIntakeWaitsForItsHandlers(t *testing.T) {
	in := newIntake(1)
	hold, done := make(chan struct{}), atomic.Bool{}
	in.run(func() { <-hold; done.Store(true) })
	go close(hold)
	if in.stop(); !done.Load() {
		t.Error("stop did not wait")
	}
}
