//go:build !linux

package boottime

import "time"

// Now returns the time since the process was started. Whether that goes on while
// the machine sleeps is the system's choice.
func Now() time.Duration { return time.Since(began) }
