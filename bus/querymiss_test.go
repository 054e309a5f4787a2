package bus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// sizes is a prober that notes how many digests it was asked for at a time.
type sizes struct {
	prober
	mu  sync.Mutex
	all []int
}

func (p *sizes) AbsentBatch(digests [][32]byte, absent []bool) []bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, len(digests))
	return p.prober.AbsentBatch(digests, absent)
}

func (p *sizes) asked() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// serveProber serves node as archive-p in w.
func serveProber(t testing.TB, w *world, node Node) *ArchiveService {
	t.Helper()
	conn := connect(t, w.server, "archive-p")
	service, err := ServeArchive(conn, node, newFakeBlobs(t), ArchiveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Drain(context.Background()) })
	return service
}

// send publishes a query and returns its correlation id.
func (w *world) send(t testing.TB, subject string, expect ...wire.ArchiveID) wire.CorrelationID {
	t.Helper()
	q := query(subject)
	q.CorrelationID = wire.NewCorrelationID()
	msg, err := queryMsg(t.Context(), q, expect)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.conn.ctl.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	return q.CorrelationID
}

// replies counts the replies to each query from now on.
func (w *world) replies(t testing.TB) func(wire.CorrelationID) int {
	t.Helper()
	var mu sync.Mutex
	heard := map[wire.CorrelationID]int{}
	if _, err := w.conn.listen(wire.SubjectReplyPrefix+"*", "", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		heard[wire.CorrelationID(m.Subject[len(wire.SubjectReplyPrefix):])]++
	}); err != nil {
		t.Fatal(err)
	}
	return func(id wire.CorrelationID) int {
		mu.Lock()
		defer mu.Unlock()
		if id != "" {
			return heard[id]
		}
		return len(heard)
	}
}

// pending waits until n queries wait on the service's subscription.
func pending(t testing.TB, s *ArchiveService, n int) {
	t.Helper()
	eventually(t, "the queries wait", func() bool {
		waiting, _, err := s.metrics.unseen.sub.Pending()
		return err == nil && waiting == n
	})
}

func outcome(s *ArchiveService, name string) int {
	return count(s.metrics.queries.WithLabelValues(name))
}

// What waits is looked for together, and nobody waits for a batch to fill.
func TestWaitingQueriesAreLookedForTogether(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	p := &sizes{prober: prober{newFakeNode(t, "archive-p")}}
	s := serveProber(t, w, p)
	w.send(t, "absent")
	eventually(t, "a lone query is looked for", func() bool { return outcome(s, "absent") == 1 })
	s.misses.mu.Lock()
	for range 2*MaxQueryBatch + 10 {
		w.send(t, "absent")
	}
	pending(t, s, 2*MaxQueryBatch+10)
	s.misses.mu.Unlock()
	eventually(t, "all are looked for", func() bool { return outcome(s, "absent") == 2*MaxQueryBatch+11 })
	if got := p.asked(); !slices.Equal(got, []int{1, MaxQueryBatch, MaxQueryBatch, 10}) {
		t.Errorf("batches of %v", got)
	}
}

// Whatever stands beside a miss in a batch gets what it would get alone.
func TestABatchMixesNothingUp(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	node := newFakeNode(t, "archive-p")
	s := serveProber(t, w, prober{node})
	if _, err := node.Put(t.Context(), note("there", "b")); err != nil {
		t.Fatal(err)
	}
	replies := w.replies(t)
	kinds := []struct {
		subject string
		expect  []wire.ArchiveID
		replies int
	}{
		{"absent", nil, 0},
		{"there", []wire.ArchiveID{"archive-b"}, 1},
		{"absent", []wire.ArchiveID{"archive-b", "archive-p"}, 1},
		{"perhaps", nil, 0},
		{"there", []wire.ArchiveID{"archive-p"}, 1},
	}
	const rounds = 100
	var ids []wire.CorrelationID
	s.misses.mu.Lock()
	for range rounds {
		for _, k := range kinds {
			ids = append(ids, w.send(t, k.subject, k.expect...))
		}
	}
	pending(t, s, rounds*len(kinds))
	s.misses.mu.Unlock()
	eventually(t, "all are handled", func() bool {
		return outcome(s, "absent")+outcome(s, "silent")+outcome(s, "answered")+outcome(s, "empty") == rounds*len(kinds)
	})
	eventually(t, "all answers have come", func() bool { return replies("") == 3*rounds })
	for i, id := range ids {
		if got := replies(id); got != kinds[i%len(kinds)].replies {
			t.Fatalf("query %d, %+v: %d replies", i, kinds[i%len(kinds)], got)
		}
	}
}

func TestDrainAnswersTheQueriesThatWait(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	node := newFakeNode(t, "archive-p")
	s := serveProber(t, w, prober{node})
	if _, err := node.Put(t.Context(), note("there", "b")); err != nil {
		t.Fatal(err)
	}
	replies := w.replies(t)
	s.misses.mu.Lock()
	for range MaxQueryBatch * 3 / 2 {
		w.send(t, "there")
	}
	pending(t, s, MaxQueryBatch*3/2)
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	s.misses.mu.Unlock()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	eventually(t, "all are answered", func() bool { return replies("") == MaxQueryBatch*3/2 })
}

// A subscription that ends while more was to come leaves nothing behind.
func TestWhatIsHeldWhenTheSubscriptionEndsIsAnswered(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	node := newFakeNode(t, "archive-p")
	s := serveProber(t, w, prober{node})
	if _, err := node.Put(t.Context(), note("there", "b")); err != nil {
		t.Fatal(err)
	}
	s.misses.mu.Lock()
	s.misses.left = MaxQueryBatch
	s.misses.mu.Unlock()
	w.send(t, "there")
	eventually(t, "the query is held", func() bool {
		s.misses.mu.Lock()
		defer s.misses.mu.Unlock()
		return s.misses.n == 1
	})
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := outcome(s, "answered"); got != 1 {
		t.Errorf("%d answers", got)
	}
}

func TestAMissAllocatesNothing(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	s := serveProber(t, w, prober{newFakeNode(t, "archive-p")})
	q := query("absent")
	q.CorrelationID, q.Kinds = wire.NewCorrelationID(), []wire.Kind{}
	msg, err := queryMsg(t.Context(), q, []wire.ArchiveID{"archive-a", "archive-b"})
	if err != nil {
		t.Fatal(err)
	}
	msg.Sub = s.metrics.unseen.sub // as one that came
	if n := testing.AllocsPerRun(1000, func() { s.onQuery(msg) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := outcome(s, "absent"); got < 1000 {
		t.Errorf("%d misses", got)
	}
}

// A flood against an archive that can not read: what finds no room is counted, it
// is no answer, and above all no empty one.
func TestDroppedQueriesAreNoAnswers(t *testing.T) {
	const flood = 10_000
	release := make(chan struct{})
	var asked atomic.Int64
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		s.node.onAnswer = func(ctx context.Context, _ wire.Query) error {
			asked.Add(1)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end)
	s := w.sites[0].service
	replies := w.replies(t)
	for range flood {
		w.send(t, "x", "archive-a")
	}
	eventually(t, "the flood is over", func() bool {
		return outcome(s, "dropped") >= flood-MaxQueuedQueries-queryWorkers && asked.Load() >= queryWorkers
	})
	one := &receipts.Gatherer{Asker: w.archives, Roster: enrolled{"archive-a"}, Wait: 20 * time.Millisecond}
	found, err := one.Gather(t.Context(), digestOf("x"), tenantA, nil)
	if err != nil || found.Complete || !slices.Equal(found.Missing, []wire.ArchiveID{"archive-a"}) || found.Reason != wire.ReasonDeadline {
		t.Errorf("a query that was dropped: %+v, %v", found, err)
	}
	end()
	handled := func() (n int) {
		for _, o := range []string{"empty", "dropped", "expired"} {
			n += outcome(s, o)
		}
		return n
	}
	eventually(t, "every query has its outcome", func() bool { return handled() == flood+1 })
	if err := w.sites[0].conn.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answers have come", func() bool { return replies("") == outcome(s, "empty") })
	if got := outcome(s, "dropped"); got < flood-MaxQueuedQueries-queryWorkers {
		t.Errorf("%d dropped", got)
	}
	if got := replies(""); got != outcome(s, "empty") || got > int(asked.Load()) {
		t.Errorf("%d replies, %d answers, %d asked", got, outcome(s, "empty"), asked.Load())
	}
}

// What nats.go drops because too many wait is counted, and stays so.
func TestQueriesThatFindNoPlaceOnTheSubscriptionAreCounted(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	s := serveProber(t, w, prober{newFakeNode(t, "archive-p")})
	if err := s.metrics.unseen.sub.SetPendingLimits(10, pendingBytes); err != nil {
		t.Fatal(err)
	}
	s.misses.mu.Lock()
	for range 100 {
		w.send(t, "absent")
	}
	eventually(t, "the drops are counted", func() bool { return s.metrics.unseen.read() == 90 })
	s.misses.mu.Unlock()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if unseen, absent, all := s.metrics.unseen.read(), outcome(s, "absent"), s.conn.metrics.dropped.total(); unseen != 90 || absent != 10 || all != 90 {
		t.Errorf("%v unseen, %d absent, %d dropped in all", unseen, absent, all)
	}
}
