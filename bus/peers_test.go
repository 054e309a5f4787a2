package bus

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// still is a clock that stands: nobody is forgotten because the machine is slow.
func still() time.Time { return time.Unix(1, 0) }

// newTestPeers hears archives for a program that asks in the name of self.
func newTestPeers(t testing.TB, conn *Conn, self wire.ArchiveID) *Peers {
	t.Helper()
	p, err := NewPeers(conn, PeersConfig{Self: self, Now: still})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// sayAs publishes a hello.
func sayAs(t testing.TB, conn *Conn, hello wire.Hello) {
	t.Helper()
	if err := conn.ctl.Publish(wire.SubjectHelloPrefix+string(hello.ArchiveID), encode(t, hello)); err != nil {
		t.Fatal(err)
	}
}

// An archive remembers the most that it heard of every generation and key of
// another, and a program that is no archive learns it from all that remember.
func TestPeersRememberTheMostThatTheyHeard(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	first, second, thief := newBook(t, "archive-a", 1).grow(30, "x"), newBook(t, "archive-a", 2).grow(40, "y"), newBook(t, "archive-a", 2).grow(50, "z")
	thief.key = newBook(t, "thief", 2).key
	speaker := connect(t, s, "archive-a")
	for _, id := range []wire.ArchiveID{"archive-b", "archive-c"} {
		conn := connect(t, s, string(id))
		node := newFakeNode(t, id)
		peers := newTestPeers(t, conn, id)
		service, err := ServeSync(conn, SyncConfig{Node: &fakeSync{fakeNode: node}, Blobs: newFakeBlobs(t), Peers: peers})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { service.Drain(context.Background()) })
		speak, err := ServeArchive(conn, node, newFakeBlobs(t), ArchiveConfig{Now: still})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { speak.Drain(context.Background()) })
		forged := first.hello("1", 30)
		forged.Checkpoint, forged.Seq = thief.note(50), 31
		for _, h := range []wire.Hello{first.hello("1", 10), first.hello("1", 20), first.hello("1", 5), forged, second.hello("2", 40), thief.hello("3", 50), second.hello("2", 33)} {
			sayAs(t, speaker, h)
		}
		if err := speaker.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all hellos are heard", func() bool { return len(peers.memoryOf("archive-a")) == 3 })
	}
	repair := newTestPeers(t, connect(t, s, "repair"), "archive-a")
	eventually(t, "both are heard", func() bool { return len(repair.Alive()) == 2 })
	got, err := repair.Remembered(t.Context(), "archive-a")
	if err != nil {
		t.Fatal(err)
	}
	var want []wire.Remembered
	at := wire.At(still())
	for _, by := range []wire.ArchiveID{"archive-b", "archive-c"} {
		want = append(want,
			wire.Remembered{By: by, ArchiveID: "archive-a", Key: second.public(), Generation: 2, Seq: second.hello("", 40).Seq, Checkpoint: second.note(40), HeardAt: at},
			wire.Remembered{By: by, ArchiveID: "archive-a", Key: thief.public(), Generation: 2, Seq: thief.hello("", 50).Seq, Checkpoint: thief.note(50), HeardAt: at},
			wire.Remembered{By: by, ArchiveID: "archive-a", Key: first.public(), Generation: 1, Seq: 31, Checkpoint: first.note(20), HeardAt: at})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
	if got, err := repair.Remembered(t.Context(), "archive-z"); err != nil || len(got) != 0 {
		t.Errorf("of a stranger: %v, %v", got, err)
	}
	roster := wire.RosterReply{Archives: []wire.RosterMember{
		{ID: "archive-a", Key: "k", Generation: 2, Seq: 99, Checkpoint: "note", State: StateSilent}, {ID: "archive-b", Seq: 5},
	}}
	stop, err := connect(t, s, "aggregator").listen(wire.SubjectRosterGet, "", func(m *nats.Msg) { m.Respond(encode(t, roster)) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	want = append(want, wire.Remembered{By: "aggregator", ArchiveID: "archive-a", Key: "k", Generation: 2, Seq: 99, Checkpoint: "note"})
	got, err = repair.Remembered(t.Context(), "archive-a")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("with an aggregator: %v (-want +got):\n%s", err, diff)
	}
}

// What is remembered of one archive has a bound, and the newest generations stay.
func TestPeersRememberSoManyGenerations(t *testing.T) {
	var h heardPeer
	for g := range 3 * wire.MaxGenerations {
		h.remember(wire.Hello{Generation: g, Key: "k", Seq: uint64(g)}, news{}, still())
	}
	h.remember(wire.Hello{Generation: 0, Key: "k", Seq: 99}, news{}, still())
	if len(h.memory) != wire.MaxGenerations || h.memory[0].generation != 3*wire.MaxGenerations-1 {
		t.Errorf("%d generations, from %d", len(h.memory), h.memory[0].generation)
	}
}

// The copies count of those that an aggregator tells; without one, of those that
// were heard, and the asker is told so.
func TestHoldersAreTheEnrolledArchives(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	conn := connect(t, s, "archive-a")
	p := newTestPeers(t, conn, "archive-a")
	for _, id := range []string{"archive-b", "archive-c", "archive-x"} {
		sayAs(t, conn, newBook(t, id, 1).hello("1", 0))
	}
	eventually(t, "all are heard", func() bool { return len(p.Alive()) == 3 })
	got, err := p.Holders(t.Context())
	if diff := cmp.Diff([]wire.ArchiveID{"archive-a", "archive-b", "archive-c", "archive-x"}, got); diff != "" || !fault.Is(err, fault.Transient) {
		t.Errorf("without an aggregator: %v, %s", err, diff)
	}
	key := func(id string) string { return newBook(t, id, 1).public() }
	roster := wire.RosterReply{Version: 9, LeaseMs: 1000, Archives: []wire.RosterMember{
		{ID: "archive-c", Key: key("archive-c"), State: StateLost}, {ID: "archive-b", Key: key("archive-b"), State: wire.StateUp},
		{ID: "archive-a", Key: "not heard", State: wire.StateUp}, {ID: "archive-s", Key: key("archive-s"), State: StateSilent},
		{ID: "archive-x", Key: "of another", State: wire.StateUp}, {ID: "archive-f", State: StateFenced},
		{ID: "archive-u", State: StateUnaccepted}, {ID: "archive-q", State: StateQuarantined},
	}}
	aggregator := connect(t, s, "aggregator")
	var text atomic.Pointer[[]byte]
	text.Store(new(encode(t, roster)))
	stop, err := aggregator.listen(wire.SubjectRosterGet, "", func(m *nats.Msg) { m.Respond(*text.Load()) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	got, err = p.Holders(t.Context())
	if diff := cmp.Diff([]wire.ArchiveID{"archive-a", "archive-b", "archive-c", "archive-s"}, got); diff != "" || err != nil {
		t.Errorf("with an aggregator: %v, %s", err, diff)
	}
	_, silent, err := p.Roll(t.Context())
	if diff := cmp.Diff([]wire.ArchiveID{"archive-f", "archive-q", "archive-s", "archive-u", "archive-x"}, silent); diff != "" || err != nil {
		t.Errorf("not heard: %v, %s", err, diff)
	}
	text.Store(new(encode(t, wire.RosterReply{LeaseMs: 1000, Archives: []wire.RosterMember{}})))
	if heard, _, err := p.Roll(t.Context()); len(heard) != 3 || !fault.Is(err, fault.Transient) {
		t.Errorf("who was heard, with an aggregator that knows nobody: %v, %v", heard, err)
	}
	text.Store(new([]byte("[]")))
	if _, err := p.Holders(t.Context()); !fault.Is(err, fault.Transient) {
		t.Errorf("an unreadable roster: %v", err)
	}
	heard, _, err := p.Roll(t.Context())
	if diff := cmp.Diff([]wire.ArchiveID{"archive-b", "archive-c", "archive-x"}, heard); diff != "" || !fault.Is(err, fault.Transient) {
		t.Errorf("who was heard, with an unreadable roster: %v, %s", err, diff)
	}
}

func TestPeersTellAliveFromWritable(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	conn := connect(t, s, "archive-a")
	var now atomic.Int64
	p, err := NewPeers(conn, PeersConfig{Self: "archive-a", Now: func() time.Time { return time.Unix(0, now.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for id, state := range map[string]string{"archive-a": wire.StateUp, "archive-c": wire.StateUp, "archive-b": wire.StateReadonly, "archive-d": wire.StateDraining} {
		h := newBook(t, id, 1).hello("1", 0)
		h.State = state
		sayAs(t, conn, h)
	}
	eventually(t, "all are heard", func() bool { return len(p.Alive()) == 3 })
	if diff := cmp.Diff([]wire.ArchiveID{"archive-c"}, p.Writable()); diff != "" {
		t.Error(diff)
	}
	now.Add(int64(HelloTimeout) + 1)
	if got := p.Alive(); len(got) != 0 {
		t.Errorf("still alive: %v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Settle(ended); err == nil {
		t.Error("settled at once")
	}
	p.began = p.began.Add(-HelloTimeout)
	if err := p.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whatever an archive answers that can not be true is an error with a code of its
// own, and nothing of it is believed.
func TestWrongAnswersAreNotBelieved(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	liar := connect(t, s, "archive-b")
	var answer atomic.Pointer[nats.Msg]
	reply := func(m *nats.Msg) {
		a := answer.Load()
		if err := m.RespondMsg(&nats.Msg{Data: a.Data, Header: a.Header}); err != nil {
			t.Error(err)
		}
	}
	for _, subject := range []string{wire.SubjectSyncPrefix, wire.SubjectCtlPrefix} {
		sub, err := liar.subscribe(liar.bulk, subject+"archive-b", "", reply)
		if err != nil {
			t.Fatal(err)
		}
		defer liar.unsubscribe(sub)
	}
	if err := liar.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, s, "archive-a")
	p := newTestPeers(t, conn, "archive-a")
	sayAs(t, conn, newBook(t, "archive-b", 1).hello("1", 0))
	eventually(t, "the liar is heard", func() bool { return len(p.Alive()) == 1 })

	rec, other := note("subject", "body").Record, note("subject", "another").Record
	id, ids := rec.ID(), []wire.RecordID{rec.ID(), other.ID()}
	ctx := t.Context()
	has := func() error { _, err := p.Has(ctx, "archive-b", ids); return err }
	record := func() error { _, err := p.Record(ctx, "archive-b", id); return err }
	file := func() error { _, _, err := p.File(ctx, "archive-b", digestOf("f"), "cid", 10, 5); return err }
	page := func() error { _, err := p.IDs(ctx, "archive-b", 10, 5); return err }
	pull := func() error { _, err := p.Pull(ctx, "archive-b", ids, []wire.ArchiveID{"archive-a"}); return err }
	tests := []struct {
		name       string
		ask        func() error
		data       string
		offset, of string
	}{
		{"too few", has, `{"have":[true]}`, "", ""},
		{"too many", has, `{"have":[true,true,true]}`, "", ""},
		{"no JSON", has, `true`, "", ""},
		{"another record", record, string(encode(t, other)), "0", size(encode(t, other))},
		{"a record that breaks the rules", record, `{"kind":"note"}`, "0", "15"},
		{"no record", record, `[]`, "0", "2"},
		{"a record at another place", record, string(encode(t, rec)), "1", size(encode(t, rec))},
		{"a part of a record", record, string(encode(t, rec))[1:], "0", size(encode(t, rec))},
		{"a record without a size", record, string(encode(t, rec)), "0", ""},
		{"a record of 3 MiB", record, string(make([]byte, wire.FragmentSize)), "0", "3145728"},
		{"too few bytes", file, "1234", "10", "20"},
		{"too many bytes", file, "123456", "10", "20"},
		{"bytes of another place", file, "12345", "11", "20"},
		{"a file that ends before", file, "", "10", "9"},
		{"a negative size", file, "12345", "10", "-1"},
		{"a page that goes back", page, `{"records":[{"seq":10,"recordId":"` + id.String() + `","kind":"x"}],"next":11,"end":11}`, "", ""},
		{"a page that stays", page, `{"records":[],"next":10,"end":11}`, "", ""},
		{"a page that skips", page, `{"records":[{"seq":12,"recordId":"` + id.String() + `","kind":"x"}],"next":11,"end":12}`, "", ""},
		{"one result", pull, `{"results":[{"id":"` + id.String() + `","seq":1}]}`, "", ""},
		{"results of others", pull, `{"results":[{"id":"` + id.String() + `","seq":1},{"id":"` + id.String() + `","seq":1}]}`, "", ""},
	}
	for _, tt := range tests {
		msg := &nats.Msg{Data: []byte(tt.data), Header: nats.Header{}}
		if tt.offset != "" {
			msg.Header.Set(wire.HeaderOffset, tt.offset)
			msg.Header.Set(wire.HeaderSize, tt.of)
		}
		answer.Store(msg)
		err := tt.ask()
		if fault.KindOf(err) != fault.Corrupt || fault.CodeOf(err) != archive.CodeWrongAnswer {
			t.Errorf("%s: %v", tt.name, err)
		}
		wantText(t, err, "archive-b")
	}
	answer.Store(&nats.Msg{Data: []byte(`{"remembered":[{"by":"archive-c","archiveId":"archive-a","key":"","generation":1,"seq":5,"heardAt":""}]}`)})
	if got, err := p.Remembered(ctx, "archive-a"); err == nil {
		t.Errorf("hearsay was believed: %v", got)
	}
}

func size(data []byte) string { return strconv.Itoa(len(data)) }

// fakeSync is a fakeNode that other archives can ask.
type fakeSync struct {
	*fakeNode
	onHas func(ctx context.Context) error
}

func (n *fakeSync) HasRecords(ctx context.Context, ids []wire.RecordID) ([]bool, error) {
	if n.onHas != nil {
		if err := n.onHas(ctx); err != nil {
			return nil, err
		}
	}
	have := make([]bool, len(ids))
	for i, id := range ids {
		have[i] = n.holds(id)
	}
	return have, nil
}

func (n *fakeSync) Portable(_ context.Context, id wire.RecordID) (wire.PutRecord, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.records {
		if r.ID == id {
			return r.Portable(), nil
		}
	}
	return wire.PutRecord{}, fault.New(fault.NotFound, archive.CodeNoRecord, "no such record")
}

func (n *fakeSync) RecordIDs(_ context.Context, after uint64, limit int) (wire.SyncPage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := wire.SyncPage{Next: after, End: uint64(len(n.records))}
	for i, r := range n.records {
		if seq := uint64(i + 1); seq > after && len(page.Records) < limit {
			page.Records = append(page.Records, wire.SyncEntry{Seq: seq, RecordID: r.ID, Kind: r.Kind})
			page.Next = seq
		}
	}
	return page, nil
}

// An archive that has too much to do refuses, and its asker asks again.
func TestBusyArchivesAreAskedAgain(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	conn := connect(t, s, "archive-a")
	block, busy := make(chan struct{}), make(chan struct{}, 1)
	node := &fakeSync{fakeNode: newFakeNode(t, "archive-a")}
	node.onHas = func(context.Context) error { <-block; return nil }
	service, err := ServeSync(conn, SyncConfig{Node: node, Blobs: newFakeBlobs(t), Peers: newTestPeers(t, conn, "archive-a")})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Drain(context.Background())
	stranger := connect(t, s, "stranger")
	for range syncWorkers + MaxQueuedSyncs + 8 {
		msg := &nats.Msg{Subject: wire.SubjectSyncPrefix + "archive-a", Reply: stranger.bulk.NewInbox(), Header: nats.Header{}, Data: encode(t, wire.SyncHas{IDs: []wire.RecordID{{1}}})}
		msg.Header.Set(wire.HeaderOp, wire.OpHas)
		if err := stranger.bulk.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	refused := func() int { return count(service.asked.WithLabelValues(wire.OpHas, fault.Transient.String())) }
	eventually(t, "the queue is full", func() bool { return refused() >= 7 })
	p := newTestPeers(t, connect(t, s, "archive-b"), "archive-b")
	before := refused()
	go func() {
		eventually(t, "the asker was refused", func() bool { return refused() > before })
		close(block)
		busy <- struct{}{}
	}()
	if have, err := p.Has(t.Context(), "archive-a", []wire.RecordID{{1}}); err != nil || len(have) != 1 || have[0] {
		t.Errorf("%v, %v", have, err)
	}
	<-busy
}

func TestMalformedQuestionsAreRefused(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	conn := connect(t, s, "archive-a")
	service, err := ServeSync(conn, SyncConfig{Node: &fakeSync{fakeNode: newFakeNode(t, "archive-a")}, Blobs: newFakeBlobs(t), Peers: newTestPeers(t, conn, "archive-a")})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Drain(context.Background())
	p := newTestPeers(t, connect(t, s, "archive-b"), "archive-b")
	var many wire.SyncHas
	for i := range wire.MaxSyncIDs + 1 {
		many.IDs = append(many.IDs, wire.RecordID{byte(i), byte(i >> 8), 1})
	}
	id := wire.RecordID{1}
	for i, q := range []struct {
		prefix, op string
		ask        any
	}{
		{wire.SubjectSyncPrefix, "", nil}, {wire.SubjectSyncPrefix, "delete", nil}, {wire.SubjectSyncPrefix, wire.OpPull, nil},
		{wire.SubjectCtlPrefix, wire.OpHas, nil}, {wire.SubjectSyncPrefix, wire.OpHas, nil},
		{wire.SubjectSyncPrefix, wire.OpHas, wire.SyncHas{}}, {wire.SubjectSyncPrefix, wire.OpHas, many},
		{wire.SubjectSyncPrefix, wire.OpHas, wire.SyncHas{IDs: []wire.RecordID{{}}}},
		{wire.SubjectSyncPrefix, wire.OpIDs, wire.SyncIDs{Limit: wire.MaxSyncIDs + 1}},
		{wire.SubjectSyncPrefix, wire.OpRecord, wire.SyncRecord{}}, {wire.SubjectSyncPrefix, wire.OpRecord, wire.SyncRecord{ID: id, Offset: -1}},
		{wire.SubjectSyncPrefix, wire.OpFile, wire.SyncFile{SHA256: digestOf("x"), CID: "x"}},
		{wire.SubjectSyncPrefix, wire.OpRemembered, wire.SyncRemembered{ArchiveID: "A"}},
		{wire.SubjectCtlPrefix, wire.OpPull, wire.CtlPull{IDs: []wire.RecordID{id}}},
		{wire.SubjectCtlPrefix, wire.OpPull, wire.CtlPull{IDs: []wire.RecordID{id}, From: []wire.ArchiveID{"a.b"}}},
		{wire.SubjectCtlPrefix, wire.OpPull, wire.CtlPull{IDs: many.IDs, From: []wire.ArchiveID{"a"}}},
		{wire.SubjectCtlPrefix, wire.OpPull, wire.CtlPull{IDs: []wire.RecordID{id}, From: []wire.ArchiveID{"a"}}}, // no puller
		{wire.SubjectCtlPrefix, wire.OpReconcile, wire.CtlReconcile{}}, {wire.SubjectCtlPrefix, wire.OpCheckpoint, wire.CtlCheckpoint{}},
	} {
		_, err := p.ask(t.Context(), "archive-a", q.prefix, q.op, q.ask, 0)
		if fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != CodeMalformed {
			t.Errorf("%d, %s %v: %v", i, q.op, q.ask, err)
		}
	}
	_, err = p.Record(t.Context(), "archive-a", id)
	wantFault(t, err, fault.NotFound, archive.CodeNoRecord)
	_, _, err = p.File(t.Context(), "archive-a", digestOf("x"), describe(nil).CID, 0, 1)
	wantFault(t, err, fault.NotFound, archive.CodeNoFile)
	status, err := p.Status(t.Context(), "archive-a")
	if err != nil || status.Hello.ArchiveID != "archive-a" || status.Hello.Boot == "" {
		t.Errorf("status: %+v, %v", status, err)
	}
	_, err = p.Status(t.Context(), "archive-z")
	wantFault(t, err, fault.Transient, CodeUnreachable)
}

// A record beyond a fragment comes in several, and is the same.
func TestLargeRecordsComeInFragments(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	conn := connect(t, s, "archive-a")
	node := &fakeSync{fakeNode: newFakeNode(t, "archive-a")}
	service, err := ServeSync(conn, SyncConfig{Node: node, Blobs: newFakeBlobs(t), Peers: newTestPeers(t, conn, "archive-a")})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Drain(context.Background())
	rec := note("subject", "").Record
	rec.Body = make([]byte, wire.MaxBody)
	for i := range rec.Body {
		rec.Body[i] = byte(i * i >> 3)
	}
	if _, err := node.Put(t.Context(), wire.Put{Record: rec}); err != nil {
		t.Fatal(err)
	}
	p := newTestPeers(t, connect(t, s, "archive-b"), "archive-b")
	got, err := p.Record(t.Context(), "archive-a", rec.ID())
	if diff := cmp.Diff(rec, got); diff != "" || err != nil {
		t.Errorf("%v, (-put +got) %s", err, diff)
	}
	if n := count(service.asked.WithLabelValues(wire.OpRecord, "answered")); n != 2 {
		t.Errorf("it came in %d fragments", n)
	}
}
