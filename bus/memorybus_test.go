package bus

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// A watched world is a world whose aggregator has a roster.
type watched struct {
	*world
	cfg    RosterConfig
	roster *Roster
	client *Archives
}

func startWatched(t *testing.T, n int) *watched {
	t.Helper()
	w := &watched{world: startWorld(t, n, patient, nil), cfg: RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true}}
	w.begin(t)
	return w
}

// begin starts the aggregator's side, as a new process does.
func (w *watched) begin(t *testing.T) {
	t.Helper()
	roster, err := OpenRoster(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.Create = false
	if err := roster.Listen(w.conn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { roster.Close() })
	client, err := NewArchives(w.conn, roster, patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	w.roster, w.client = roster, client
}

func (w *watched) state(id wire.ArchiveID) string {
	for _, m := range w.roster.Snapshot() {
		if m.ID == id {
			return m.State
		}
	}
	return ""
}

func (w *watched) await(t *testing.T, id wire.ArchiveID, state string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", id, state), func() bool { return w.state(id) == state })
}

// rollBack ends an archive and starts an older copy of it: its first keep
// records, and whatever it knows of itself.
func (w *watched) rollBack(t *testing.T, i, keep int, boot string) {
	t.Helper()
	old := w.sites[i]
	if err := old.service.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := newFakeNode(t, old.node.id)
	node.boot, node.records = boot, old.node.records[:keep]
	w.sites[i] = &site{node: node, blobs: old.blobs}
	w.serve(t, w.sites[i])
}

// Law 8, over a real server: an archive is stopped and comes back as an older
// copy of itself. The aggregator knows, gives it no puts, and knows after its own
// restart.
func TestLaw8RolledBackArchiveIsFoundByTheAggregator(t *testing.T) {
	w := startWatched(t, 2)
	w.await(t, "archive-a", wire.StateUp)
	w.await(t, "archive-b", wire.StateUp)
	put := func(i int) {
		t.Helper()
		for _, id := range w.ids {
			if _, err := w.client.Put(t.Context(), id, note("s", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 5 {
		put(i)
	}
	w.rollBack(t, 0, 4, "after the roll back")
	w.await(t, "archive-a", StateLost)
	if got := w.roster.Rank(digestOf("x")); len(got) != 1 || got[0] != "archive-b" {
		t.Errorf("offered: %v", got)
	}
	w.roster.Close()
	w.client.Close()
	w.begin(t)
	if w.state("archive-a") != StateLost {
		t.Error("the aggregator's restart forgot the loss")
	}
	w.await(t, "archive-b", wire.StateUp)
	eventually(t, "both are heard", func() bool { return w.roster.Speaks("archive-a", "after the roll back") })

	// Law 6: what it has is shown; that nothing else is there is not believed.
	g := &receipts.Gatherer{Asker: w.client, Roster: w.roster, Wait: time.Minute}
	found, err := g.Gather(t.Context(), digestOf("s"), tenantA, nil)
	if err != nil {
		t.Fatal(err)
	}
	if found.Complete || found.Reason == wire.ReasonAll || len(found.Missing) != 1 || found.Missing[0] != "archive-a" || len(found.Records) != 5 {
		t.Errorf("complete %v (%s), missing %v, %d records", found.Complete, found.Reason, found.Missing, len(found.Records))
	}
}

// A crash of the aggregator forgets what was acknowledged since the memory was
// last written, and nothing else: an archive that lost only that is taken for
// whole, and the job store alone knows better.
func TestCrashForgetsASecondOfMemoryAtMost(t *testing.T) {
	w := startWatched(t, 1)
	w.await(t, "archive-a", wire.StateUp)
	put := func(i int) {
		t.Helper()
		if _, err := w.client.Put(t.Context(), "archive-a", note("s", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	put(1)
	saved := func() uint64 {
		f, _, err := loadMemory(MemoryPath(w.cfg.Path), &w.roster.file)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Archives) == 0 {
			return 0
		}
		return f.Archives[0].Seq
	}
	eventually(t, "the memory is written without being asked to", func() bool { return saved() == 2 })
	// No more writes: the process dies at this moment.
	w.roster.saving.Lock()
	put(2)
	if saved() != 2 {
		t.Fatal("the memory was written")
	}
	first := w.roster
	w.rollBack(t, 0, 2, "after both crashes") // the third, acknowledged, is gone
	w.begin(t)
	w.await(t, "archive-a", wire.StateUp)
	w.rollBack(t, 0, 1, "one more is gone")
	w.await(t, "archive-a", StateLost)
	first.saving.Unlock()
}

func TestRosterIsTold(t *testing.T) {
	w := startWatched(t, 2)
	stop, err := w.roster.ServeRoster(w.conn)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	w.await(t, "archive-a", wire.StateUp)
	w.await(t, "archive-b", wire.StateUp)
	if _, err := w.client.Put(t.Context(), "archive-b", note("s", "1")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	msg, err := w.conn.ctl.RequestMsgWithContext(ctx, nats.NewMsg(wire.SubjectRosterGet))
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.Decode[wire.RosterReply](msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	want := wire.RosterMember{ID: "archive-b", Key: keyOf("archive-b"), Generation: 1, Seq: 1, State: wire.StateUp, Boot: got.Archives[1].Boot}
	if want.Boot == "" || got.Version != 2 || got.LeaseMs != 0 || len(got.Archives) != 2 || got.Archives[1] != want {
		t.Errorf("got %+v", got)
	}
}

// Over a real server: an archive that answers on its ctl subject proves its log,
// and one that has forked does not.
func TestProofsAreAskedForOverNATS(t *testing.T) {
	w := startWatched(t, 0)
	log := newBook(t, "archive-a", 1).grow(9, "log")
	fork := newBook(t, "archive-a", 1).grow(5, "log").grow(30, "fork")
	var answers *book
	size := 0
	sub, err := w.conn.bulk.Subscribe(wire.SubjectCtlPrefix+"archive-a", func(m *nats.Msg) {
		question, err := wire.Decode[wire.CtlCheckpoint](m.Data)
		if err != nil || m.Header.Get(wire.HeaderOp) != wire.OpCheckpoint {
			t.Errorf("asked %q: %v", m.Data, err)
			return
		}
		proof, err := answers.proof(question.From, size)
		if err != nil {
			t.Error(err)
			return
		}
		m.Respond(encode(t, proof))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	ask := func(h wire.Hello) {
		w.roster.hear(h)
		w.roster.mu.Lock()
		w.roster.members["archive-a"].asked = time.Time{}
		w.roster.mu.Unlock()
		for _, d := range w.roster.due() {
			w.roster.ask(t.Context(), d)
		}
	}
	answers, size = log, 9
	ask(log.hello("1", 3))
	ask(log.hello("1", 9))
	w.roster.mu.RLock()
	proved := w.roster.members["archive-a"].memory.proved.Size
	w.roster.mu.RUnlock()
	if proved != 9 || w.state("archive-a") != wire.StateUp {
		t.Fatalf("proved up to %d, %s", proved, w.state("archive-a"))
	}
	answers, size = fork, 30
	ask(fork.hello("2", 30))
	if w.state("archive-a") != StateLost {
		t.Errorf("a fork is %s", w.state("archive-a"))
	}
}
