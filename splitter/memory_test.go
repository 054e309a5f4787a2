package splitter

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// pattern is an endless stream of bytes without a delimiter.
type pattern struct{ at uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.at >> 3)
		p.at++
	}
	return len(b), nil
}

// streamed is a body of one file of size bytes that is made while it is read.
func streamed(size int64) io.Reader {
	whole := body(upload("files", "big.bin", "CONTENT"))
	head, tail, _ := strings.Cut(whole, "CONTENT")
	return io.MultiReader(strings.NewReader(head), io.LimitReader(new(pattern), size), strings.NewReader(tail))
}

// counting is an Uploader that only counts, and looks at memory if it is told to.
type counting struct {
	n    int64
	look bool
	peak uint64
}

func (c *counting) OpenUpload(context.Context, [32]byte, blob.Profile) (Upload, error) { return c, nil }
func (c *counting) ID() string                                                         { return "counting" }
func (c *counting) Finish(context.Context) ([]wire.ArchiveID, error)                   { return nil, nil }
func (c *counting) Abort()                                                             {}

func (c *counting) Write(p []byte) (int, error) {
	if c.look && c.n%(32<<20) == 0 {
		c.peak = max(c.peak, heap())
	}
	c.n += int64(len(p))
	return len(p), nil
}

// heap is what is reachable now, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemoryDoesNotGrowWithTheFile streams a large file and looks at the heap,
// and at all that was ever allocated.
func TestMemoryDoesNotGrowWithTheFile(t *testing.T) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 64 << 20
	}
	var before, after runtime.MemStats
	idle := heap()
	runtime.ReadMemStats(&before)
	c := &counting{look: true}
	req, err := ReadMultipart(t.Context(), streamed(size), formType, Config{Uploader: c, SubmissionID: theSubmission})
	if err != nil || c.n != size || req.Files[0].Size != size {
		t.Fatalf("%v, %d of %d bytes", err, c.n, size)
	}
	runtime.ReadMemStats(&after)
	const most = 4 << 20
	if c.peak > idle+most {
		t.Errorf("the heap grew from %d to %d bytes over a file of %d", idle, c.peak, size)
	}
	if total := after.TotalAlloc - before.TotalAlloc; total > most+uint64(size/100) {
		t.Errorf("%d bytes were allocated for a file of %d", total, size)
	}
}

// TestMP10ParallelUploads: 64 uploads at once, half of them cut, one handler
// that panics. Memory stays a fixed amount a request, and nothing is left open.
func TestMP10ParallelUploads(t *testing.T) {
	size := int64(8 << 20)
	if testing.Short() {
		size = 2 << 20
	}
	const requests = 64
	idle := heap()
	var mu sync.Mutex
	var peak uint64
	watch := func() {
		mu.Lock()
		defer mu.Unlock()
		peak = max(peak, heap())
	}
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			d := &depot{t: t, stop: func(written int) error {
				if written == 4*wire.FragmentSize && i%16 == 0 {
					watch()
				}
				if i == 7 && written > 0 {
					panic("a handler")
				}
				return nil
			}}
			r := streamed(size)
			if i%2 == 0 {
				r = io.LimitReader(r, size-1)
			}
			defer func() {
				if recovered := recover() != nil; recovered != (i == 7) {
					t.Errorf("request %d panicked: %v", i, recovered)
				}
				if len(d.uploads) != 1 {
					t.Errorf("request %d opened %d uploads", i, len(d.uploads))
				}
				if i%2 == 0 || i == 7 {
					d.gone()
				}
			}()
			req, err := ReadMultipart(t.Context(), r, formType, d.config())
			if d.sound(req, err); (err == nil) != (i%2 == 1) {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if most := idle + requests*(1<<20); peak == 0 || peak > most {
		t.Errorf("the heap grew from %d to %d bytes with %d requests in flight", idle, peak, requests)
	}
}
