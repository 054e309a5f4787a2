package bus

import (
	"context"
	"sync"
)

// A gate bounds work that has a goroutine of its own, by number and by bytes.
// What finds no place is refused at once: callbacks of nats.go never wait.
type gate struct {
	mu      sync.Mutex // guards all below
	n       int        // free places
	bytes   int64      // free bytes
	closed  bool
	running sync.WaitGroup
}

func newGate(n int, bytes int64) *gate { return &gate{n: n, bytes: bytes} }

// enter takes a place for work on so many bytes, and reports whether there was
// one. Who got in leaves with the same number.
func (g *gate) enter(bytes int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.n == 0 || g.bytes < int64(bytes) {
		return false
	}
	g.n--
	g.bytes -= int64(bytes)
	g.running.Add(1)
	return true
}

func (g *gate) leave(bytes int) {
	g.mu.Lock()
	g.n++
	g.bytes += int64(bytes)
	g.mu.Unlock()
	g.running.Done()
}

// close lets nobody in any more and returns when all have left. When ctx is done
// first it calls hurry, which makes them leave, and waits still.
func (g *gate) close(ctx context.Context, hurry func()) {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	stop := context.AfterFunc(ctx, hurry)
	g.running.Wait()
	stop()
}

// serials run tasks of one key in the order they came, and those of different
// keys side by side. A goroutine lives only while its key has tasks.
type serials struct {
	gate *gate
	most int // tasks of one key that may wait

	mu     sync.Mutex // guards queues
	queues map[string][]serialTask
}

type serialTask struct {
	bytes int
	run   func()
}

func newSerials(g *gate, most int) *serials {
	return &serials{gate: g, most: most, queues: map[string][]serialTask{}}
}

// try queues a task of so many bytes under key and reports whether there was
// room for it.
func (s *serials) try(key string, bytes int, run func()) bool {
	if !s.gate.enter(bytes) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, busy := s.queues[key]
	if len(queue) >= s.most {
		s.gate.leave(bytes)
		return false
	}
	s.queues[key] = append(queue, serialTask{bytes, run})
	if !busy {
		go s.work(key)
	}
	return true
}

// work runs the tasks of key until there are none.
func (s *serials) work(key string) {
	for {
		s.mu.Lock()
		queue := s.queues[key]
		if len(queue) == 0 {
			delete(s.queues, key)
			s.mu.Unlock()
			return
		}
		task := queue[0]
		s.queues[key] = queue[1:]
		s.mu.Unlock()
		task.run()
		s.gate.leave(task.bytes)
	}
}
