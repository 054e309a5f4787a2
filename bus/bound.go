package bus

import (
	"context"
	"sync"
	"time"
)

// A bound is a context that ends at a time. It sets a timer only for who waits for
// its end: an archive that answers looks at Err between its reads, and is done long
// before. end releases it.
type bound struct {
	context.Context // the parent
	at              time.Time

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
}

func (b *bound) Deadline() (time.Time, bool) { return b.at, true }

func (b *bound) Err() error {
	if err := b.Context.Err(); err != nil || time.Now().Before(b.at) {
		return err
	}
	return context.DeadlineExceeded
}

func (b *bound) Done() <-chan struct{} {
	b.once.Do(func() { b.timed, b.cancel = context.WithDeadline(b.Context, b.at) })
	return b.timed.Done()
}

// end is called by the goroutine that made b, after all others are done with it.
func (b *bound) end() {
	if b.cancel != nil {
		b.cancel()
	}
}
