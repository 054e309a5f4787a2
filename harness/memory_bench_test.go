package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// BenchmarkArchiveMemory fills one archive process with 100,000 records of 512
// bytes, or with VERAE_LONG a million, and reports what it holds in memory then,
// and after it was started again, filter loaded; the limit is 300 MB. The bytes
// that it wrote to disk stand beside those of the records' bodies. Run it with
// -benchtime 1x.
func BenchmarkArchiveMemory(b *testing.B) {
	for b.Loop() {
		w, err := world.Start(b.Context(), world.Config{Dir: b.TempDir(), Archives: []wire.ArchiveID{"archive-a"}, Env: []string{"NATS_URL="}})
		if err != nil {
			b.Fatal(err)
		}
		records := need.Rounds(100_000, 1_000_000)
		putNotes(b, w.Ready().NATSURL, records)
		pid := w.Ready().Archives[0].PID
		b.ReportMetric(float64(resident(b, pid))/1e6, "MB-filled")
		b.ReportMetric(float64(written(b, pid))/float64(records*noteBytes), "write-amplification")
		if err := w.Restart(b.Context(), "archive-a"); err != nil {
			b.Fatal(err)
		}
		putNotes(b, w.Ready().NATSURL, 1) // it serves; its filter is loaded within a second or two
		time.Sleep(5 * time.Second)
		b.ReportMetric(float64(resident(b, w.Ready().Archives[0].PID))/1e6, "MB-restarted")
		b.ReportMetric(300, "MB-limit")
		stopWorld(b, w)
	}
}

const noteBytes = 512

// putNotes puts records of noteBytes each into archive-a, many at a time.
func putNotes(b *testing.B, url string, records int) {
	b.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	run := time.Now().UnixNano()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(records); i = next.Add(1) {
				body := fmt.Sprintf("%0*d", noteBytes, i)
				put := wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{
					Kind: "note", SHA256: sum(fmt.Appendf(nil, "%d %d", run, i)), TenantID: "acme", Body: []byte(body),
				}}
				if err := putNote(nc, put); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func putNote(nc *nats.Conn, put wire.Put) error {
	data, err := wire.Encode(put)
	if err != nil {
		return err
	}
	for { // a burst may be too much at once: it is told when to come again
		msg, err := nc.Request(wire.SubjectPutPrefix+"archive-a", data, time.Minute)
		if err != nil {
			return err
		}
		if msg.Header.Get(wire.HeaderProblem) == "" {
			return nil
		}
		problem, err := wire.Decode[wire.Problem](msg.Data)
		if err != nil || problem.RetryAfterMs == 0 {
			return fmt.Errorf("refused: %s, %v", msg.Data, err)
		}
		time.Sleep(time.Duration(problem.RetryAfterMs) * time.Millisecond)
	}
}

// written is how many bytes a process has had written to disk.
func written(b *testing.B, pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		b.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "\nwrite_bytes: ")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Error(err)
	}
	return n
}
