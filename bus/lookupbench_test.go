package bus

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// Lookups at three real archives that are mirrored: of what nobody has, and of what
// two have, so that only those are named and asked, in turns with one raw request/reply
// of the same sizes, which is the limit, and with one that everybody hears. Then
// archive-c dies.
func BenchmarkLookupWithMirrors(b *testing.B) {
	f, w := mirroredFleet(b, time.Minute, "archive-a", "archive-b", "archive-c")
	for _, id := range w.roster.Enrolled() {
		w.trusts(b, id)
	}
	put := note("subject", "a body of a usual size, about as long as some metadata would be {}")
	for _, id := range []wire.ArchiveID{"archive-a", "archive-b"} {
		if _, err := w.archives.Put(b.Context(), id, put); err != nil {
			b.Fatal(err)
		}
	}
	q := query("subject")
	q.CorrelationID = wire.NewCorrelationID()
	answer, _, err := f.depots[0].node.Answer(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	request, reply := encode(b, q), encode(b, answer)
	peer := connect(b, f.server, "peer")
	if _, err := peer.listen("raw", "", func(m *nats.Msg) { m.Respond(reply) }); err != nil {
		b.Fatal(err)
	}
	g := &receipts.Gatherer{Asker: w.archives, Roster: w.roster, Mirrors: w.mirrors, Wait: waitArchive, Direct: 17}
	everybody := &receipts.Gatherer{Asker: w.archives, Roster: w.roster, Mirrors: w.mirrors, Wait: waitArchive}
	lookup := func(b *testing.B, g *receipts.Gatherer, d wire.Digest, records int, complete bool) time.Duration {
		start := time.Now()
		found, err := g.Gather(b.Context(), d, tenantA, nil)
		if took := time.Since(start); err == nil && len(found.Records) == records && found.Complete == complete {
			return took
		}
		b.Fatalf("found %+v, %v", found, err)
		return 0
	}
	run := func(name string, complete bool) {
		b.Run(name, func(b *testing.B) {
			var raws, hits, broadcasts, misses []time.Duration
			for i := range b.N {
				start := time.Now()
				if _, err := w.conn.ctl.RequestWithContext(b.Context(), "raw", request); err != nil {
					b.Fatal(err)
				}
				raws = append(raws, time.Since(start))
				hits = append(hits, lookup(b, g, q.SHA256, 1, complete))
				broadcasts = append(broadcasts, lookup(b, everybody, q.SHA256, 1, complete))
				misses = append(misses, lookup(b, g, digestOf(fmt.Sprint("absent ", i)), 0, complete))
			}
			b.ReportMetric(p50(raws), "ns-p50-raw-limit")
			b.ReportMetric(p50(hits), "ns-p50-hit")
			b.ReportMetric(p50(hits)/p50(raws), "x-limit-hit")
			b.ReportMetric(p50(broadcasts), "ns-p50-broadcast")
			b.ReportMetric(p50(broadcasts)/p50(raws), "x-limit-broadcast")
			b.ReportMetric(p99(raws), "ns-p99-raw-limit")
			b.ReportMetric(p99(hits), "ns-p99-hit")
			b.ReportMetric(p99(hits)/p99(raws), "x-limit-p99-hit")
			b.ReportMetric(p50(misses), "ns-p50-miss")
			b.ReportMetric(p99(misses), "ns-p99-miss")
		})
	}
	run("all alive", true)
	b.Run("nobody has it", func(b *testing.B) {
		for i := range b.N {
			lookup(b, g, digestOf(fmt.Sprint("absent ", i)), 0, true)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lookups/s")
	})
	d := f.depots[2]
	d.stop(b)
	eventually(b, "archive-c is not heard", func() bool { return len(w.roster.unheard([]wire.ArchiveID{"archive-c"})) == 1 })
	run("one is dead", false)
}

// Two of 64 archives have it, by the mirrors: everybody is asked, or those alone.
func BenchmarkDirectedAmong64(b *testing.B) {
	w := startWorld(b, 64, patient, func(i int, s *site) {
		s.node.id = wire.ArchiveID(fmt.Sprintf("archive-%02d", i))
	})
	for i, s := range w.sites {
		w.ids[i] = s.node.id
		service, err := ServeSync(s.conn, SyncConfig{Node: &fakeSync{fakeNode: s.node}, Blobs: newFakeBlobs(b), Queries: s.service})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { service.Drain(b.Context()) })
	}
	for _, s := range w.sites[:2] {
		if _, err := w.archives.Put(b.Context(), s.node.id, note("subject", "body")); err != nil {
			b.Fatal(err)
		}
	}
	silent := all{}
	for _, id := range w.ids[2:] {
		silent = append(silent, receipts.Silence{ID: id, Seq: 9})
	}
	broadcast := &receipts.Gatherer{Asker: w.archives, Roster: enrolled(w.ids), Mirrors: silent, Wait: time.Minute}
	directed := &receipts.Gatherer{Asker: w.archives, Roster: enrolled(w.ids), Mirrors: silent, Wait: time.Minute, Direct: 1}
	for name, g := range map[string]*receipts.Gatherer{"broadcast": broadcast, "directed": directed} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				found, err := g.Gather(b.Context(), digestOf("subject"), tenantA, nil)
				if err != nil || len(found.Records) != 1 || found.Replied != 2 || !found.Complete {
					b.Fatalf("%+v, %v", found, err)
				}
				took = append(took, time.Since(start))
			}
			b.ReportMetric(p50(took), "ns-p50")
			b.ReportMetric(p99(took), "ns-p99")
		})
	}
}

// all are mirrors that always deny what these archives have.
type all []receipts.Silence

func (a all) Silent(wire.TenantID, wire.Digest, []wire.ArchiveID) []receipts.Silence { return a }
func (all) Contradicted(receipts.Silence, wire.RecordID)                             {}

// Durable puts into real archives on disk, of which nobody, one and three aggregators
// have leases, in turns.
func BenchmarkDurablePutWithHolders(b *testing.B) {
	holders := []int{0, 1, 3}
	var nodes []*archive.Node
	for _, n := range holders {
		nodes = append(nodes, heldNode(b, n))
	}
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			var mu sync.Mutex
			took, whole := make([][]time.Duration, len(nodes)), make([]time.Duration, len(nodes))
			const turns = 10
			for turn := range turns {
				for k, node := range nodes {
					var wg sync.WaitGroup
					begin := time.Now()
					for range writers {
						wg.Go(func() {
							for range max(1, b.N/turns/writers) {
								put := note(string(wire.NewPutID()), "a body of a usual size, about as long as some metadata would be {}")
								start := time.Now()
								_, err := node.Put(b.Context(), put)
								mu.Lock()
								took[k] = append(took[k], time.Since(start))
								mu.Unlock()
								if err != nil {
									b.Error(turn, err)
									return
								}
							}
						})
					}
					wg.Wait()
					whole[k] += time.Since(begin)
				}
			}
			rate := func(k int) float64 { return float64(len(took[k])) / whole[k].Seconds() }
			for k, n := range holders {
				b.ReportMetric(p50(took[k])/1e3, fmt.Sprintf("us-p50-%d", n))
				b.ReportMetric(p50(took[k])/p50(took[0]), fmt.Sprintf("x-p50-%d", n))
				b.ReportMetric(rate(k), fmt.Sprintf("puts/s-%d", n))
				b.ReportMetric(rate(k)/rate(0), fmt.Sprintf("x-puts/s-%d", n))
			}
		})
	}
}

// heldNode is an archive that some aggregators have leases of.
func heldNode(b *testing.B, holders int) *archive.Node {
	b.Helper()
	f, w := mirroredFleet(b, time.Minute, "archive-a")
	w.trusts(b, "archive-a")
	node := f.depots[0].node
	if holders == 0 {
		wantNil(b, w.mirrors.Close())
		eventually(b, "no lease is out", node.Feed().Idle)
	}
	for i := range max(holders-1, 0) {
		m, err := Follow(connect(b, f.server, fmt.Sprint("aggregator-", i)), f.roster, MirrorConfig{Secret: w.mirrors.cfg.Secret})
		wantNil(b, err)
		b.Cleanup(func() { m.Close() })
		(&watcher{mirrors: m, roster: f.roster}).trusts(b, "archive-a")
	}
	if n := node.Feed().Stats().Holders; n != holders {
		b.Fatalf("%d holders", n)
	}
	return node
}
