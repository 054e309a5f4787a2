package blob

import (
	"context"
	"sync"
)

// keyLock is a lock for each digest: whoever commits a file holds that of its
// SHA-256, and whoever answers for the file waits until it is free. So two
// commits of the same bytes come one after the other, and nothing is readable
// before it is durable (Pebble shows rows before they are synced).
type keyLock struct {
	mu   sync.Mutex
	held map[[32]byte]chan struct{} // closed when the lock is free again
}

// lock takes the lock of key, or returns the error of ctx.
func (k *keyLock) lock(ctx context.Context, key [32]byte) (unlock func(), err error) {
	for {
		k.mu.Lock()
		busy, ok := k.held[key]
		if !ok {
			break
		}
		k.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = make(map[[32]byte]chan struct{})
	}
	free := make(chan struct{})
	k.held[key] = free
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.held, key)
		close(free)
	}, nil
}

// wait returns when nobody who held the lock of key at the call holds it any
// more, or with the error of ctx.
func (k *keyLock) wait(ctx context.Context, key [32]byte) error {
	k.mu.Lock()
	busy, ok := k.held[key]
	k.mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
