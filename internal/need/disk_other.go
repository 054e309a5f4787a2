//go:build !linux

package need

import "testing"

// Disk is a small disk of its own, in memory, that a test mounted.
type Disk struct {
	// Dir is where it is mounted.
	Dir string
}

// SmallDisk skips the test: mounting is known on Linux only.
func SmallDisk(t testing.TB, _ int) *Disk {
	t.Helper()
	Missing(t, "mount")
	return &Disk{}
}

// Resize does nothing.
func (d *Disk) Resize(int) {}

// Occupy does nothing.
func (d *Disk) Occupy(uint64) (path string) { return "" }
