package bus

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// p50 returns the median and leaves durations sorted.
func p50(durations []time.Duration) float64 {
	slices.Sort(durations)
	return float64(durations[len(durations)/2])
}

// p99 is p50 for 99 of 100.
func p99(durations []time.Duration) float64 {
	slices.Sort(durations)
	return float64(durations[len(durations)*99/100])
}

// A lookup at 3 archives, all named, 2 of them with a record, against its limit:
// one raw request/reply of the same sizes. "ask" ends with the third reply,
// "lookup" with the verified records. They run in turn, so that the ratio does not
// depend on what else the machine does. "wait" is the lookup of an aggregator that
// can not know whether everybody has answered, and waits WAIT_ARCHIVE_MS.
func BenchmarkAsk(b *testing.B) {
	b.Run("tcp", func(b *testing.B) { benchAsk(b, startWorld(b, 3, patient, nil)) })
	b.Run("pipe", func(b *testing.B) { // the aggregator embeds the server
		w := startWorld(b, 3, patient, nil)
		var err error
		if w.conn, err = Connect(Config{Name: "embedding", URL: w.server.ClientURL(), InProcess: w.server}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { w.conn.Close() })
		if w.archives, err = NewArchives(w.conn, static(w.ids), patient); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { w.archives.Close() })
		benchAsk(b, w)
	})
}

func benchAsk(b *testing.B, w *world) {
	put := note("subject", "a body of a usual size, about as long as some metadata would be {}")
	for _, id := range w.ids[:2] {
		if _, err := w.archives.Put(b.Context(), id, put); err != nil {
			b.Fatal(err)
		}
	}
	q := query("subject")
	q.CorrelationID = wire.NewCorrelationID()
	request := encode(b, q)
	answer, _, err := w.sites[0].node.Answer(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	reply := encode(b, answer)
	peer := connect(b, w.server, "peer")
	if _, err := peer.listen("raw", "", func(m *nats.Msg) { m.Respond(reply) }); err != nil {
		b.Fatal(err)
	}
	// The same fan-out without any of our work: 3 subscribers, 3 answers.
	for i := range 3 {
		peer := connect(b, w.server, fmt.Sprintf("peer-%d", i))
		if _, err := peer.listen("scatter", "", func(m *nats.Msg) { m.Respond(reply) }); err != nil {
			b.Fatal(err)
		}
	}
	inbox, got := w.conn.ctl.NewInbox(), make(chan struct{}, 3)
	if _, err := w.conn.listen(inbox, "", func(*nats.Msg) { got <- struct{}{} }); err != nil {
		b.Fatal(err)
	}
	look := &receipts.Gatherer{Asker: w.archives, Roster: enrolled(w.ids), Wait: time.Minute}
	lookup := func(g *receipts.Gatherer, complete bool) time.Duration {
		start := time.Now()
		found, err := g.Gather(b.Context(), q.SHA256, q.TenantID, nil)
		if took := time.Since(start); err == nil && len(found.Records) == 1 && found.Replied == 2 && found.Complete == complete {
			return took
		}
		b.Fatalf("found %+v, %v", found, err)
		return 0
	}
	var raws, scatters, asks, lookups, waits []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := w.conn.ctl.RequestWithContext(b.Context(), "raw", request); err != nil {
			b.Fatal(err)
		}
		raws = append(raws, time.Since(start))
		start = time.Now()
		if err := w.conn.ctl.PublishRequest("scatter", inbox, request); err != nil {
			b.Fatal(err)
		}
		for range 3 {
			<-got
		}
		scatters = append(scatters, time.Since(start))
		start = time.Now()
		q.CorrelationID = ""
		next, stop, err := w.archives.Ask(b.Context(), q, w.ids, false)
		if err != nil {
			b.Fatal(err)
		}
		for range 3 {
			next(b.Context())
		}
		stop()
		asks = append(asks, time.Since(start))
		lookups = append(lookups, lookup(look, true))
	}
	wait := &receipts.Gatherer{Asker: w.archives, Roster: enrolled(w.ids), Wait: waitArchive, Unlisted: func() bool { return true }}
	for range 3 {
		waits = append(waits, lookup(wait, false))
	}
	raw, ask := p50(raws), p50(asks)
	b.ReportMetric(p50(scatters), "ns-p50-bare-scatter")
	b.ReportMetric(raw, "ns-p50-raw-limit")
	b.ReportMetric(ask, "ns-p50-ask")
	b.ReportMetric(ask/raw, "x-limit")
	b.ReportMetric(p50(lookups), "ns-p50-lookup")
	b.ReportMetric(p50(lookups)/raw, "x-limit-lookup")
	b.ReportMetric(p99(raws), "ns-p99-raw-limit")
	b.ReportMetric(p99(lookups), "ns-p99-lookup")
	b.ReportMetric(p99(lookups)/p99(raws), "x-limit-p99-lookup")
	b.ReportMetric(p50(waits)/p50(lookups), "x-wait-for-lookup")
}

// waitArchive is WAIT_ARCHIVE_MS where nothing else is set.
const waitArchive = 1500 * time.Millisecond

type enrolled []wire.ArchiveID

func (e enrolled) Enrolled() []wire.ArchiveID { return slices.Clone(e) }

// Puts of 1 KiB to an archive that stores nothing, against raw request/reply of
// the same sizes with as many in flight: what the bus adds to a put.
func BenchmarkPut(b *testing.B) {
	for _, flight := range []int{1, 16, 256} {
		w := startWorld(b, 1, patient, nil)
		put := note("subject", string(make([]byte, 1<<10)))
		ack, err := w.archives.Put(b.Context(), "archive-a", put)
		if err != nil {
			b.Fatal(err)
		}
		request, reply := encode(b, put), encode(b, ack)
		peer := connect(b, w.server, "peer")
		if _, err := peer.subscribe(peer.bulk, "raw", "", func(m *nats.Msg) { m.Respond(reply) }); err != nil {
			b.Fatal(err)
		}
		if err := peer.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("raw-limit/%d", flight), func(b *testing.B) {
			parallel(b, flight, func() error {
				_, err := w.conn.bulk.RequestWithContext(b.Context(), "raw", request)
				return err
			})
		})
		b.Run(fmt.Sprintf("put/%d", flight), func(b *testing.B) {
			parallel(b, flight, func() error {
				_, err := w.archives.Put(b.Context(), "archive-a", put)
				return err
			})
		})
	}
}

// parallel runs do on n goroutines, b.N times in all.
func parallel(b *testing.B, n int, do func() error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// A file of 64 MiB to one and to two archives that keep it in memory; the limit
// is one copy of the bytes through the server without acknowledgements.
func BenchmarkUpload(b *testing.B) {
	data := content(64 << 20)
	for _, copies := range []int{1, 2} {
		b.Run(fmt.Sprintf("copies-%d", copies), func(b *testing.B) {
			w := startWorld(b, 2, ArchivesConfig{Copies: copies}, nil)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				u, err := w.archives.OpenUpload(b.Context(), [32]byte{}, blob.Default)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := u.Write(data); err != nil {
					b.Fatal(err)
				}
				if _, err := u.Finish(b.Context()); err != nil {
					b.Fatal(err)
				}
				u.Abort()
			}
		})
	}
	b.Run("publish-limit", func(b *testing.B) {
		w := startWorld(b, 0, patient, nil)
		peer := connect(b, w.server, "peer")
		var heard atomic.Int64
		if _, err := peer.subscribe(peer.bulk, "raw", "", func(m *nats.Msg) { heard.Add(int64(len(m.Data))) }); err != nil {
			b.Fatal(err)
		}
		if err := peer.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
		want := int64(0)
		for b.Loop() {
			for piece := range slices.Chunk(data, wire.FragmentSize) {
				if err := w.conn.bulk.Publish("raw", piece); err != nil {
					b.Fatal(err)
				}
			}
			for want += int64(len(data)); heard.Load() < want; {
				time.Sleep(time.Microsecond)
			}
		}
	})
}
