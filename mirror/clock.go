package mirror

import (
	"time"

	"github.com/verae/archive/internal/boottime"
)

// A Clock tells the time since some moment in the past. It must go on while the
// machine sleeps.
type Clock func() time.Duration

func (c Clock) or() Clock {
	if c == nil {
		return boottime.Now
	}
	return c
}
