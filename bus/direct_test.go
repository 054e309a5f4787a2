package bus

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// direct has archives of w take questions on their ctl subjects.
func (w *world) direct(t *testing.T, sites ...*site) {
	t.Helper()
	for _, s := range sites {
		service, err := ServeSync(s.conn, SyncConfig{Node: &fakeSync{fakeNode: s.node}, Blobs: newFakeBlobs(t), Queries: s.service})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { service.Drain(context.Background()) })
	}
}

// heard is what comes of a direct question until who is expected has answered and
// who is gone is known.
func (w *world) heard(t *testing.T, named []wire.ArchiveID, alone bool, answers, gone int) (records map[wire.ArchiveID]int, away []wire.ArchiveID) {
	t.Helper()
	next, stop, err := w.archives.Ask(t.Context(), query("subject"), named, alone)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	records = map[wire.ArchiveID]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(records) < answers || len(away) < gone {
		switch r, id, ok := next(ctx); {
		case !ok:
			t.Fatalf("%v answered, %v are gone", records, away)
		case id != "":
			away = append(away, id)
		default:
			records[r.ArchiveID] = len(r.Records)
		}
	}
	slices.Sort(away)
	return records, away
}

// A question to the named alone is heard by nobody else, and of who is not there
// the server's word comes at once.
func TestDirectQuestionsReachTheNamedAlone(t *testing.T) {
	w := startWorld(t, 3, patient, nil)
	w.direct(t, w.sites...)
	for _, id := range w.ids {
		if _, err := w.archives.Put(t.Context(), id, note("subject", "body")); err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan *nats.Msg, 8)
	if _, err := w.conn.ctl.ChanSubscribe(wire.SubjectQuery, heard); err != nil {
		t.Fatal(err)
	}
	records, gone := w.heard(t, []wire.ArchiveID{"archive-a", "archive-c", "archive-x", "archive-y"}, true, 2, 2)
	if diff := cmp.Diff(map[wire.ArchiveID]int{"archive-a": 1, "archive-c": 1}, records); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]wire.ArchiveID{"archive-x", "archive-y"}, gone); diff != "" {
		t.Error(diff)
	}
	if err := w.conn.ctl.Flush(); err != nil || len(heard) != 0 || w.sites[1].node.queries != 0 {
		t.Errorf("%v; %d queries to everybody, %d to an archive that was not named", err, len(heard), w.sites[1].node.queries)
	}
	if n := count(w.archives.metrics.gone); n != 2 {
		t.Errorf("%d counted as gone", n)
	}
}

// sleepy is a static ranker that has not heard some of its archives.
type sleepy struct {
	static
	silent []wire.ArchiveID
}

func (s sleepy) unheard(ids []wire.ArchiveID) []wire.ArchiveID {
	return slices.DeleteFunc(slices.Clone(ids), func(id wire.ArchiveID) bool { return !slices.Contains(s.silent, id) })
}

// TestArchivesThatWereNotHeardAreAskedWhetherTheyAreThere: beside a question to
// everybody too. One that is there answers, and is not gone.
func TestArchivesThatWereNotHeardAreAskedWhetherTheyAreThere(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w := startWorld(t, 2, patient, nil)
		w.direct(t, w.sites...)
		named := append(slices.Clone(w.ids), "archive-x", "archive-y")
		w.archives.ranker = sleepy{static(named), []wire.ArchiveID{"archive-b", "archive-x"}}
		gone := []wire.ArchiveID{"archive-x"}
		if alone {
			gone = append(gone, "archive-y") // the question itself went to each
		}
		records, away := w.heard(t, named, alone, 2, len(gone))
		if diff := cmp.Diff([]wire.ArchiveID{"archive-a", "archive-b"}, slices.Sorted(maps.Keys(records))); diff != "" {
			t.Errorf("alone: %v: %s", alone, diff)
		}
		if diff := cmp.Diff(gone, away); diff != "" {
			t.Errorf("alone: %v: %s", alone, diff)
		}
	}
}

// Whoever heard a question can send a message that says that nobody listens. That
// takes no archive out of it, and a word about somebody else takes nobody out.
func TestNobodyTakesAnArchiveOutOfAQuestion(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w := startWorld(t, 1, patient, nil)
		w.direct(t, w.sites...)
		q := query("subject")
		q.CorrelationID = "the-query"
		next, stop, err := w.archives.Ask(t.Context(), q, w.ids, alone)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		forger := connect(t, w.server, "forger").ctl
		for _, subject := range []string{wire.SubjectCtlPrefix + "archive-a", wire.SubjectCtlPrefix + "archive-a", wire.SubjectCtlPrefix + "archive-x", wire.SubjectQuery, ""} {
			msg := &nats.Msg{Subject: wire.SubjectReplyPrefix + "the-query", Header: nats.Header{"Status": {"503"}}}
			if subject != "" {
				msg.Header.Set(headerSubject, subject)
			}
			if err := forger.PublishMsg(msg); err != nil {
				t.Fatal(err)
			}
		}
		// The probe is a question as well: it is answered a second time.
		for range 2 {
			if r := await(t, next); r.ArchiveID != "archive-a" {
				t.Errorf("alone: %v: %+v", alone, r)
			}
		}
		w.sites[0].node.mu.Lock()
		most := w.sites[0].node.queries
		w.sites[0].node.mu.Unlock()
		if want := 3; most > want {
			t.Errorf("alone: %v: the forger had the archive asked %d times", alone, most)
		}
	}
}

// An archive that answers no queries on its ctl subject refuses them, which is no
// answer; and a query that breaks the contract is dropped.
func TestDirectQuestionsThatAreNotTaken(t *testing.T) {
	w := startWorld(t, 2, patient, nil)
	w.direct(t, w.sites[1])
	service, err := ServeSync(w.sites[0].conn, SyncConfig{Node: &fakeSync{fakeNode: w.sites[0].node}, Blobs: newFakeBlobs(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Drain(context.Background()) })
	records, gone := w.heard(t, []wire.ArchiveID{"archive-a", "archive-b"}, true, 1, 0)
	if records["archive-a"] != 0 || len(records) != 1 || len(gone) != 0 {
		t.Errorf("answers %v, gone %v", records, gone)
	}
	refused := service.asked.WithLabelValues(wire.OpDirect, fault.Invalid.String())
	eventually(t, "the refusal is counted", func() bool { return count(refused) == 1 })
	msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + "archive-b", Data: []byte("{"), Header: nats.Header{wire.HeaderOp: {wire.OpDirect}}}
	if err := w.conn.ctl.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	malformed := w.sites[1].service.metrics.queries.WithLabelValues("malformed")
	eventually(t, "the query is dropped", func() bool { return count(malformed) == 1 })
}

// What ends a question ends the probes too, and one that can not be asked leaves
// nothing behind.
func TestDirectQuestionsEnd(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	w.archives.ranker = sleepy{static(w.ids), w.ids}
	if _, err := w.sites[0].conn.ctl.Subscribe(wire.SubjectCtlPrefix+"archive-a", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := w.sites[0].conn.ctl.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	next, stop, err := w.archives.Ask(ctx, query("x"), w.ids, true)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan bool)
	go func() { _, _, ok := next(t.Context()); over <- ok }()
	cancel()
	if <-over {
		t.Error("a word of nobody")
	}
	eventually(t, "the question is over", func() bool { return w.openAsks() == 0 })
	stop()
	if _, _, err := w.archives.Ask(t.Context(), wire.Query{}, w.ids, true); err == nil {
		t.Error("a query that breaks the contract was sent")
	}
	if err := w.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnected", func() bool { return !w.conn.ctl.IsConnected() })
	w.archives.ranker = static(w.ids)
	for _, alone := range []bool{false, true} {
		if _, _, err := w.archives.Ask(t.Context(), query("x"), w.ids, alone); err == nil || w.openAsks() != 0 {
			t.Errorf("alone: %v: %v, %d questions left open", alone, err, w.openAsks())
		}
	}
}

// A roster tells who said nothing lately, of those that it knows.
func TestRosterTellsWhoWasNotHeard(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "boot"), helloOf("archive-b", "boot"))
	asked := []wire.ArchiveID{"archive-a", "archive-b", "archive-x"}
	if got := b.unheard(asked); len(got) != 0 {
		t.Errorf("%v said something", got)
	}
	b.now = b.now.Add(HelloTimeout + 1)
	b.say(helloOf("archive-b", "boot"))
	if diff := cmp.Diff([]wire.ArchiveID{"archive-a"}, b.unheard(asked)); diff != "" {
		t.Error(diff)
	}
	b.open()
	if diff := cmp.Diff([]wire.ArchiveID{"archive-a", "archive-b"}, b.unheard(asked)); diff != "" {
		t.Errorf("after a restart: %s", diff)
	}
}
