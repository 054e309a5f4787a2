package bloom

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// threadTime is the processor time of this thread, which other work on the
// machine does not add to.
func threadTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReadBesideWriter takes a reader alone as the limit of one beside a
// goroutine that adds without a pause.
func BenchmarkReadBesideWriter(b *testing.B) {
	const n = 4_000_000
	s := New(Params{Capacity: 2 * n})
	for i := range uint64(n) {
		s.Add(key(i))
	}
	s.Complete()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reads := func(from uint64) float64 { // a second of processor time
		took := time.Duration(0)
		const count, piece = 400, 5_000
		for keys := range pieces(from, count, piece) {
			began := threadTime(b)
			for i := range keys {
				s.Test(keys[i])
			}
			took += threadTime(b) - began
		}
		return count * piece / took.Seconds()
	}
	alone := reads(1 << 40)
	var stop atomic.Bool
	written, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(n); !stop.Load() && i < 2*n; i++ {
			s.Add(key(i))
			written++
		}
	}()
	began := time.Now()
	beside := reads(1 << 41)
	took := time.Since(began)
	stop.Store(true)
	<-done
	b.Logf("alone %.2f million reads a second of processor time, beside a writer %.2f, %.2f x (limit: 2 million); %.2f million writes/s",
		alone/1e6, beside/1e6, beside/alone, float64(written)/took.Seconds()/1e6)
	b.ReportMetric(beside/1e6, "Mreads/s")
	b.ReportMetric(beside/alone, "x")
}
