package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
)

// memoryLimit is what no process may ever take while many clients read slowly,
// and many upload and leave, in bytes.
const memoryLimit = 256 << 20

const (
	slowReaders = 50
	uploaders   = 64 // half of them leave in the middle
)

// TestManySlowClientsTakeLittleMemory has many clients at a time in the middle of
// what they do, in real processes. GOMEMLIMIT has the collector run before the
// limit, as it does in a container of that size.
func TestManySlowClientsTakeLittleMemory(t *testing.T) {
	long(t)
	for name, took := range memoryOfSlowClients(t, "GOMEMLIMIT=180MiB", need.Rounds(20, 100)<<20, need.Rounds(2, 24)<<20) {
		if took > memoryLimit {
			t.Errorf("%s took %d MiB, the limit is %d", name, took>>20, memoryLimit>>20)
		}
	}
}

// BenchmarkBlobMemory prints the highest resident size of each program, in MB:
// after 50 slow readers of a file of 100 MiB, and 64 uploads of 24 MiB. The limit
// is 256 MiB. Run it with -benchtime 1x.
func BenchmarkBlobMemory(b *testing.B) {
	for range b.N {
		for name, took := range memoryOfSlowClients(b, "NATS_URL=", 100<<20, 24<<20) {
			b.ReportMetric(float64(took)/1e6, name+"-MB")
		}
	}
	b.ReportMetric(float64(memoryLimit)/1e6, "MB-limit")
}

// memoryOfSlowClients returns the highest resident size of each program, started
// with a further setting.
func memoryOfSlowClients(tb testing.TB, setting string, fileSize, uploadSize int) map[string]int64 {
	tb.Helper()
	w, err := world.Start(tb.Context(), world.Config{Dir: tb.TempDir(), Env: []string{"NATS_URL=", "MAX_UPLOADS_PER_KEY=64", "MAX_REQUESTS_PER_KEY=128", setting}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { stopWorld(tb, w) })
	c := w.Client("acme")
	c.HTTP = &http.Client{Transport: &http.Transport{}} // of its own: it is slow
	tb.Cleanup(c.HTTP.CloseIdleConnections)

	f := nodeFile{"read slowly", fileSize, blob.Default.ChunkSize, blob.Default.MaxLinks}
	added, err := c.Add(tb.Context(), client.File{Name: "file", Open: func() (io.ReadCloser, error) { return io.NopCloser(f.bytes(tb)), nil }}, client.AddOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	readSlowly(tb, c, added.CID)
	highestOfAll(tb, w, "readers")
	uploadAndLeave(tb, c, uploadSize)
	return highestOfAll(tb, w, "uploads")
}

// highestOfAll returns the highest resident size of each program.
func highestOfAll(tb testing.TB, w *world.World, after string) map[string]int64 {
	tb.Helper()
	pids := map[string]int{world.Aggregator: readyPID(tb, w.Ready())}
	for _, a := range w.Ready().Archives {
		pids[string(a.ID)] = a.PID
	}
	took := map[string]int64{}
	for _, name := range w.Names() {
		took[name] = highest(tb, pids[name])
		tb.Logf("after the %s: %s took %d MiB", after, name, took[name]>>20)
	}
	return took
}

// readSlowly has all readers in the middle of the file: each reads a little, waits
// for all others, and reads a little more.
func readSlowly(tb testing.TB, c *client.Client, cid string) {
	var begun, all sync.WaitGroup
	begun.Add(slowReaders)
	for range slowReaders {
		all.Go(func() {
			body, _, err := c.File(tb.Context(), cid)
			if err == nil {
				defer body.Close()
				_, err = io.CopyN(io.Discard, body, 300<<10)
			}
			begun.Done()
			begun.Wait()
			if err == nil {
				_, err = io.CopyN(io.Discard, body, 3<<20)
			}
			if err != nil {
				tb.Error(err)
			}
		})
	}
	all.Wait()
}

var errLeft = errors.New("the client left")

// uploadAndLeave has all uploads half way at a time; then every other client
// leaves. Of those that stay each file is kept.
func uploadAndLeave(tb testing.TB, c *client.Client, size int) {
	var halfWay, all sync.WaitGroup
	halfWay.Add(uploaders)
	for i := range uploaders {
		all.Go(func() {
			f := nodeFile{fmt.Sprint("upload ", i), size, blob.Default.ChunkSize, blob.Default.MaxLinks}
			body := &halting{Reader: f.bytes(tb), left: size / 2, at: func() error {
				halfWay.Done()
				halfWay.Wait()
				if i%2 == 0 {
					return errLeft
				}
				return nil
			}}
			_, err := c.Add(tb.Context(), client.File{Name: "file", Open: func() (io.ReadCloser, error) { return io.NopCloser(body), nil }}, client.AddOptions{})
			if (err == nil) != (i%2 == 1) {
				tb.Errorf("upload %d: %v", i, err)
			}
			if !body.halted {
				halfWay.Done() // it failed before: the others must not wait for it
			}
		})
	}
	all.Wait()
}

// halting is a body that calls at once it is half read.
type halting struct {
	io.Reader
	left   int
	halted bool
	at     func() error
}

func (h *halting) Read(p []byte) (int, error) {
	if h.left == 0 && !h.halted {
		h.halted = true
		if err := h.at(); err != nil {
			return 0, err
		}
	}
	if !h.halted {
		p = p[:min(len(p), h.left)]
	}
	n, err := h.Reader.Read(p)
	if !h.halted {
		h.left -= n
	}
	return n, err
}

// highest is the highest resident size that a process ever had, in bytes.
func highest(tb testing.TB, pid int) int64 {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		need.Missing(tb, "/proc")
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return kb << 10
}
