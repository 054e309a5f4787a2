package bus

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// filtered is a small node behind a filter as an archive has it.
type filtered struct {
	*fakeNode
	set    *bloom.Set
	denied atomic.Int64
}

func (n *filtered) AbsentBatch(digests [][32]byte, absent []bool) []bool {
	var room [MaxQueryBatch]bloom.Verdict
	misses := int64(0)
	for _, v := range n.set.TestBatch(room[:0], digests) {
		absent = append(absent, v == bloom.Absent)
		if v == bloom.Absent {
			misses++
		}
	}
	n.denied.Add(misses)
	return absent
}

// newFilter returns a complete filter of so many random keys. All are of the same
// keys, so that what one denies is denied by all.
func newFilter(keys int) *bloom.Set {
	set := bloom.New(bloom.Params{Capacity: uint64(keys), Secret: bloom.Secret{ID: 1}})
	chaos := rand.NewPCG(1, 2)
	for range keys {
		set.Add(drawDigest(chaos))
	}
	set.Complete()
	return set
}

func drawDigest(chaos *rand.PCG) (d wire.Digest) {
	for at := 0; at < len(d); at += 8 {
		binary.LittleEndian.PutUint64(d[at:], chaos.Uint64())
	}
	return d
}

// missMessages returns messages of queries that set denies.
func missMessages(b *testing.B, set *bloom.Set, n int, chaos *rand.PCG) []*nats.Msg {
	b.Helper()
	msgs := make([]*nats.Msg, 0, n)
	for len(msgs) < n {
		q := wire.Query{CorrelationID: wire.NewCorrelationID(), SHA256: drawDigest(chaos), TenantID: tenantA}
		if set.Test(q.SHA256) != bloom.Absent {
			continue
		}
		msg, err := queryMsg(b.Context(), q, []wire.ArchiveID{"archive-a", "archive-b", "archive-c"})
		if err != nil {
			b.Fatal(err)
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

// A miss without NATS, one query at a time and those of a full batch together.
// The limit for decoding and looking is 2 us and no allocation. VERAE_LONG: ten
// million keys as well.
func BenchmarkMissHandler(b *testing.B) {
	srv := startServer(b, server.Config{})
	sizes := []int{100_000, 10_000_000}
	for _, keys := range sizes[:need.Rounds(1, 2)] {
		node := &filtered{fakeNode: newFakeNode(b, wire.ArchiveID(fmt.Sprint("archive-", keys))), set: newFilter(keys)}
		service := serveQuietly(b, srv, node)
		chaos := rand.NewPCG(3, 4)
		msgs := missMessages(b, node.set, 1000, chaos)
		for _, way := range []struct {
			name     string
			together int
		}{{"alone", 1}, {"together", MaxQueryBatch}} {
			b.Run(fmt.Sprintf("keys-%d/%s", keys, way.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%len(msgs) == 0 {
						b.StopTimer()
						renew(msgs, chaos) // else the filter's words would be in the cache
						b.StartTimer()
					}
					if service.misses.left == 0 {
						service.misses.left = way.together
					}
					service.onQuery(msgs[i%len(msgs)])
				}
				service.misses.left = 0
				service.probeRest()
				b.ReportMetric(2000, "ns-limit")
			})
		}
	}
}

// renew writes other digests into messages.
func renew(msgs []*nats.Msg, chaos *rand.PCG) {
	for _, msg := range msgs {
		at := strings.Index(string(msg.Data), `"sha256":"`) + len(`"sha256":"`)
		d := drawDigest(chaos)
		hex.Encode(msg.Data[at:], d[:])
	}
}

// serveQuietly serves node on a connection of its own, without hellos: those of a
// thousand archives to each other would be all that is measured.
func serveQuietly(t testing.TB, srv *server.Server, node Node) *ArchiveService {
	t.Helper()
	conn := connect(t, srv, string(node.Hello().ArchiveID))
	service, err := ServeArchive(conn, node, newFakeBlobs(t), ArchiveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		service.Drain(now)
	})
	conn.unsubscribe(service.hello)
	service.stop()
	return service
}

// What a query costs that every archive misses, for each that hears it, with all
// of NATS's work on both ends; the limit is 1.2 of the same with callbacks that do
// nothing but count. Both run in turn, over the same connections. ns are wall time
// on all processors, cpu-ns the time that the process had of them.
func BenchmarkMissThroughNATS(b *testing.B) {
	for _, archives := range []int{1, 1000} {
		b.Run(fmt.Sprint("archives-", archives), func(b *testing.B) { benchMissNATS(b, archives, max(20_000/archives, 100)) })
	}
}

func benchMissNATS(b *testing.B, archives, burst int) {
	const keys = 100_000
	srv := startServer(b, server.Config{})
	agg := connect(b, srv, "aggregator")
	filters := make([]*bloom.Set, min(archives, 64)) // more memory than caches have, and not all of it
	for i := range filters {
		filters[i] = newFilter(keys)
	}
	bare := make([]func() int64, archives)
	ours := make([]func() int64, archives)
	for i := range archives {
		node := &filtered{fakeNode: newFakeNode(b, wire.ArchiveID(fmt.Sprint("archive-", i))), set: filters[i%len(filters)]}
		service := serveQuietly(b, srv, node)
		var heard atomic.Int64
		if _, err := service.conn.listen("bare", "", func(*nats.Msg) { heard.Add(1) }); err != nil {
			b.Fatal(err)
		}
		bare[i], ours[i] = heard.Load, node.denied.Load
	}
	msgs := missMessages(b, filters[0], 1000, rand.NewPCG(3, 4))
	limit, figure := &spent{heard: bare}, &spent{heard: ours}
	for b.Loop() {
		limit.round(b, agg, "bare", msgs, burst)
		figure.round(b, agg, wire.SubjectQuery, msgs, burst)
	}
	n := float64(limit.want)
	b.ReportMetric(float64(limit.wall)/n, "ns-bare-limit")
	b.ReportMetric(float64(figure.wall)/n, "ns-miss")
	b.ReportMetric(float64(figure.wall)/float64(limit.wall), "x-bare")
	b.ReportMetric(float64(limit.cpu)/n, "cpu-ns-bare-limit")
	b.ReportMetric(float64(figure.cpu)/n, "cpu-ns-miss")
	b.ReportMetric(float64(figure.cpu)/float64(limit.cpu), "x-bare-cpu")
	b.ReportMetric(0, "ns/op")
}

// spent is what the rounds of one way took.
type spent struct {
	heard     []func() int64 // by each archive
	want      int64          // deliveries so far
	wall, cpu time.Duration
}

// round publishes n of msgs and waits until all archives have handled them.
func (s *spent) round(b *testing.B, from *Conn, subject string, msgs []*nats.Msg, n int) {
	began, used := time.Now(), processTime(b)
	for i := range n {
		out := *msgs[i%len(msgs)]
		out.Subject = subject
		if err := from.ctl.PublishMsg(&out); err != nil {
			b.Fatal(err)
		}
	}
	s.want += int64(n * len(s.heard))
	for total := int64(0); total < s.want; {
		time.Sleep(time.Millisecond / 4)
		total = 0
		for _, heard := range s.heard {
			total += heard()
		}
	}
	s.wall += time.Since(began)
	s.cpu += processTime(b) - used
}

// processTime is how long this process had processors for itself.
func processTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
