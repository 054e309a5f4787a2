package faultfs

import (
	"runtime"
	"strings"
	"sync"
)

// Process stands for a process that a failing disk may kill. Where a directory
// can not be synced, or a log not be made, written or ended, Pebble panics, on
// whatever goroutine and past recovery, and where a commit fails it calls its
// fatal hook. In a test both are the end of the goroutine and of [Process.Run].
type Process struct {
	once sync.Once
	dead chan struct{}
}

// NewProcess returns a process that lives.
func NewProcess() *Process { return &Process{dead: make(chan struct{})} }

// Die ends the process: it never returns.
func (p *Process) Die() {
	p.once.Do(func() { close(p.dead) })
	select {}
}

// Fatal is an OnFatal hook that ends the process.
func (p *Process) Fatal(string) { p.Die() }

// Dead is closed when the process has died.
func (p *Process) Dead() <-chan struct{} { return p.dead }

// Run calls do as the process and returns when it has ended or died. What a dead
// one held open stays open.
func (p *Process) Run(do func()) (died bool) {
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	select {
	case <-ended:
		return false
	case <-p.dead:
		return true
	}
}

// Kills returns d as it is for this process: a failure that Pebble would not
// survive ends it. It also dies, by an operator's hand, when it has met patience
// failures: Pebble repeats a failed flush for ever.
func (p *Process) Kills(d Decide, patience int) Decide {
	var mu sync.Mutex
	met := 0
	return func(at Point) Outcome {
		out := d(at)
		if out.Err == nil {
			return out
		}
		mu.Lock()
		met++
		enough := met > patience
		mu.Unlock()
		if enough || mortal(at) {
			out.Then = p.Die
		}
		return out
	}
}

// mortal reports whether Pebble panics when the operation fails.
func mortal(at Point) bool {
	log := strings.HasSuffix(at.Path, ".log")
	switch at.Op {
	case OpSyncDir:
		return true
	case OpCreate, OpReuse, OpWrite:
		return log
	case OpSync, OpClose:
		return log && rotating()
	}
	return false
}

// rotating reports whether the calling goroutine is ending a log.
func rotating() bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, ".rotateWAL") {
			return true
		}
		if !more {
			return false
		}
	}
}
