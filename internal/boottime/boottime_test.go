package boottime

import (
	"testing"
	"time"
)

func TestNowRunsOn(t *testing.T) {
	first := Now()
	time.Sleep(time.Millisecond)
	if second := Now(); second-first < time.Millisecond {
		t.Errorf("%s after a millisecond", second-first)
	}
}
