package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// books is the network of archives as accounting sees it.
type books struct {
	*archives

	mu    sync.Mutex
	whole map[string]bool // what was said of each loss
	pulls int
}

func (b *books) Losses() []Loss { return nil } // tests account by hand

func (b *books) Accounted(l Loss, whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole[l.ID] = whole
}

func (b *books) Has(_ context.Context, id wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	if len(ids) == 0 || len(ids) > wire.MaxSyncIDs {
		b.t.Errorf("asked for %d records at once", len(ids))
	}
	n, unlock, err := b.reach(id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = slices.ContainsFunc(n.records, func(r wire.Record) bool { return r.ID == id })
	}
	return out, nil
}

func (b *books) Pull(_ context.Context, to wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]error, error) {
	b.mu.Lock()
	b.pulls++
	b.mu.Unlock()
	out := make([]error, len(ids))
	for i, id := range ids {
		out[i] = b.pull(to, id, from)
	}
	return out, nil
}

func (b *books) pull(to wire.ArchiveID, id wire.RecordID, from []wire.ArchiveID) error {
	for _, source := range from {
		n, unlock, err := b.reach(source)
		if err != nil {
			continue
		}
		at := slices.IndexFunc(n.records, func(r wire.Record) bool { return r.ID == id })
		if at < 0 {
			unlock()
			continue
		}
		r := n.records[at]
		var data []byte
		var key wire.BlobCommit
		if r.File != nil {
			key = wire.BlobCommit{Size: r.File.Size, SHA256: r.File.SHA256, CID: r.File.CID}
			data = n.files[key]
		}
		unlock()
		if n, unlock, err = b.reach(to); err != nil {
			return err
		}
		defer unlock()
		if n.refuse != nil {
			return n.refuse
		}
		if r.File != nil {
			n.files[key] = data
		}
		r.Seq = uint64(len(n.records) + 1)
		n.records = append(n.records, r)
		return nil
	}
	return fault.New(fault.NotFound, "NO_RECORD", "nobody has it")
}

// forget takes the records that match, and all files, from an archive's disk.
func (a *archives) forget(id wire.ArchiveID, match func(wire.RecordID) bool) {
	a.set(id, func(n *node) {
		n.records = slices.DeleteFunc(n.records, func(r wire.Record) bool { return match(r.ID) })
		clear(n.files)
	})
}

func any1(wire.RecordID) bool { return true }

// newBooks starts a world whose losses can be accounted for.
func newBooks(t *testing.T, n int) (*world, *books) {
	t.Helper()
	b := &books{whole: map[string]bool{}}
	w := newWorld(t, n, func(c *Config) {
		b.archives = c.Archives.(*archives)
		c.Copies = b
	})
	return w, b
}

// holders are the archives that acknowledged the first record, by the job store.
func (w *world) holders(tenant wire.TenantID, a wire.Accepted) []wire.ArchiveID {
	w.t.Helper()
	s, err := w.engine.load(ref{tenant, a.SubmissionID})
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Parts[0].Acks
}

func (w *world) wantLost(archive wire.ArchiveID, want ...wire.RecordID) {
	w.t.Helper()
	list, more, a, err := w.engine.LostRecords(archive, wire.RecordID{})
	if err != nil || more || len(list) != len(want) || a == nil {
		w.t.Fatalf("%d lost records, want %d: %v, accounting %+v", len(list), len(want), err, a)
	}
	for _, r := range list {
		if !slices.Contains(want, r.RecordID) || r.TenantID != alice || r.SubmissionID == "" || r.SHA256 != digestOf("document") {
			w.t.Errorf("listed %+v", r)
		}
	}
	if n := testutil.ToFloat64(w.engine.metrics.lost); int(n) != len(want) {
		w.t.Errorf("the metric says %v", n)
	}
}

// everything is a submission with a record of every kind.
var everything = hashBody(digestOf("document"), metadata("1"), `"privateMetadata":{"secret":1}`, fileField("the file"))

// An archive lost all that it had acknowledged: it no longer counts as a copy,
// and the records, files with them, are copied from the other archive although
// their bytes left the outbox long ago.
func TestAccountedLossIsHealedFromTheOtherCopy(t *testing.T) {
	w, b := newBooks(t, 3)
	a, _ := w.must(alice, everything)
	w.settled()
	before := w.holders(alice, a)
	sick := before[0]
	b.forget(sick, any1)
	b.set(sick, func(n *node) { n.refuse = fault.New(fault.Transient, "LOST", "no puts") })
	if err := w.engine.account(t.Context(), Loss{Archive: sick, ID: "1", Boot: "1"}); err != nil {
		t.Fatal(err)
	}
	w.left(0)
	for _, p := range a.Parts {
		if n := b.copies(p.RecordID); n != 2 {
			t.Errorf("%s has %d copies", p.Kind, n)
		}
	}
	after := w.holders(alice, a)
	if slices.Contains(after, sick) || len(after) != 2 {
		t.Errorf("acknowledged by %v, then by %v; %s lost it", before, after, sick)
	}
	if whole, said := b.whole["1"]; !said || whole {
		t.Errorf("said %v, whole %v", said, whole)
	}
	w.wantLost(sick)
	if _, _, _, err := w.engine.LostRecords("archive-z", wire.RecordID{}); err != nil {
		t.Error(err)
	}
	// Accounting again is free, and says the same.
	delete(b.whole, "1")
	if err := w.engine.account(t.Context(), Loss{Archive: sick, ID: "1", Boot: "1"}); err != nil || b.whole["1"] {
		t.Errorf("%v, whole %v", err, b.whole["1"])
	}
}

func TestWholeArchiveIsFoundWhole(t *testing.T) {
	w, b := newBooks(t, 3)
	a, _ := w.must(alice, everything)
	w.settled()
	id := w.holders(alice, a)[0]
	if err := w.engine.account(t.Context(), Loss{Archive: id, ID: "1", Boot: "1"}); err != nil {
		t.Fatal(err)
	}
	if !b.whole["1"] || b.pulls != 0 {
		t.Errorf("whole %v, %d pulls", b.whole["1"], b.pulls)
	}
	_, _, acc, err := w.engine.LostRecords(id, wire.RecordID{})
	if err != nil || acc.Records != uint64(len(a.Parts)) || acc.Submissions != 1 || acc.Absent != 0 || acc.DoneAt == "" {
		t.Errorf("%+v, %v", acc, err)
	}
}

// What the second memory forgot in a crash of the aggregator, the job store
// knows: every acknowledgement that a submission was built on.
func TestJobStoreKnowsWhatTheMemoryForgot(t *testing.T) {
	w, b := newBooks(t, 2)
	var last wire.Accepted
	for i := range 5 {
		last, _ = w.must(alice, hashBody(digestOf("document"), metadata(fmt.Sprint(i))))
	}
	w.settled()
	b.forget("archive-a", func(id wire.RecordID) bool { return id == last.Parts[0].RecordID }) // the last one only
	w.fs = w.crash(0)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(nil)
	if err := w.engine.account(t.Context(), Loss{Archive: "archive-a", ID: "1", Boot: "1"}); err != nil {
		t.Fatal(err)
	}
	w.settled()
	_, _, acc, err := w.engine.LostRecords("archive-a", wire.RecordID{})
	if err != nil || acc.Records != 5 || acc.Absent != 1 || acc.Lost != 0 || b.copies(last.Parts[0].RecordID) != 2 {
		t.Errorf("%+v, %v; %d copies", acc, err, b.copies(last.Parts[0].RecordID))
	}
}

// What no archive has is listed, durably, and is no work that is tried for ever.
// When an archive has it again it is taken off the list, and copied.
func TestWhatNobodyHasIsListedAsLost(t *testing.T) {
	w, b := newBooks(t, 3)
	a, _ := w.must(alice, everything)
	kept, _ := w.must(alice, hashBody(digestOf("document"), metadata("kept")))
	w.settled()
	var saved node
	b.set("archive-a", func(n *node) { saved.records, saved.files = slices.Clone(n.records), n.files })
	mine := func(id wire.RecordID) bool { return id != kept.Parts[0].RecordID }
	for _, id := range b.Enrolled() {
		b.forget(id, mine)
	}
	var lost []wire.RecordID
	for _, p := range a.Parts {
		lost = append(lost, p.RecordID)
	}
	sick := w.holders(alice, a)[0]
	if err := w.engine.account(t.Context(), Loss{Archive: sick, ID: "1", Boot: "1"}); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.wantLost(sick, lost...)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(nil)
	w.wantLost(sick, lost...)
	if n := b.copies(kept.Parts[0].RecordID); n != 2 {
		t.Errorf("%d copies of what was kept", n)
	}
	// Nobody is told that all is well: the archives are, and the record is gone.
	job, err := w.engine.Receipts(t.Context(), alice, digestOf("document"), true, nil)
	if err != nil || job.Complete || job.CompleteReason != wire.ReasonLost || len(job.ArchivesMissing) != 0 {
		t.Errorf("complete %v (%s): %v", job.Complete, job.CompleteReason, err)
	}
	if _, err := w.engine.Record(t.Context(), alice, lost[0], false); fault.CodeOf(err) != "RECORD_LOST" {
		t.Errorf("a lost record: %v", err)
	}
	if job, err := w.engine.Receipts(t.Context(), bob, digestOf("document"), true, nil); err != nil || !job.Complete {
		t.Errorf("another tenant is told of it: %v", err)
	}
	w.besideStranger(func() {
		job, err := w.engine.Receipts(t.Context(), alice, digestOf("document"), true, nil)
		if err != nil || job.Complete || job.CompleteReason != wire.ReasonLost {
			t.Errorf("beside an unlisted archive: complete %v (%s): %v", job.Complete, job.CompleteReason, err)
		}
		if _, err := w.engine.Record(t.Context(), alice, lost[0], false); fault.CodeOf(err) != "RECORD_LOST" {
			t.Errorf("a lost record, beside an unlisted archive: %v", err)
		}
		if job, err := w.engine.Receipts(t.Context(), bob, digestOf("document"), true, nil); err != nil || job.CompleteReason != wire.ReasonDeadline {
			t.Errorf("another tenant is told of it: %v", err)
		}
	})
	// A backup of an archive is found, and brings them back.
	b.set("archive-a", func(n *node) { n.records, n.files = saved.records, saved.files })
	if err := w.engine.account(t.Context(), Loss{Archive: sick, ID: "2", Boot: "2"}); err != nil {
		t.Fatal(err)
	}
	w.settled()
	back := len(slices.DeleteFunc(saved.records, func(r wire.Record) bool { return !slices.Contains(lost, r.ID) }))
	list, _, _, err := w.engine.LostRecords(sick, wire.RecordID{})
	if err != nil || len(list) != len(lost)-back {
		t.Errorf("%d are listed still, %d came back: %v", len(list), back, err)
	}
	for _, id := range lost {
		if n := b.copies(id); back > 0 && n != 2 {
			t.Errorf("%d copies of what came back", n)
		}
	}
	if job, err := w.engine.Receipts(t.Context(), alice, digestOf("document"), true, nil); err != nil || job.Complete != (back == len(lost)) {
		t.Errorf("complete %v although %d of %d came back: %v", job.Complete, back, len(lost), err)
	}
}

// strange is a Gatherer beside which an unlisted archive may be listening.
type strange struct{ Gatherer }

func (g strange) Gather(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind) (receipts.Gathered, error) {
	found, err := g.Gatherer.Gather(ctx, digest, tenant, kinds)
	found.Complete, found.Reason = false, wire.ReasonDeadline
	return found, err
}

// besideStranger calls fn while an unlisted archive may be listening.
func (w *world) besideStranger(fn func()) {
	before := w.engine.cfg.Gatherer
	w.engine.cfg.Gatherer = strange{before}
	defer func() { w.engine.cfg.Gatherer = before }()
	fn()
}

// A record is lost only when everybody who may have it said no.
func TestNothingIsLostWhileSomebodyIsSilent(t *testing.T) {
	w, b := newBooks(t, 2)
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	w.settled()
	b.forget("archive-a", any1)
	b.set("archive-b", func(n *node) { n.up = false })
	l := Loss{Archive: "archive-a", ID: "1", Boot: "1"}
	for range 2 {
		if err := w.engine.account(t.Context(), l); !fault.Is(err, fault.Transient) {
			t.Fatalf("accounted for although an archive is silent: %v", err)
		}
		w.wantLost("archive-a")
	}
	if _, said := b.whole["1"]; said {
		t.Error("told that it is accounted for")
	}
	b.set("archive-b", func(n *node) { n.up = true })
	if err := w.engine.account(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	w.settled()
	if n := b.copies(a.Parts[0].RecordID); n != 2 || b.whole["1"] {
		t.Errorf("%d copies, whole %v", n, b.whole["1"])
	}
	// An archive that can not be asked itself leaves everything open.
	b.set("archive-a", func(n *node) { n.up = false })
	if err := w.engine.account(t.Context(), Loss{Archive: "archive-a", ID: "2", Boot: "2"}); !fault.Is(err, fault.Transient) {
		t.Errorf("accounted for without its word: %v", err)
	}
}

// Bytes that are in the outbox still are put again, whoever lost them.
func TestLossIsHealedFromTheOutbox(t *testing.T) {
	w, b := newBooks(t, 2)
	b.set("archive-b", func(n *node) { n.up = false })
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	w.left(1)
	b.forget("archive-a", any1)
	b.set("archive-b", func(n *node) { n.up = true; n.refuse = errDown })
	if err := w.engine.account(t.Context(), Loss{Archive: "archive-a", ID: "1", Boot: "1"}); err != nil {
		t.Fatal(err)
	}
	w.wantLost("archive-a")
	b.set("archive-b", func(n *node) { n.refuse = nil })
	w.engine.Nudge()
	w.settled()
	if n := b.copies(a.Parts[0].RecordID); n != 2 || b.pulls != 0 {
		t.Errorf("%d copies, %d pulls", n, b.pulls)
	}
}

// What an archive acknowledged for a submission that has not ended is in memory
// only. It counts all the same: the walk does not end before the submission, and
// the archive is needed.
func TestUnsavedAcknowledgementsAreAccountedFor(t *testing.T) {
	b := &books{whole: map[string]bool{}}
	w := newWorld(t, 2, func(c *Config) {
		b.archives, c.Copies, c.PutMinCopies = c.Archives.(*archives), b, 2
	})
	for _, id := range b.Enrolled() {
		b.set(id, func(n *node) { n.refuse = errDown })
	}
	a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), metadata("1")))
	if err != nil {
		t.Fatal(err)
	}
	id := ref{alice, a.SubmissionID}
	b.set("archive-a", func(n *node) { n.refuse = nil })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.engine.Nudge()
		s, err := w.engine.current(id)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("archive-a did not acknowledge: %v", err)
		}
		if len(s.Parts[0].Acks) == 1 {
			break
		}
	}
	if s, err := w.engine.load(id); err != nil || len(s.Parts[0].Acks) != 0 {
		t.Fatalf("the store has %v, so that this tests nothing: %v", s.Parts[0].Acks, err)
	}
	if _, _, needed, err := w.engine.Needed(t.Context(), "archive-a"); err != nil || !needed {
		t.Errorf("the only copy is needed: %v, %v", needed, err)
	}
	b.forget("archive-a", any1)
	b.set("archive-a", func(n *node) { n.refuse = errDown })
	l := Loss{Archive: "archive-a", ID: "1", Boot: "1"}
	if err := w.engine.account(t.Context(), l); !fault.Is(err, fault.Transient) {
		t.Fatalf("accounted for while an acknowledgement is not: %v", err)
	}
	b.set("archive-b", func(n *node) { n.refuse = nil })
	w.engine.Nudge()
	w.ended(alice, a)
	if err := w.engine.account(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	b.set("archive-a", func(n *node) { n.refuse = nil })
	w.engine.Nudge()
	w.settled()
	if n := b.copies(a.Parts[0].RecordID); n != 2 || b.whole["1"] {
		t.Errorf("%d copies, whole %v", n, b.whole["1"])
	}
}

// An archive acknowledged a copy to a heal that has not noted it yet when the walk
// begins: the walk lets it end first, and sees the acknowledgement.
func TestAccountLetsWorkEndThatWasUnderWay(t *testing.T) {
	w, b := newBooks(t, 2)
	b.set("archive-b", func(n *node) { n.up = false })
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	w.left(1)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	placed, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(placed); <-release })
	b.set("archive-b", func(n *node) { n.up = true })
	w.open(func(step string) error {
		if step == "heal.placed" {
			first()
		}
		return nil
	})
	<-placed
	b.forget("archive-b", any1)
	b.set("archive-b", func(n *node) { n.refuse = errDown })
	accounted := make(chan error, 1)
	go func() { accounted <- w.engine.account(t.Context(), Loss{Archive: "archive-b", ID: "1", Boot: "1"}) }()
	select {
	case err := <-accounted:
		t.Errorf("accounted for beside a heal: %v", err)
		accounted <- err
	case <-time.After(3 * endPause):
	}
	close(release)
	if err := <-accounted; err != nil {
		t.Fatal(err)
	}
	if _, _, acc, err := w.engine.LostRecords("archive-b", wire.RecordID{}); err != nil || acc.Absent != 1 || b.whole["1"] {
		t.Errorf("%+v, whole %v: %v", acc, b.whole["1"], err)
	}
	b.set("archive-b", func(n *node) { n.refuse = nil })
	w.engine.Nudge()
	w.settled()
	if n := b.copies(a.Parts[0].RecordID); n != 2 {
		t.Errorf("%d copies", n)
	}
}

// Copies that archives made among themselves count for whether one is needed.
func TestCopiesMadeByArchivesCount(t *testing.T) {
	w, b := newBooks(t, 3)
	a, _ := w.must(alice, everything)
	w.settled()
	holders := w.holders(alice, a)
	third := b.Enrolled()[slices.IndexFunc(b.Enrolled(), func(id wire.ArchiveID) bool { return !slices.Contains(holders, id) })]
	if _, _, needed, err := w.engine.Needed(t.Context(), holders[0]); err != nil || !needed {
		t.Errorf("needed %v before: %v", needed, err)
	}
	for _, p := range a.Parts {
		if err := b.pull(third, p.RecordID, holders); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, needed, err := w.engine.Needed(t.Context(), holders[0]); err != nil || needed {
		t.Errorf("needed %v although the third has copied all: %v", needed, err)
	}
}

// What a retired archive had is copied to others; it is not asked, and not waited
// for.
func TestRetiredArchiveIsNoCopy(t *testing.T) {
	w, b := newBooks(t, 3)
	a, _ := w.must(alice, everything)
	w.settled()
	gone := w.holders(alice, a)[0]
	record, submission, needed, err := w.engine.Needed(t.Context(), gone)
	if err != nil || !needed || submission != a.SubmissionID || record.IsZero() {
		t.Errorf("needed %v for %s of %s: %v", needed, record, submission, err)
	}
	b.archives.mu.Lock()
	delete(b.nodes, gone)
	b.archives.mu.Unlock()
	if err := w.engine.account(t.Context(), Loss{Archive: gone, ID: "retired 7", Gone: true}); err != nil {
		t.Fatal(err)
	}
	w.settled()
	for _, p := range a.Parts {
		if n := b.copies(p.RecordID); n != 2 {
			t.Errorf("%s has %d copies", p.Kind, n)
		}
	}
	for _, id := range b.Enrolled() {
		if _, _, needed, err := w.engine.Needed(t.Context(), id); err != nil || !needed {
			t.Errorf("%s of two is not needed for two copies: %v", id, err)
		}
	}
	if _, _, needed, err := w.engine.Needed(t.Context(), gone); err != nil || needed {
		t.Errorf("the retired one is needed still: %v", err)
	}
}

// A crash after any page, and a walk that is cut off, are gone on from there: what
// was found before counts once.
func TestAccountGoesOnAfterACrash(t *testing.T) {
	const many = workPage + 40
	for _, keep := range unsynced() {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			w, b := newBooks(t, 2)
			var clients sync.WaitGroup
			for c := range 16 {
				clients.Go(func() {
					for i := c; i < many; i += 16 {
						if _, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), metadata(fmt.Sprint(i)))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			clients.Wait()
			w.settled()
			b.forget("archive-a", any1)
			b.set("archive-a", func(n *node) { n.refuse = errDown })
			l := Loss{Archive: "archive-a", ID: "1", Boot: "1"}
			pages := 0
			w.engine.step = func(name string) error {
				if name == "account.page" {
					pages++
					return errCrash
				}
				return nil
			}
			if err := w.engine.account(t.Context(), l); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			left := w.crash(keep)
			if err := w.engine.Close(); err != nil {
				t.Fatal(err)
			}
			w.fs = left
			w.open(func(name string) error {
				if name == "account.page" {
					pages++
				}
				return nil
			})
			if err := w.engine.account(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			_, _, acc, err := w.engine.LostRecords("archive-a", wire.RecordID{})
			if err != nil || acc.Records != many || acc.Absent != many || acc.Submissions != many || pages != 2 {
				t.Errorf("%+v after %d pages: %v", acc, pages, err)
			}
			b.set("archive-a", func(n *node) { n.refuse = nil })
			w.engine.Nudge()
			w.settled()
			for id := range b.distinct() {
				if n := b.copies(id); n != 2 {
					t.Fatalf("record %s has %d copies", id, n)
				}
			}
		})
	}
}

// Losses that the roster tells of are accounted for without being asked to.
func TestLossesAreLookedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the time of a round")
	}
	told := make(chan bool, 1)
	w := newWorld(t, 2, func(c *Config) { c.Copies = &onceLost{books: &books{archives: c.Archives.(*archives)}, told: told} })
	w.must(alice, hashBody(digestOf("document"), metadata("1")))
	select {
	case whole := <-told:
		if !whole {
			t.Error("a whole archive is not")
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody looked")
	}
}

type onceLost struct {
	*books
	told chan bool
}

func (o *onceLost) Losses() []Loss { return []Loss{{Archive: "archive-a", ID: "1", Boot: "1"}} }

func (o *onceLost) Accounted(_ Loss, whole bool) {
	select {
	case o.told <- whole:
	default:
	}
}
