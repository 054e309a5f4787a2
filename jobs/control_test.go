package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// impatient does not wait long for archives that are away.
func impatient(c *Config) { c.Gatherer.(*receipts.Gatherer).Wait = 200 * time.Millisecond }

// begun is what dates are counted from: one moment, so that they are equal.
var begun = time.Now().Truncate(time.Second)

// in is the instant some years from then, as a request gives it.
func in(years int) wire.Time { return wire.At(begun.AddDate(years, 0, 0)) }

// about is a request about all that alice has under the document.
func about(kind wire.Kind, c wire.Control) Steering {
	return Steering{TenantID: alice, Kind: kind, SHA256: digestOf("document"), Control: c}
}

// steer makes a request that must succeed.
func (w *world) steer(q Steering) wire.Steered {
	w.t.Helper()
	out, err := w.engine.Steer(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	if out.ControlID.IsZero() || out.DecidedAt == "" || out.Archives != len(w.archives.Enrolled()) {
		w.t.Errorf("the answer is %+v", out)
	}
	return out
}

// refused makes a request that must be refused with a code.
func (w *world) refused(q Steering, kind fault.Kind, code string) error {
	w.t.Helper()
	out, err := w.engine.Steer(w.t.Context(), q)
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		w.t.Errorf("%s: %+v, %v, want %s", q.Kind, out, err, code)
	}
	return err
}

// state is how the document's records stand for alice, by the engine.
func (w *world) state() wire.Retentions {
	w.t.Helper()
	got, err := w.engine.Retentions(w.t.Context(), alice, digestOf("document"))
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// controls returns the control records that all archives hold, each once.
func (w *world) controls() (list []wire.Record) {
	for _, r := range w.archives.distinct() {
		if r.Kind.Control() {
			list = append(list, r)
		}
	}
	return list
}

// everywhere fails unless every archive holds every control record and no
// control record is on one twice.
func (w *world) everywhere(want int) {
	w.t.Helper()
	list := w.controls()
	if len(list) != want {
		w.t.Errorf("%d control records, want %d", len(list), want)
	}
	for _, r := range list {
		if n := w.archives.copies(r.ID); n != len(w.archives.Enrolled()) {
			w.t.Errorf("%s %s is on %d of %d archives", r.Kind, r.Body, n, len(w.archives.Enrolled()))
		}
	}
}

// names are the names of the holds in force.
func names(holds []wire.Hold) []string {
	list := []string{}
	for _, h := range holds {
		list = append(list, h.Name)
	}
	return list
}

func TestRetentionOnlyGrows(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.must(alice, hashBody(digestOf("document"), metadata("1")))
	first := w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(2)}))
	if !first.Changed || first.Status != wire.StatusCompleted || first.Retention.RetainUntil != in(2) || first.Copies != 3 {
		t.Errorf("the first is %+v", first)
	}
	again := w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(2)}))
	if again.Changed || again.ControlID != first.ControlID || again.DecidedAt != first.DecidedAt {
		t.Errorf("the same again is %+v", again)
	}
	err := w.refused(about(wire.KindRetain, wire.Control{RetainUntil: in(1)}), fault.Conflict, codeShorter)
	if want := string(in(2)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not name %s", err, want)
	}
	if longer := w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(3)})); !longer.Changed || longer.ControlID == first.ControlID {
		t.Errorf("a longer one is %+v", longer)
	}
	w.refused(about(wire.KindRetain, wire.Control{RetainUntil: in(2)}), fault.Conflict, codeShorter)
	w.refused(about(wire.KindRetain, wire.Control{RetainUntil: in(-1)}), fault.Invalid, codeRetentionPast)
	w.refused(about(wire.KindRetain, wire.Control{RetainUntil: in(101)}), fault.Invalid, codeRetentionBeyond)
	w.refused(about(wire.KindRetain, wire.Control{RetainUntil: "2040"}), fault.Invalid, "BAD_FIELD")
	if got := w.state(); got.RetainUntil != in(3) || len(got.Records) != 1 || got.Records[0].RetainUntil != in(3) {
		t.Errorf("the state is %+v", got)
	}
	w.settled()
	w.everywhere(2)
}

// Requests that run at once, with dates in any order, never make a date that
// stands shorter: whoever looks sees it grow.
func TestRetentionIsNeverShortenedByAnyInterleaving(t *testing.T) {
	w := newWorld(t, 3, nil)
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	one := a.Parts[0].RecordID
	const requests = 48
	var mu sync.Mutex
	var wg sync.WaitGroup
	highest := map[wire.RecordID]wire.Time{}
	looking, stop := context.WithCancel(t.Context())
	defer stop()
	var looker sync.WaitGroup
	looker.Go(func() {
		seen := wire.Time("")
		for looking.Err() == nil {
			got, err := w.engine.RecordRetention(t.Context(), alice, one)
			if err != nil {
				t.Error(err)
				return
			}
			if seen != "" && (got.RetainUntil == "" || got.RetainUntil.Compare(seen) < 0) {
				t.Errorf("it was retained until %s, and then until %q", seen, got.RetainUntil)
			}
			seen = got.RetainUntil
		}
	})
	for n := range requests {
		target := wire.RecordID{}
		if n%2 == 1 {
			target = one
		}
		until := wire.At(time.Now().Add(time.Hour * time.Duration(100+rand.IntN(20))).Truncate(time.Hour))
		wg.Go(func() {
			out, err := w.engine.Steer(t.Context(), about(wire.KindRetain, wire.Control{RecordID: target, RetainUntil: until}))
			switch {
			case fault.CodeOf(err) == codeShorter:
			case err != nil:
				t.Error(err)
			case out.Retention.RetainUntil.Compare(until) != 0:
				t.Errorf("until %s was accepted, and then stands %s", until, out.Retention.RetainUntil)
			}
			mu.Lock()
			defer mu.Unlock()
			if highest[target] == "" || until.Compare(highest[target]) > 0 {
				highest[target] = until
			}
		})
	}
	wg.Wait()
	stop()
	looker.Wait()
	got := w.state()
	most := highest[wire.RecordID{}]
	if got.RetainUntil != most {
		t.Errorf("all are retained until %s, want %s", got.RetainUntil, most)
	}
	if highest[one].Compare(most) > 0 {
		most = highest[one]
	}
	if got.Records[0].RetainUntil != most {
		t.Errorf("the record is retained until %s, want %s", got.Records[0].RetainUntil, most)
	}
	w.settled()
	w.everywhere(len(w.controls()))
}

func TestHoldsAreIndependentOfRetention(t *testing.T) {
	w := newWorld(t, 3, nil)
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1"), `"privateMetadata":{"secret":1}`))
	one := a.Parts[0].RecordID
	hold := w.steer(about(wire.KindHold, wire.Control{Name: "case 17", Reason: "Smith v. Acme"}))
	if !hold.Changed || hold.Retention.RetainUntil != "" || len(hold.Retention.Holds) != 1 || hold.Retention.Holds[0].Reason != "Smith v. Acme" {
		t.Errorf("the hold is %+v", hold)
	}
	if again := w.steer(about(wire.KindHold, wire.Control{Name: "case 17"})); again.Changed || again.ControlID != hold.ControlID {
		t.Errorf("the same hold again is %+v", again)
	}
	w.steer(about(wire.KindHold, wire.Control{}))
	w.steer(about(wire.KindHold, wire.Control{Name: "case 17", RecordID: one}))
	w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(2)}))
	// One hold ends; the others, and the date, stay.
	release := w.steer(about(wire.KindRelease, wire.Control{Name: "case 17"}))
	if !release.Changed || release.Retention.RetainUntil != in(2) || !cmp.Equal(names(release.Retention.Holds), []string{""}) {
		t.Errorf("after the release: %+v", release.Retention)
	}
	w.refused(about(wire.KindRelease, wire.Control{Name: "case 17"}), fault.NotFound, codeNoHold)
	w.refused(about(wire.KindRelease, wire.Control{Name: "case 18"}), fault.NotFound, codeNoHold)
	w.refused(about(wire.KindRelease, wire.Control{RecordID: one}), fault.NotFound, codeNoHold) // it is on all, not on this one
	got := w.state()
	if !cmp.Equal(names(got.Holds), []string{""}) || got.RetainUntil != in(2) {
		t.Errorf("all are %+v", got)
	}
	for _, r := range got.Records {
		want := []string{""}
		if r.RecordID == one {
			want = []string{"", "case 17"}
		}
		if !cmp.Equal(names(r.Holds), want) || r.RetainUntil != in(2) {
			t.Errorf("record %s is %+v", r.Kind, r)
		}
	}
	if held := w.steer(about(wire.KindHold, wire.Control{Name: "case 17"})); !held.Changed || held.ControlID == hold.ControlID {
		t.Errorf("held again is %+v", held)
	}
	w.settled()
	w.everywhere(6)
}

func TestHoldsOfTooManyNames(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.must(alice, hashBody(digestOf("document"), metadata("1")))
	for n := range wire.MaxHolds {
		w.steer(about(wire.KindHold, wire.Control{Name: fmt.Sprint(n)}))
	}
	w.steer(about(wire.KindRelease, wire.Control{Name: "0"}))
	w.refused(about(wire.KindHold, wire.Control{Name: "one more"}), fault.Conflict, codeTooManyHolds)
	if out := w.steer(about(wire.KindHold, wire.Control{Name: "0"})); !out.Changed {
		t.Errorf("a name that was used before: %+v", out)
	}
}

// What is not there and what is another tenant's look the same, and nothing is
// said of either.
func TestSteeringWhatIsNotThere(t *testing.T) {
	w := newWorld(t, 2, impatient)
	a, _ := w.must(bob, hashBody(digestOf("document"), metadata("1"), `"public":true`))
	w.must(alice, hashBody(digestOf("a bare hash")))
	mine, _ := w.must(alice, hashBody(digestOf("another document"), metadata("2")))
	bare := about(wire.KindHold, wire.Control{})
	bare.SHA256 = digestOf("a bare hash")
	elsewhere := about(wire.KindHold, wire.Control{RecordID: mine.Parts[0].RecordID})
	for name, q := range map[string]Steering{
		"another tenant's":        about(wire.KindRetain, wire.Control{RetainUntil: in(1)}),
		"another tenant's record": about(wire.KindHold, wire.Control{RecordID: a.Parts[0].RecordID}),
		"no such record":          about(wire.KindRelease, wire.Control{RecordID: wire.RecordID{1}}),
		"no record":               bare,
		"under another digest":    elsewhere,
	} {
		t.Run(name, func(t *testing.T) { w.refused(q, fault.NotFound, codeNoRecords) })
	}
	unknown := about(wire.KindHold, wire.Control{})
	unknown.SHA256 = digestOf("unknown")
	of := func(q Steering, d wire.Digest) string {
		q.SHA256 = d
		return w.refused(q, fault.NotFound, codeNoRecords).Error()
	}
	if there, not := of(unknown, digestOf("document")), of(unknown, digestOf("unknown")); len(there) != len(not) {
		t.Errorf("%q and %q differ", there, not)
	}
	w.archives.set("archive-b", func(n *node) { n.up = false })
	w.refused(unknown, fault.Transient, "ARCHIVES_MISSING")
	if _, err := w.engine.Retentions(t.Context(), alice, digestOf("document")); fault.CodeOf(err) != "ARCHIVES_MISSING" {
		t.Errorf("the state of what nobody found: %v", err)
	}
	if list := w.controls(); len(list) != 0 {
		t.Errorf("%d control records were made", len(list))
	}
}

// A control record reaches every archive: one that was away, and one that was
// enrolled later, also after a restart. Meanwhile everybody sees what stands.
func TestControlRecordsReachEveryArchive(t *testing.T) {
	w := newWorld(t, 3, impatient)
	w.must(alice, hashBody(digestOf("document"), metadata("1"), attached))
	w.settled()
	w.archives.all(func(n *node) { n.up = false })
	w.archives.set("archive-a", func(n *node) { n.up = true })
	out := w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(2)}))
	if out.Copies != 1 || out.Archives != 3 || out.Status != wire.StatusCompleted {
		t.Errorf("with one of three archives the answer is %+v", out)
	}
	w.archives.all(func(n *node) { n.up = false })
	out = w.steer(about(wire.KindHold, wire.Control{}))
	if out.Copies != 0 || out.Status != wire.StatusPending {
		t.Errorf("without an archive the answer is %+v", out)
	}
	w.archives.set("archive-b", func(n *node) { n.up = true })
	w.archives.set("archive-c", func(n *node) { n.up = true })
	job, err := w.engine.Receipts(t.Context(), alice, digestOf("document"), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range job.Receipts {
		if r.Kind == wire.ReceiptMetadataAttach && (r.Retention == nil || r.Retention.RetainUntil != in(2) || len(r.Retention.Holds) != 1) {
			t.Errorf("archives that heard nothing show %+v", r.Retention)
		}
	}
	w.archives.set("archive-a", func(n *node) { n.up = true })
	w.engine.Nudge()
	w.settled()
	w.everywhere(2)

	w.archives.enrol("archive-d")
	w.engine.Nudge()
	w.spreadOver("archive-d", 2)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	w.archives.enrol("archive-e")
	w.open(nil)
	w.spreadOver("archive-e", 2)
	w.steer(about(wire.KindRelease, wire.Control{}))
	w.settled()
	w.everywhere(3)

	// One that was retired for a while under the same id missed what was decided
	// meanwhile.
	was := w.archives.retire("archive-e")
	w.steer(about(wire.KindHold, wire.Control{Name: "meanwhile"}))
	w.settled()
	w.archives.enrol("archive-e")
	w.archives.set("archive-e", func(n *node) { n.records = was.records })
	w.engine.Nudge()
	w.spreadOver("archive-e", 4)
	w.settled()
	w.everywhere(4)
}

// spreadOver waits until an archive has n control records.
func (w *world) spreadOver(id wire.ArchiveID, n int) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		have := 0
		w.archives.set(id, func(node *node) { have = len(node.records) })
		if have == n {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s has %d control records, want %d", id, have, n)
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
}

// More control records than a page of the work list holds come to an archive
// that was enrolled after them, also if power is lost on the way.
func TestManyControlRecordsReachALaterArchive(t *testing.T) {
	for _, keep := range unsynced() {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			w := newWorld(t, 1, nil)
			w.must(alice, hashBody(digestOf("document"), metadata("1")))
			const n = workPage + 20
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					kind := wire.KindHold
					q := about(kind, wire.Control{Name: fmt.Sprint(i % wire.MaxHolds)})
					if _, err := w.engine.Steer(t.Context(), q); err != nil {
						t.Error(err)
					}
					q.Kind = wire.KindRelease
					if _, err := w.engine.Steer(t.Context(), q); err != nil && fault.CodeOf(err) != codeNoHold {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			w.settled()
			made := len(w.controls())
			c := &crasher{gap: "spread.page", world: w, keep: keep, happy: make(chan struct{})}
			if err := w.engine.Close(); err != nil {
				t.Fatal(err)
			}
			w.archives.enrol("archive-z")
			w.open(c.step)
			w.lose(c)
			w.spreadOver("archive-z", made)
			w.settled()
			w.everywhere(made)
		})
	}
}

// A clock that was set back does not turn the order of decisions round.
func TestDecisionsKeepTheirOrderWhenTheClockIsSetBack(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	set := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	w := newWorld(t, 2, func(c *Config) {
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	w.must(alice, hashBody(digestOf("document"), metadata("1")))
	hold := w.steer(about(wire.KindHold, wire.Control{}))
	set(-time.Hour)
	release := w.steer(about(wire.KindRelease, wire.Control{}))
	if release.DecidedAt.Compare(hold.DecidedAt) <= 0 || release.Retention != nil {
		t.Errorf("held at %s, released at %s: %+v", hold.DecidedAt, release.DecidedAt, release.Retention)
	}
	set(-time.Hour)
	again := w.steer(about(wire.KindHold, wire.Control{}))
	if again.DecidedAt.Compare(release.DecidedAt) <= 0 || len(again.Retention.Holds) != 1 {
		t.Errorf("released at %s, held again at %s: %+v", release.DecidedAt, again.DecidedAt, again.Retention)
	}
}

// A job store that was lost does not shorten anything either: the archives
// remember. What is said again goes to every archive.
func TestArchivesRememberWhatTheStoreLost(t *testing.T) {
	w := newWorld(t, 3, nil)
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	one := a.Parts[0].RecordID
	w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(3)}))
	w.steer(about(wire.KindRetain, wire.Control{RecordID: one, RetainUntil: in(5)}))
	w.steer(about(wire.KindHold, wire.Control{Name: "a"}))
	w.steer(about(wire.KindHold, wire.Control{Name: "b"}))
	w.settled()
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	w.fs, w.config.Create = vfs.NewCrashableMem(), true
	w.open(nil)
	w.refused(about(wire.KindRetain, wire.Control{RetainUntil: in(2)}), fault.Conflict, codeShorter)
	w.refused(about(wire.KindRetain, wire.Control{RecordID: one, RetainUntil: in(4)}), fault.Conflict, codeShorter)
	if out := w.steer(about(wire.KindRetain, wire.Control{RetainUntil: in(4)})); !out.Changed { // all of them, beyond what all have
		t.Errorf("all until %s: %+v", in(4), out)
	}
	if out := w.steer(about(wire.KindHold, wire.Control{Name: "a"})); !out.Changed {
		t.Errorf("a hold that only archives know: %+v", out)
	}
	if out := w.steer(about(wire.KindRelease, wire.Control{Name: "b"})); !out.Changed || !cmp.Equal(names(out.Retention.Holds), []string{"a"}) {
		t.Errorf("a release of what only archives know: %+v", out)
	}
	got := w.state()
	if got.RetainUntil != in(4) || got.Records[0].RetainUntil != in(5) || !cmp.Equal(names(got.Holds), []string{"a"}) {
		t.Errorf("the state is %+v", got)
	}
}

// A control record is no job: neither its submission nor its kind is shown.
func TestControlRecordsAreNoJobs(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1"), attached))
	w.steer(about(wire.KindHold, wire.Control{}))
	w.settled()
	job, err := w.engine.Job(t.Context(), alice, a.JobID, View{})
	if err != nil || job.SubmissionID != a.SubmissionID {
		t.Fatalf("the newest submission is %s, %v", job.SubmissionID, err)
	}
	for _, r := range w.controls() {
		if _, err := w.engine.Job(t.Context(), alice, a.JobID, View{SubmissionID: r.SubmissionID}); fault.CodeOf(err) != "JOB_NOT_FOUND" {
			t.Errorf("the submission of a control record: %v", err)
		}
		if _, err := w.engine.Record(t.Context(), alice, r.ID, false); fault.CodeOf(err) != "RECORD_NOT_FOUND" {
			t.Errorf("the bytes of a control record: %v", err)
		}
		if events := w.events.bySubmission(r.SubmissionID); len(events) != 0 {
			t.Errorf("a control record was announced: %s", encode(t, events))
		}
	}
	for _, r := range job.Receipts {
		if wire.Kind(r.Kind).Control() {
			t.Errorf("a control record shows as a receipt: %s", encode(t, r))
		}
	}
}
