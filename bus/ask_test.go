package bus

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// gather runs a query and collects n replies.
func gather(t testing.TB, a *Archives, q wire.Query, expect []wire.ArchiveID, n int) []wire.Reply {
	t.Helper()
	next, stop, err := a.Ask(t.Context(), q, expect, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var got []wire.Reply
	for range n {
		got = append(got, await(t, next))
	}
	return got
}

// words is the next of a question.
type words = func(context.Context) (wire.Reply, wire.ArchiveID, bool)

// await waits for a reply.
func await(t testing.TB, n words) wire.Reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, gone, ok := n(ctx)
	if !ok || gone != "" {
		t.Fatalf("no reply; %q is gone, %v", gone, ctx.Err())
	}
	return r
}

func query(subject string) wire.Query {
	return wire.Query{SHA256: digestOf(subject), TenantID: tenantA}
}

func TestNamedArchivesAnswerAndOthersOnlyHits(t *testing.T) {
	w := startWorld(t, 4, patient, nil)
	put := note("subject", "body")
	for _, id := range w.ids[:2] { // a and b have it; c and d do not
		if _, err := w.archives.Put(t.Context(), id, put); err != nil {
			t.Fatal(err)
		}
	}
	got := map[wire.ArchiveID]int{}
	for _, r := range gather(t, w.archives, query("subject"), []wire.ArchiveID{"archive-b", "archive-c"}, 3) {
		if r.Page != 1 || r.Pages != 1 || r.SHA256 != digestOf("subject") || r.Records == nil {
			t.Errorf("reply %+v", r)
		}
		got[r.ArchiveID] = len(r.Records)
	}
	// a: a hit, not named. b: a hit, named. c: named, nothing to show. d: silent.
	want := map[wire.ArchiveID]int{"archive-a": 1, "archive-b": 1, "archive-c": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	silent := w.sites[3].service.metrics.queries.WithLabelValues("silent")
	eventually(t, "d stayed silent", func() bool { return count(silent) == 1 })
}

// What is another tenant's looks exactly like what is not there.
func TestNothingToShowLooksLikeNothing(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	if _, err := w.archives.Put(t.Context(), "archive-a", note("subject", "body")); err != nil {
		t.Fatal(err)
	}
	raw := make(chan *nats.Msg, 2)
	if _, err := w.conn.ctl.ChanSubscribe(wire.SubjectReplyPrefix+"*", raw); err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for _, q := range []wire.Query{
		{SHA256: digestOf("subject"), TenantID: tenantB},
		{SHA256: digestOf("subject"), TenantID: "tenant-c"},
	} {
		gather(t, w.archives, q, w.ids, 1)
		bodies = append(bodies, string((<-raw).Data))
	}
	if bodies[0] != bodies[1] || !strings.Contains(bodies[0], `"records":[]`) {
		t.Errorf("got %q", bodies)
	}
}

func TestNobodyListeningEndsTheWait(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	next, stop, err := w.archives.Ask(t.Context(), query("x"), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if r, gone, ok := next(ctx); ok || ctx.Err() != nil {
		t.Errorf("got %+v, %q, %v", r, gone, ctx.Err())
	}
}

// A dead archive is silence, which must not look like "nobody listens".
func TestEndedContextEndsTheQuestion(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	ctx, cancel := context.WithCancel(t.Context())
	next, stop, err := w.archives.Ask(ctx, query("x"), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	eventually(t, "the query is over", func() bool { return w.openAsks() == 0 })
	if r, gone, ok := next(t.Context()); ok {
		t.Errorf("got %+v, %q", r, gone)
	}
	stop()
	stop()
}

func TestAskUnderAnEndedContextLeavesNothingOpen(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		if _, _, err := w.archives.Ask(ctx, query("x"), nil, false); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all queries are over", func() bool { return w.openAsks() == 0 })
}

func (w *world) openAsks() int {
	w.archives.replies.mu.RLock()
	defer w.archives.replies.mu.RUnlock()
	return len(w.archives.replies.open)
}

func TestAskWithoutAConnectionFailsAtOnce(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	if err := w.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnected", func() bool { return !w.conn.ctl.IsConnected() })
	_, _, err := w.archives.Ask(t.Context(), query("x"), nil, false)
	wantFault(t, err, fault.Transient, CodeDisconnected)
	if n := w.openAsks(); n != 0 {
		t.Errorf("%d queries left open", n)
	}
}

func TestQueriesThatBreakTheContractAreNotSent(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	for name, q := range map[string]wire.Query{
		"no digest":       {TenantID: tenantA},
		"no tenant":       {SHA256: digestOf("x")},
		"odd correlation": {SHA256: digestOf("x"), TenantID: tenantA, CorrelationID: "a.b"},
	} {
		if _, _, err := w.archives.Ask(t.Context(), q, nil, false); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	q := query("x")
	q.CorrelationID = "same"
	_, stop, err := w.archives.Ask(t.Context(), q, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, _, err := w.archives.Ask(t.Context(), q, nil, false); !fault.Is(err, fault.Conflict) {
		t.Errorf("a token in use: got %v", err)
	}
}

// A reply that comes after the query has ended, broken ones and a flood cost a
// counter each.
func TestStrayRepliesCostACounter(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	q := query("x")
	q.CorrelationID = "the-query"
	next, stop, err := w.archives.Ask(t.Context(), q, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	peer := w.sites[0].conn.ctl
	for _, data := range []string{"", "{", "null", `{"archiveId":1}`, "\xff"} {
		if err := peer.Publish(wire.SubjectReplyPrefix+"the-query", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.Publish(wire.SubjectReplyPrefix+"the-query", encode(t, wire.Reply{ArchiveID: "archive-a"})); err != nil {
		t.Fatal(err)
	}
	if r := await(t, next); r.ArchiveID != "archive-a" { // the good one behind the broken ones
		t.Errorf("got %+v", r)
	}
	if n := count(w.archives.metrics.badReplies.WithLabelValues("malformed")); n != 5 {
		t.Errorf("%d malformed, want 5", n)
	}
	stop()
	for _, token := range []string{"the-query", "never-was"} {
		if err := peer.Publish(wire.SubjectReplyPrefix+token, encode(t, wire.Reply{ArchiveID: "archive-a"})); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both count as late", func() bool { return count(w.archives.metrics.late) == 2 })
}

// The queue of a query is bounded; all below the bound is kept although nobody
// reads meanwhile.
func TestReplyQueueKeepsItsBoundAndGivesMemoryBack(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	stay, err := w.conn.ctl.SubscribeSync(wire.SubjectQuery) // somebody listens
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stay.Unsubscribe() }()
	for name, c := range map[string]struct {
		expect []wire.ArchiveID
		bound  int
	}{
		"named":     {[]wire.ArchiveID{"archive-a"}, maxOfOne},
		"not named": {[]wire.ArchiveID{"archive-b"}, maxOfOthers},
	} {
		t.Run(name, func(t *testing.T) {
			before := count(w.archives.metrics.badReplies.WithLabelValues("queue-full"))
			q := query("x")
			q.CorrelationID = "flooded"
			next, stop, err := w.archives.Ask(t.Context(), q, c.expect, false)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			const more = 500
			msg := &nats.Msg{Subject: wire.SubjectReplyPrefix + "flooded", Data: encode(t, wire.Reply{ArchiveID: "archive-a"})}
			for range c.bound + more {
				w.archives.replies.dispatch(msg)
			}
			if dropped := count(w.archives.metrics.badReplies.WithLabelValues("queue-full")) - before; dropped != more {
				t.Errorf("%d dropped, want %d", dropped, more)
			}
			for range c.bound {
				await(t, next)
			}
			if w.archives.held() != 0 {
				t.Errorf("%d bytes are held", w.archives.held())
			}
			big := &nats.Msg{Subject: msg.Subject, Data: make([]byte, 1<<20)}
			for range MaxQueuedReplyBytes>>20 + 2 {
				w.archives.replies.dispatch(big)
			}
			if stop(); w.archives.held() != 0 {
				t.Errorf("%d bytes are held after stop", w.archives.held())
			}
		})
	}
}

// A flood of one sender, or of all whom nobody named, leaves room for the word of
// every other, however much there is and although nobody reads meanwhile.
func TestAFloodCrowdsNobodyOut(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	stay, err := w.conn.ctl.SubscribeSync(wire.SubjectQuery) // somebody listens
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stay.Unsubscribe() }()
	large := strings.Repeat(" ", 256<<10)
	for name, flood := range map[string]func(i int) string{
		"a named archive":         func(int) string { return `{"archiveId":"archive-a","records":[]}` },
		"a named archive, large":  func(int) string { return `{"archiveId":"archive-a","records":[]}` + large },
		"a stranger":              func(int) string { return `{"archiveId":"stranger","records":[]}` },
		"many strangers":          func(i int) string { return fmt.Sprintf(`{"archiveId":"stranger-%d","records":[]}`, i) },
		"broken":                  func(int) string { return `{"archiveId":` },
		"an id without end":       func(int) string { return `{"archiveId":"` + strings.Repeat("a", 100) },
		"a named one, other form": func(int) string { return `{ "archiveId" : "archive-b" }` },
	} {
		t.Run(name, func(t *testing.T) {
			q := query("x")
			q.CorrelationID = "flooded"
			next, stop, err := w.archives.Ask(t.Context(), q, []wire.ArchiveID{"archive-a", "archive-b", "archive-c"}, false)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			send := func(data string) {
				w.archives.replies.dispatch(&nats.Msg{Subject: wire.SubjectReplyPrefix + "flooded", Data: []byte(data)})
			}
			dropped := w.archives.metrics.badReplies.WithLabelValues("queue-full")
			for i, before := 0, count(dropped); count(dropped) < before+100; i++ {
				send(flood(i))
			}
			before := count(dropped)
			for _, id := range []string{"archive-b", "archive-c"} {
				for page := range 64 {
					send(fmt.Sprintf(`{"archiveId":%q,"records":[],"page":%d,"pages":64}`, id, page+1))
				}
			}
			if n := count(dropped) - before; n != 0 {
				t.Fatalf("%d replies of others were dropped", n)
			}
			for heard := map[wire.ArchiveID]int{}; heard["archive-b"] < 64 || heard["archive-c"] < 64; {
				if r := await(t, next); r.Pages == 64 {
					heard[r.ArchiveID]++
				}
			}
		})
	}
	eventually(t, "the budget is back", func() bool { return w.archives.held() == 0 })
}

// held is what all queues hold, in bytes.
func (a *Archives) held() int64 { return a.queued.Load() + a.strange.Load() }

// What strangers send to many queries at once leaves the room of named archives
// alone.
func TestStrangersFillNoQueueButTheirs(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	stay, err := w.conn.ctl.SubscribeSync(wire.SubjectQuery) // somebody listens
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stay.Unsubscribe() }()
	send := func(id wire.CorrelationID, data []byte) {
		w.archives.replies.dispatch(&nats.Msg{Subject: wire.SubjectReplyPrefix + string(id), Data: data})
	}
	flood := []byte(`{"archiveId":"stranger","records":[]}` + strings.Repeat(" ", 1<<20))
	full := w.archives.metrics.badReplies.WithLabelValues("all-queues-full")
	for i := range 20 { // whose replies nobody takes
		q := query("x")
		q.CorrelationID = wire.CorrelationID(fmt.Sprint("slow-", i))
		_, stop, err := w.archives.Ask(t.Context(), q, []wire.ArchiveID{"archive-a"}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for range 32 {
			send(q.CorrelationID, flood)
		}
	}
	before := count(full)
	if before == 0 {
		t.Fatal("the strangers' room is not full")
	}
	named := []byte(`{"archiveId":"archive-a","records":[]}` + strings.Repeat(" ", 64<<10))
	for i := range 20 {
		for range 32 {
			send(wire.CorrelationID(fmt.Sprint("slow-", i)), named)
		}
	}
	if n := count(full) - before; n != 0 {
		t.Errorf("%d replies of a named archive were dropped", n)
	}
}

// Whoever heard a query can say that nobody did. It is asked again, and the query
// goes on.
func TestAFalseWordThatNobodyListensEndsNothing(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	q := query("x")
	q.CorrelationID = "denied"
	ctx, cancel := context.WithCancel(t.Context())
	next, stop, err := w.archives.Ask(ctx, q, []wire.ArchiveID{"archive-x"}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	liar := w.sites[0].conn.ctl
	lie := nats.NewMsg(wire.SubjectReplyPrefix + "denied")
	lie.Header.Set("Status", "503")
	for range 3 {
		if err := liar.PublishMsg(lie); err != nil {
			t.Fatal(err)
		}
	}
	answer := make(chan wire.Reply)
	go func() { r, _, _ := next(t.Context()); answer <- r }()
	heard := w.sites[0].service.metrics.silent
	eventually(t, "the archive was asked again", func() bool {
		return count(heard)+count(w.sites[0].service.metrics.queries.WithLabelValues("silent")) == 2
	})
	if err := liar.Publish(lie.Subject, encode(t, wire.Reply{ArchiveID: "archive-x"})); err != nil {
		t.Fatal(err)
	}
	if r := <-answer; r.ArchiveID != "archive-x" {
		t.Errorf("got %+v", r)
	}
	cancel()
	eventually(t, "the lie is counted once", func() bool {
		return count(w.archives.metrics.badReplies.WithLabelValues("unconfirmed-unheard")) == 1
	})
	if n := count(w.archives.metrics.unheard); n != 0 {
		t.Errorf("%d queries that nobody listened to", n)
	}
}

// NA-02: no reply is missed although the query follows at once.
func TestFiveHundredOfFiveHundredAnswered(t *testing.T) {
	w := startWorld(t, 3, patient, nil)
	for i := range 500 {
		if got := gather(t, w.archives, query(fmt.Sprint(i)), w.ids, 3); len(got) != 3 {
			t.Fatalf("query %d: %d replies", i, len(got))
		}
	}
	if n := count(w.archives.metrics.late); n != 0 {
		t.Errorf("%d late replies", n)
	}
}

// NA-01: an odd correlation id would close the connection of every archive that
// has a hit.
func TestOddCorrelationIDsAreDroppedAndConnectionsStayUp(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	if _, err := w.archives.Put(t.Context(), "archive-a", note("subject", "body")); err != nil {
		t.Fatal(err)
	}
	site := w.sites[0]
	down := 0
	site.conn.ctl.SetDisconnectErrHandler(func(*nats.Conn, error) { down++ })
	odd := []string{
		strings.Repeat("x", 5000), "a b", "a\r\nPUB x 0\r\n", "*", ">", "", "a..b", "$SYS", "ключ",
		strings.Repeat("x", 65), "a.b", ".", "abc.",
	}
	for _, id := range odd {
		body := encode(t, map[string]any{"correlationId": id, "sha256": digestOf("subject").String(), "tenantId": "tenant-a", "kinds": []string{}})
		msg := nats.NewMsg(wire.SubjectQuery)
		msg.Header.Set(wire.HeaderExpect, "archive-a")
		msg.Data = body
		if err := w.conn.ctl.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	refused := site.service.metrics.queries.WithLabelValues("bad-correlation-id")
	eventually(t, "all are counted", func() bool { return count(refused) == len(odd) })
	if got := gather(t, w.archives, query("subject"), nil, 1); len(got[0].Records) != 1 {
		t.Errorf("got %+v", got)
	}
	if down != 0 || !site.conn.Connected() || site.conn.ctl.Statistics.Reconnects != 0 {
		t.Errorf("the archive's connection went down %d times", down)
	}
	// The longest id that is allowed works.
	q := query("subject")
	q.CorrelationID = wire.CorrelationID(strings.Repeat("x", wire.MaxCorrelationID))
	gather(t, w.archives, q, nil, 1)
}

// The answer goes where the correlation id says, whatever the reply field says.
func TestReplyFieldIsIgnoredUnlessItAgrees(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	if _, err := w.archives.Put(t.Context(), "archive-a", note("subject", "body")); err != nil {
		t.Fatal(err)
	}
	wrong, err := w.conn.ctl.SubscribeSync("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	right, err := w.conn.ctl.SubscribeSync(wire.SubjectReplyPrefix + "mine")
	if err != nil {
		t.Fatal(err)
	}
	q := query("subject")
	q.CorrelationID = "mine"
	if err := w.conn.ctl.PublishRequest(wire.SubjectQuery, "elsewhere", encode(t, q)); err != nil {
		t.Fatal(err)
	}
	if _, err := right.NextMsgWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := wrong.Pending(); err != nil || n != 0 {
		t.Errorf("%d messages elsewhere, %v", n, err)
	}
}

// NA-07: a burst against a slow disk. A query is answered or counted as dropped;
// none is taken for a miss.
func TestBurstIsAnsweredOrCounted(t *testing.T) {
	const burst = 10_000
	disk := make(chan struct{})
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		s.node.onAnswer = func(ctx context.Context, _ wire.Query) error { <-disk; return nil }
	})
	queries := w.sites[0].service.metrics.queries
	open := sync.OnceFunc(func() { close(disk) })
	t.Cleanup(open)
	for i := range burst {
		q := query(fmt.Sprint(i))
		q.CorrelationID = wire.NewCorrelationID()
		msg := nats.NewMsg(wire.SubjectQuery)
		msg.Header.Set(wire.HeaderExpect, "archive-a")
		msg.Data = encode(t, q)
		if err := w.conn.ctl.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	dropped := queries.WithLabelValues("dropped")
	eventually(t, "the surplus is dropped", func() bool { return count(dropped) >= burst-MaxQueuedQueries-queryWorkers })
	open()
	eventually(t, "every query is accounted for", func() bool {
		n := 0
		for _, outcome := range []string{"dropped", "empty", "expired"} {
			n += count(queries.WithLabelValues(outcome))
		}
		return n == burst
	})
	for _, outcome := range []string{"silent", "absent"} {
		if n := count(queries.WithLabelValues(outcome)); n != 0 {
			t.Errorf("%d queries taken for a miss (%s)", n, outcome)
		}
	}
	if n := w.sites[0].conn.metrics.dropped.total(); n != 0 {
		t.Errorf("%d dropped by the client library", n)
	}
}

func TestFailedAndExpiredQueriesStayUnanswered(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		deadline string
		outcome  string
	}{
		"internal": {fault.New(fault.Corrupt, "", "sst: checksum"), "", "failed"},
		"late":     {nil, "0", "expired"},
		"too slow": {context.DeadlineExceeded, "20", "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWorld(t, 1, patient, func(_ int, s *site) {
				s.node.onAnswer = func(ctx context.Context, _ wire.Query) error {
					if tc.deadline == "20" {
						<-ctx.Done()
					}
					return tc.err
				}
			})
			q := query("x")
			q.CorrelationID = "unanswered"
			msg := nats.NewMsg(wire.SubjectQuery)
			msg.Data = encode(t, q)
			msg.Header.Set(wire.HeaderExpect, "archive-a")
			msg.Header.Set(wire.HeaderDeadline, tc.deadline)
			if err := w.conn.ctl.PublishMsg(msg); err != nil {
				t.Fatal(err)
			}
			m := &w.sites[0].service.metrics
			eventually(t, "it is counted", func() bool { return count(m.queries.WithLabelValues(tc.outcome)) == 1 })
			if count(m.pages) != 0 {
				t.Error("it was answered")
			}
		})
	}
}

// A filter miss ends in the callback, unless a word is expected.
type prober struct{ *fakeNode }

func (p prober) AbsentBatch(digests [][32]byte, absent []bool) []bool {
	for _, d := range digests {
		absent = append(absent, d == digestOf("absent"))
	}
	return absent
}

func TestSurelyAbsentKeysAreNotLookedUp(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	node := newFakeNode(t, "archive-p")
	conn := connect(t, w.server, "archive-p")
	service, err := ServeArchive(conn, prober{node}, newFakeBlobs(t), ArchiveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Drain(context.Background()) })
	_, stop, err := w.archives.Ask(t.Context(), query("absent"), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	eventually(t, "the miss is counted", func() bool { return count(service.metrics.silent) == 1 })
	if node.queries != 0 {
		t.Error("the node was asked")
	}
	if got := gather(t, w.archives, query("absent"), []wire.ArchiveID{"archive-p"}, 1); len(got[0].Records) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestDeadlineAndExpectationTravel(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	sub, err := w.conn.ctl.SubscribeSync(wire.SubjectQuery)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, stop, err := w.archives.Ask(ctx, query("x"), []wire.ArchiveID{"archive-a", "archive-b"}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	msg, err := sub.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q, err := wire.Decode[wire.Query](msg.Data)
	if err != nil || msg.Reply != wire.SubjectReplyPrefix+string(q.CorrelationID) {
		t.Errorf("reply field %q of query %s, %v", msg.Reply, msg.Data, err)
	}
	if got := msg.Header.Get(wire.HeaderExpect); got != "archive-a,archive-b" {
		t.Errorf("expect %q", got)
	}
	if left := timeLeft(msg.Header.Get(wire.HeaderDeadline)); left != DefaultQueryTime { // capped
		t.Errorf("deadline %q", msg.Header.Get(wire.HeaderDeadline))
	}
}

func TestHeadersAreReadWithCare(t *testing.T) {
	for list, want := range map[string]bool{
		"archive-a": true, "archive-b,archive-a": true, " archive-a ,x": true,
		"": false, "archive-aa": false, "archive": false, "archive-b": false, ",,": false,
	} {
		if got := names(list, "archive-a"); got != want {
			t.Errorf("names(%q) = %v", list, got)
		}
	}
	for header, want := range map[string]time.Duration{
		"": DefaultQueryTime, "x": DefaultQueryTime, "-1": DefaultQueryTime, "99999999999999999999": DefaultQueryTime,
		"0": 0, "1500": 1500 * time.Millisecond, "5000": DefaultQueryTime, "5001": DefaultQueryTime,
	} {
		if got := timeLeft(header); got != want {
			t.Errorf("timeLeft(%q) = %v, want %v", header, got, want)
		}
	}
}
