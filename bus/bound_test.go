package bus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A bound ends at its time and with its parent, whether somebody waits for it or not.
func TestABoundEndsInTime(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &bound{Context: t.Context(), at: time.Now().Add(time.Second)}
			defer b.end()
			if waits {
				<-b.Done()
			} else {
				time.Sleep(time.Second - 1)
				if at, ok := b.Deadline(); b.Err() != nil || !ok || time.Until(at) != 1 {
					t.Error(b.Err(), at, ok)
				}
				time.Sleep(time.Nanosecond)
			}
			if !errors.Is(b.Err(), context.DeadlineExceeded) || time.Until(b.at) != 0 {
				t.Error(b.Err(), time.Until(b.at))
			}
			parent, cancel := context.WithCancel(t.Context())
			left := &bound{Context: parent, at: time.Now().Add(time.Second)}
			defer left.end()
			if waits {
				left.Done()
			}
			cancel()
			if !errors.Is(left.Err(), context.Canceled) {
				t.Error(left.Err())
			}
			<-left.Done()
		})
	}
}
