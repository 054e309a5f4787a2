// Package boottime reads a clock that goes on while the machine sleeps. A lease
// counted on Go's own clock, which stands still while a virtual machine is
// suspended, would outlive its promise by that time.
package boottime

import "time"

var began = time.Now()
