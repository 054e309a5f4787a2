package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// TestLaw2NothingIsReadableBeforeItIsDurable holds a record between the moment
// Pebble shows it and the end of its fsync.
func TestLaw2NothingIsReadableBeforeItIsDurable(t *testing.T) {
	disk := newFaultFS(vfs.NewMem(), -1, false)
	c := testConfig(disk, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	subject := digest("x")
	first := mustPut(t, n, metadata(alice, subject, `{"n":1}`))

	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	disk.beforeSync = func() { once.Do(func() { close(syncing); <-release }) }
	acked := make(chan wire.PutAck)
	go func() { acked <- mustPut(t, n, metadata(alice, subject, `{"n":2}`)) }()
	<-syncing
	for !visibleInPebble(t, n, 2) {
		runtime.Gosched()
	}
	if got := ask(t, n, alice, subject); !slices.Equal(got, []wire.RecordID{first.RecordID}) {
		t.Errorf("while the second record is being synced the answer is %v", got)
	}
	if n.Seq() != 1 || n.Hello().Seq != 1 {
		t.Errorf("seq %d announced", n.Seq())
	}
	if _, err := n.Check(t.Context()); err != nil {
		t.Errorf("check beside a commit: %v", err)
	}
	select {
	case ack := <-acked:
		t.Errorf("acknowledged before the sync: %+v", ack)
	default:
	}
	close(release)
	second := <-acked
	if got := ask(t, n, alice, subject); !slices.Equal(got, []wire.RecordID{first.RecordID, second.RecordID}) {
		t.Errorf("after the sync the answer is %v", got)
	}
}

func visibleInPebble(t *testing.T, n *Node, seq uint64) bool {
	t.Helper()
	_, closer, err := n.db.Get(logKey(seq))
	if err != nil {
		return false
	}
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// TestLaw3AppendOnly is DB-06 and law 3: what a repeated, a contradicting and a
// differently named put do, one after the other and in one batch.
func TestLaw3AppendOnly(t *testing.T) {
	subject := digest("x")
	a, b, c := metadata(alice, subject, `{"v":"A"}`), metadata(alice, subject, `{"v":"B"}`), metadata(alice, subject, `{"v":"C"}`)
	id1, id2, id3 := wire.NewPutID(), wire.NewPutID(), wire.NewPutID()
	const stored, duplicate, conflict = "stored", "duplicate", "conflict"
	steps := []struct {
		name string
		put  wire.Put
		want string
		seq  uint64
	}{
		{"A under id1", wire.Put{PutID: id1, Record: a}, stored, 1},
		{"B under id1", wire.Put{PutID: id1, Record: b}, conflict, 0},
		{"A under id1 again", wire.Put{PutID: id1, Record: a}, duplicate, 1},
		{"A under id2", wire.Put{PutID: id2, Record: a}, duplicate, 1},
		{"A without an id", wire.Put{Record: a}, duplicate, 1},
		{"B under id2, which stored nothing", wire.Put{PutID: id2, Record: b}, stored, 2},
		{"A under id2, which is B's now", wire.Put{PutID: id2, Record: a}, conflict, 0},
		{"C without an id", wire.Put{Record: c}, stored, 3},
		{"C under id3", wire.Put{PutID: id3, Record: c}, duplicate, 3},
		{"B under id1 after all", wire.Put{PutID: id1, Record: b}, conflict, 0},
	}
	verdict := func(out outcome) string {
		switch {
		case fault.Is(out.err, fault.Conflict):
			return conflict
		case out.err != nil:
			return out.err.Error()
		case out.duplicate:
			return duplicate
		}
		return stored
	}
	t.Run("one by one", func(t *testing.T) {
		n := newNode(t)
		for _, s := range steps {
			out := n.put(t.Context(), s.put)
			if got := verdict(out); got != s.want || out.seq != s.seq {
				t.Errorf("%s: %s with seq %d, want %s with %d", s.name, got, out.seq, s.want, s.seq)
			}
		}
		if got := ask(t, n, alice, subject); len(got) != 3 {
			t.Errorf("%d records stored, want 3", len(got))
		}
	})
	t.Run("across a restart", func(t *testing.T) {
		cfg := testConfig(vfs.NewMem(), "archive-a")
		mustInit(t, cfg)
		for _, s := range steps {
			n := mustOpen(t, cfg)
			out := n.put(t.Context(), s.put)
			if got := verdict(out); got != s.want || out.seq != s.seq {
				t.Errorf("%s: %s with seq %d, want %s with %d", s.name, got, out.seq, s.want, s.seq)
			}
			mustClose(t, n)
		}
	})
	t.Run("in one batch", func(t *testing.T) {
		n := newNode(t)
		n.committer.Close() // its goroutine has ended, so the test may commit
		var items []*pending
		for _, s := range steps {
			p, err := n.prepare(t.Context(), s.put)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, p)
		}
		n.commit(items)
		for i, s := range steps {
			out := <-items[i].reply
			if got := verdict(out); got != s.want || out.seq != s.seq {
				t.Errorf("%s: %s with seq %d, want %s with %d", s.name, got, out.seq, s.want, s.seq)
			}
		}
	})
}

// TestLaw3SubjectIsNotARecordID stores a record whose subject is the id of
// another: it must not be taken for that record.
func TestLaw3SubjectIsNotARecordID(t *testing.T) {
	n := newNode(t)
	a := metadata(alice, digest("x"), `{"v":"A"}`)
	about := metadata(alice, wire.Digest(a.ID()), `{"about":"A"}`)
	if ack := mustPut(t, n, about); ack.Duplicate {
		t.Fatal(ack)
	}
	if ack := mustPut(t, n, a); ack.Duplicate || ack.Seq != 2 {
		t.Errorf("ack %+v", ack)
	}
	if got := ask(t, n, alice, wire.Digest(a.ID())); len(got) != 2 {
		t.Errorf("under the id: %v", got)
	}
}

// TestLaw4NoFalseNegativeWhileLoading is BL-01: a rebuild that stops half-way,
// or is still running, must not make stored records disappear.
func TestLaw4NoFalseNegativeWhileLoading(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	const records = 500
	subject := func(i int) wire.Digest { return digest(fmt.Sprint("subject ", i)) }
	for i := range records {
		mustPut(t, n, metadata(alice, subject(i), `{}`))
	}
	check := func(when string) {
		t.Helper()
		for i := range records {
			if got := ask(t, n, alice, subject(i)); len(got) != 1 {
				t.Fatalf("%s: record %d is denied", when, i)
			}
		}
	}
	mustClose(t, n)

	// A rebuild that is cancelled in the middle, as by a failed read.
	n = mustOpen(t, c)
	rows, err := n.iterate(prefixBounds(prefixIndex))
	if err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.background.Wait() // nobody else looks at the filter
	n.keys.set, n.loaded, n.keys.loaded = bloom.New(c.Bloom), make(chan struct{}), false
	ctx := &cancelAfter{Context: t.Context(), left: records}
	n.load(ctx, rows, n.Seq())
	if n.keys.set.Ready() || n.Hello().Filter.Ready {
		t.Error("half a filter is announced as ready")
	}
	if k := n.keys.set.Keys(); k == 0 || k > 2*records-10 {
		t.Fatalf("%d keys loaded: the rebuild was not stopped half-way", k)
	}
	check("after a cancelled rebuild")
	mustPut(t, n, metadata(bob, subject(0), `{}`))
	if got := ask(t, n, bob, subject(0)); len(got) != 1 {
		t.Error("a record stored meanwhile is denied")
	}
	mustClose(t, n)

	n = mustOpen(t, c)
	defer mustClose(t, n)
	check("after a whole one")
	if !n.Absent(digest("not there")) {
		t.Error("the filter denies nothing: the test shows nothing")
	}
}

// cancelAfter is a context that is cancelled when it was asked left times.
type cancelAfter struct {
	context.Context
	left int
}

func (c *cancelAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestLaw4KeyIsKnownBeforeTheAcknowledgement(t *testing.T) {
	n := newNode(t) // its filters grow, and are rebuilt
	pairs := need.Rounds(20_000, 1_000_000)
	if testing.Short() {
		pairs = 4_000
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range pairs / 8 {
				subject := digest(fmt.Sprint(w, " ", i))
				if _, err := n.Put(t.Context(), wire.Put{Record: metadata(alice, subject, `{}`)}); err != nil {
					t.Error(err)
					return
				}
				if _, ok, err := n.Answer(t.Context(), query(alice, subject)); !ok || err != nil {
					t.Errorf("a record is denied right after its acknowledgement: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestLaw5SilenceIsHonest asks for everything that exists as everybody.
func TestLaw5SilenceIsHonest(t *testing.T) {
	n := newNode(t)
	subject := digest("x")
	shared := func(tenant wire.TenantID, mode string) []wire.Share {
		return []wire.Share{{TenantID: tenant, Mode: mode}}
	}
	records := map[string]wire.PutRecord{}
	add := func(name string, change func(*wire.PutRecord)) {
		r := metadata(alice, subject, fmt.Sprintf(`{"name":%q}`, name))
		change(&r)
		records[name] = r
		mustPut(t, n, r)
	}
	add("own", func(*wire.PutRecord) {})
	add("private", func(r *wire.PutRecord) { r.Kind = wire.KindPrivateMetadata; r.ShareWith = shared(bob, wire.ModeFiles) })
	add("proofs", func(r *wire.PutRecord) { r.ShareWith = shared(bob, wire.ModeProofs) })
	add("metadata", func(r *wire.PutRecord) { r.ShareWith = shared(bob, wire.ModeMetadata) })
	add("public", func(r *wire.PutRecord) { r.ShareWith = shared(wire.Public, wire.ModeMetadata) })
	add("attachment", func(r *wire.PutRecord) { r.Kind = "ocr"; r.ShareWith = shared(bob, wire.ModeFiles) })
	add("share", func(r *wire.PutRecord) { r.Kind = wire.KindShare; r.ShareWith = shared(bob, wire.ModeNone) })
	add("hold", func(r *wire.PutRecord) { r.Kind = wire.KindHold })

	for _, tc := range []struct {
		tenant wire.TenantID
		kinds  []wire.Kind
		want   string
	}{
		{alice, nil, "own private proofs metadata public attachment"},
		{alice, []wire.Kind{wire.KindMetadata}, "own proofs metadata public"},
		{alice, []wire.Kind{"ocr", wire.KindPrivateMetadata}, "private attachment"},
		{alice, []wire.Kind{wire.KindShare, wire.KindHold}, ""},
		{bob, nil, "proofs metadata public attachment"},
		{bob, []wire.Kind{wire.KindPrivateMetadata}, ""},
		{bob, []wire.Kind{wire.KindShare}, ""},
		{carol, nil, "public"},
		{carol, []wire.Kind{"ocr"}, ""},
	} {
		var want []wire.RecordID
		for name := range strings.FieldsSeq(tc.want) {
			want = append(want, records[name].ID())
		}
		if diff := cmp.Diff(want, ask(t, n, tc.tenant, subject, tc.kinds...)); diff != "" {
			t.Errorf("%s, kinds %v: (-want +got)\n%s", tc.tenant, tc.kinds, diff)
		}
		// Every record has its own id for a key, and the same rule holds there.
		for name, r := range records {
			may := slices.Contains(strings.Fields(tc.want), name)
			got := ask(t, n, tc.tenant, wire.Digest(r.ID()), tc.kinds...)
			if may != slices.Equal(got, []wire.RecordID{r.ID()}) || !may && got != nil {
				t.Errorf("%s, kinds %v: asked for the id of %s: %v", tc.tenant, tc.kinds, name, got)
			}
		}
	}
	reply, _, err := n.Answer(t.Context(), query(bob, wire.Digest(records["proofs"].ID())))
	if err != nil || len(reply.Records) != 1 {
		t.Fatal(err)
	}
	if r := reply.Records[0]; r.Body != nil || r.BodySHA256 != records["proofs"].BodySHA256() || r.Check() != nil {
		t.Errorf("a grantee of proofs got %+v", r)
	}
}

// TestLaw5MissForeignAndRefusedAreOneSilence compares the whole answers.
func TestLaw5MissForeignAndRefusedAreOneSilence(t *testing.T) {
	n := newNode(t)
	mustPut(t, n, metadata(alice, digest("hers"), `{}`))
	hold := metadata(bob, digest("his"), `{}`)
	hold.Kind = wire.KindHold
	mustPut(t, n, hold)
	for _, q := range []wire.Query{
		query(bob, digest("nothing")), query(bob, digest("hers")), query(bob, digest("his")),
		query(bob, digest("his"), wire.KindHold), query(alice, digest("hers"), "ocr"),
	} {
		reply, ok, err := n.Answer(t.Context(), q)
		if diff := cmp.Diff(wire.Reply{}, reply); diff != "" || ok || err != nil {
			t.Errorf("%+v: %v, %v, %s", q, ok, err, diff)
		}
	}
}

// TestLaw9BytesAreExact stores bodies that an encoder would like to tidy up.
func TestLaw9BytesAreExact(t *testing.T) {
	n := newNode(t)
	for i, body := range []string{
		"{\"a\" : 1.0,\n \"b\":\"<\\u00e9\u2028é>\" , \"c\":1e400}", "{ }", "\x00\x01\xff not text", strings.Repeat("x", wire.MaxBody),
	} {
		r := metadata(alice, digest(fmt.Sprint(i)), body)
		if i >= 2 {
			r.Kind = "ocr"
		}
		body := []byte(body)
		ack := mustPut(t, n, r)
		clear(r.Body) // the caller's memory is his own again
		reply, ok, err := n.Answer(t.Context(), query(alice, wire.Digest(ack.RecordID)))
		if err != nil || !ok {
			t.Fatalf("body %d: %v, %v", i, ok, err)
		}
		got := reply.Records[0]
		if !bytes.Equal(got.Body, body) || got.BodySHA256 != digest(string(body)) {
			t.Errorf("body %d came back as %q", i, got.Body)
		}
	}
}

func TestAnswerShowsTheRecordAsItWasPut(t *testing.T) {
	n := newNode(t)
	want := fileRecord(alice, digest("subject"))
	n.cfg.Files.(*files).add(want.File.SHA256, digest("root"), digest("leaf"))
	ack := mustPut(t, n, want)
	reply, ok, err := n.Answer(t.Context(), query(alice, want.SHA256))
	if err != nil || !ok || reply.Page != 1 || reply.Pages != 1 || reply.ArchiveID != "archive-a" || reply.SHA256 != want.SHA256 {
		t.Fatalf("%+v, %v, %v", reply, ok, err)
	}
	got := reply.Records[0]
	if got.ID != ack.RecordID || got.Seq != ack.Seq || got.File.ID != ack.RecordID {
		t.Errorf("id %s, seq %d, file id %s; acknowledged %+v", got.ID, got.Seq, got.File.ID, ack)
	}
	if _, ok := got.StoredAt.Instant(); !ok {
		t.Errorf("stored at %q", got.StoredAt)
	}
	portable := got.Portable()
	portable.File.ID = wire.RecordID{}
	if diff := cmp.Diff(want, portable); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMinimalPutStaysMinimal(t *testing.T) {
	n := newNode(t)
	r := wire.PutRecord{Kind: wire.KindMetadata, SHA256: digest("x"), TenantID: alice, Body: []byte(`{"a":1}`)}
	ack, err := n.Put(t.Context(), wire.Put{Record: r})
	if err != nil {
		t.Fatal(err)
	}
	again, err := n.Put(t.Context(), wire.Put{Record: r})
	if err != nil || !again.Duplicate || again.Seq != ack.Seq {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	reply, _, err := n.Answer(t.Context(), query(alice, r.SHA256))
	if err != nil {
		t.Fatal(err)
	}
	got := reply.Records[0]
	if got.SubmissionID != "" || got.AttachedAt != "" || got.StoredAt == "" || got.ComputeID() != ack.RecordID {
		t.Errorf("%+v", got)
	}
}

func TestBadPutsAreRefusedByName(t *testing.T) {
	n := newNode(t)
	good := metadata(alice, digest("x"), `{}`)
	for _, tc := range []struct {
		name, field string
		change      func(*wire.Put)
	}{
		{"no kind", "record.kind", func(p *wire.Put) { p.Record.Kind = "" }},
		{"no digest", "record.sha256", func(p *wire.Put) { p.Record.SHA256 = wire.Digest{} }},
		{"no tenant", "record.tenantId", func(p *wire.Put) { p.Record.TenantID = "" }},
		{"bad put id", "putId", func(p *wire.Put) { p.PutID = "1" }},
		{"body over the limit", "record.body", func(p *wire.Put) {
			p.Record.Kind, p.Record.Body = "ocr", make([]byte, wire.MaxBody+1)
		}},
		{"file record without a file", "record.file", func(p *wire.Put) { p.Record.Kind, p.Record.Body = wire.KindFile, nil }},
	} {
		put := wire.Put{PutID: wire.NewPutID(), Record: good}
		tc.change(&put)
		_, err := n.Put(t.Context(), put)
		if !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != tc.field {
			t.Errorf("%s: %v (field %q), want Invalid in %s", tc.name, err, fault.FieldOf(err), tc.field)
		}
	}
	if n.Seq() != 0 {
		t.Errorf("%d records stored", n.Seq())
	}
	filterHit := wire.Query{SHA256: mustPutSubject(t, n), TenantID: alice} // no correlation id
	if _, _, err := n.Answer(t.Context(), filterHit); !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != "correlationId" {
		t.Errorf("bad query: %v", err)
	}
}

func mustPutSubject(t *testing.T, n *Node) wire.Digest {
	t.Helper()
	d := digest("subject")
	mustPut(t, n, metadata(alice, d, `{}`))
	return d
}

func TestPutGivesUpWithItsContext(t *testing.T) {
	disk := newFaultFS(vfs.NewMem(), -1, false)
	c := testConfig(disk, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	disk.beforeSync = func() { once.Do(func() { close(syncing); <-release }) }
	put := wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, digest("x"), `{}`)}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := n.Put(ctx, put); gaveUp <- err }()
	<-syncing
	cancel()
	if err := <-gaveUp; !fault.Is(err, fault.Transient) || fault.CodeOf(err) != codeUnknown || !errors.Is(err, context.Canceled) {
		t.Errorf("gave up with %v", err)
	}
	close(release)
	ack, err := n.Put(t.Context(), put)
	if err != nil || !ack.Duplicate || ack.Seq != 1 {
		t.Errorf("the retry: %+v, %v", ack, err)
	}
}

// TestQueuedPutKeepsItsBytes uses the memory of a put again while it waits for
// the committer, as a caller may who has given up.
func TestQueuedPutKeepsItsBytes(t *testing.T) {
	n := newNode(t)
	n.committer.Close() // its goroutine has ended, so the test may commit
	file := fileRecord(alice, digest("file"))
	n.cfg.Files.(*files).add(file.File.SHA256)
	body := metadata(alice, digest("body"), `{"a":1}`)
	var items []*pending
	var want []wire.RecordID
	for _, r := range []wire.PutRecord{file, body} {
		p, err := n.prepare(t.Context(), wire.Put{Record: r})
		if err != nil {
			t.Fatal(err)
		}
		items, want = append(items, p), append(want, r.ID())
	}
	body.Body[2], file.File.Size, file.ShareWith[0].TenantID = 'X', 0, "mallory"
	n.commit(items)
	for i, p := range items {
		if out := <-p.reply; out.err != nil {
			t.Fatal(out.err)
		}
		if got := ask(t, n, alice, p.rec.SHA256); !slices.Equal(got, want[i:i+1]) {
			t.Errorf("stored as %v, want %v", got, want[i])
		}
	}
}

// TestRowsSpareTheReadOfForeignRecords: the row may let too much through, and
// the record itself then decides, but it must never hide what the record shows.
func TestRowsSpareTheReadOfForeignRecords(t *testing.T) {
	for name, r := range samples() {
		rec := wire.Record{Kind: r.Kind, TenantID: r.TenantID, ShareWith: r.ShareWith}
		index := row{kind: r.Kind, tenant: r.TenantID, shared: len(r.ShareWith) > 0}
		for _, viewer := range []wire.TenantID{alice, bob, carol} {
			_, visible := wire.Visible(&rec, viewer)
			if visible && !index.mayShow(viewer) {
				t.Errorf("%s: the row hides it from %s", name, viewer)
			}
			if r.ShareWith == nil && viewer != r.TenantID && index.mayShow(viewer) {
				t.Errorf("%s: not shared, and the row lets %s through", name, viewer)
			}
		}
	}
}
