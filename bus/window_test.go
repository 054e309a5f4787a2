package bus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWindowNeverGrantsMoreThanItHas(t *testing.T) {
	const msgs, bytes = 5, 1000
	w := newWindow(msgs, bytes)
	var n, sum, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			size := int64(1 + i*7%400)
			c, err := w.acquire(t.Context(), size)
			if err != nil {
				t.Error(err)
				return
			}
			if n.Add(1) > msgs || sum.Add(size) > bytes {
				t.Error("more under way than the window allows")
			}
			most.Store(max(most.Load(), n.Load()))
			time.Sleep(time.Microsecond)
			n.Add(-1)
			sum.Add(-size)
			w.release(c)
		})
	}
	wg.Wait()
	if w.msgs != msgs || w.bytes != bytes || w.waiting.Len() != 0 {
		t.Errorf("not all is back: %+v", w)
	}
}

func TestWindowGrantsInOrder(t *testing.T) {
	w := newWindow(10, 100)
	first := w.claim(100)
	large, small := w.claim(60), w.claim(10)
	granted := func(c *claim) bool {
		select {
		case <-c.ready:
			return true
		default:
			return false
		}
	}
	if !granted(first) || granted(large) || granted(small) {
		t.Error("the second claim must wait, and the small one behind it")
	}
	w.release(first)
	if !granted(large) || !granted(small) {
		t.Error("both fit now")
	}
	next := w.claim(50)
	last := w.claim(1)
	w.release(next) // withdrawn while it waited: the one behind it moves up
	if granted(next) || !granted(last) {
		t.Error("a withdrawn claim blocks the queue")
	}
	for _, c := range []*claim{large, small, last} {
		w.release(c)
	}
	if w.msgs != 10 || w.bytes != 100 {
		t.Errorf("not all is back: %+v", w)
	}
}

func TestClaimLargerThanTheWindowTakesAllOfIt(t *testing.T) {
	w := newWindow(2, 100)
	c, err := w.acquire(t.Context(), 1<<40)
	if err != nil || w.bytes != 0 {
		t.Fatal(err, w.bytes)
	}
	w.release(c)
	if w.bytes != 100 {
		t.Errorf("%d bytes back", w.bytes)
	}
}

func TestWaitForCreditEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(1, 100)
		held, err := w.acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if w.waiting.Len() != 0 {
			t.Error("the claim is still queued")
		}
		w.release(held)
	})
}
