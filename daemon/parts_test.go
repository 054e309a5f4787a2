package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
)

// A program that is asked to stop while it starts stops, also when its start
// never ends.
func TestStartThatHangsCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		hang := make(chan struct{})
		begin := time.Now()
		_, err := starting(ctx, func() (int, error) { <-hang; return 0, nil })
		if took := time.Since(begin); fault.CodeOf(err) != "STOPPED" || took != time.Minute+startGrace {
			t.Errorf("after %s: %v", took, err)
		}
		close(hang)
	})
}

func TestStartsOutcomeIsPassedOn(t *testing.T) {
	boom := errors.New("boom")
	if v, err := starting(t.Context(), func() (int, error) { return 7, boom }); v != 7 || !errors.Is(err, boom) {
		t.Errorf("%d, %v", v, err)
	}
	// A start that is nearly done is not given up.
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if v, err := starting(ctx, func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}
