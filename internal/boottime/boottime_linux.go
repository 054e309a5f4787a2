package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started, sleep included
// (CLOCK_BOOTTIME, clock_gettime(2)).
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(began) // a kernel before 2.6.39
	}
	return time.Duration(ts.Nano())
}
