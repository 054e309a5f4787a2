package jobs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// tardy is a Gatherer at whose deadline nothing of more was there yet, and which
// has it once the test opens it.
type tardy struct {
	Gatherer
	open chan struct{} // closed: what is late has come
	more bool          // it adds a record

	mu        sync.Mutex // guards the fields below
	asked     int
	dismissed int
}

func (g *tardy) GatherLate(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind, extra time.Duration) (receipts.Gathered, receipts.Late, error) {
	g.mu.Lock()
	g.asked++
	g.mu.Unlock()
	found, err := g.Gather(ctx, digest, tenant, kinds)
	found.Complete, found.Reason = false, wire.ReasonDeadline
	late := func(ctx context.Context) (receipts.Gathered, bool) {
		select {
		case <-g.open:
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			g.dismissed++
			return receipts.Gathered{}, false
		}
		if !g.more {
			return found, false
		}
		r := wire.Record{Kind: "note", SHA256: digest, TenantID: tenant, Body: []byte("late")}
		r.ID, r.BodySHA256 = r.ComputeID(), r.Portable().BodySHA256()
		then := found
		then.Records = append(append([]receipts.Held{}, found.Records...), receipts.Held{Record: r, ArchiveIDs: []wire.ArchiveID{"slow"}})
		then.Replied++
		return then, true
	}
	return found, late, err
}

func (g *tardy) count() (asked, dismissed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked, g.dismissed
}

// lateWorld is a world whose archives are late by as much as the test wants.
func lateWorld(t *testing.T, more bool) (*world, *tardy) {
	g := &tardy{open: make(chan struct{}), more: more}
	w := newWorld(t, 2, func(c *Config) {
		g.Gatherer, c.Gatherer = c.Gatherer, g
		c.Late = time.Hour
	})
	return w, g
}

// updates waits until n events of a submission are announced and returns those
// that tell of late replies.
func (w *world) updates(id wire.SubmissionID, n int) (list []wire.Event) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		all := w.events.bySubmission(id)
		if len(all) >= n {
			for _, e := range all {
				if e.Event == wire.EventUpdated {
					list = append(list, e)
				}
			}
			return list
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d events", len(all))
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
}

// What comes late is told in one event, which has all of it and nothing private
// in clear; the end of the submission did not wait for it.
func TestLateRepliesAreToldOnce(t *testing.T) {
	w, g := lateWorld(t, true)
	a, job := w.must(alice, hashBody(digestOf("document"), metadata("1"), `"privateMetadata":{"secret":1}`, attached))
	if events := w.announced(a.SubmissionID); len(events) != 1 || events[0].Event != wire.EventCompleted || len(job.Receipts) != 2 {
		t.Fatalf("at the deadline: %s", encode(t, events))
	}
	close(g.open)
	told := w.updates(a.SubmissionID, 2)
	if len(told) != 1 || told[0].TenantID != alice || told[0].JobID != job.JobID || told[0].Status != wire.StatusCompleted || len(told[0].Receipts) != 3 || told[0].ArchiveReplies != job.ArchiveReplies+1 {
		t.Fatalf("then: %s", encode(t, told))
	}
	for _, r := range told[0].Receipts {
		if len(r.PrivateMetadata) > 0 {
			t.Errorf("private metadata is in an event: %s", encode(t, r))
		}
	}
	// A second pass to the end, and a restart, tell nothing new.
	s, err := w.engine.load(ref{alice, a.SubmissionID})
	if err != nil {
		t.Fatal(err)
	}
	seal, err := w.engine.seal(t.Context(), s.Digest)
	if err != nil {
		t.Fatal(err)
	}
	found, err := w.engine.gather(t.Context(), s.Digest, alice, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.updated(t.Context(), s, seal, found); err != nil {
		t.Fatal(err)
	}
	w.restart(nil)
	w.engine.announceAgain()
	if again := w.updates(a.SubmissionID, 2); len(again) != 1 || again[0].ID != told[0].ID {
		t.Errorf("once more: %s", encode(t, again))
	}
}

func TestLateRepliesThatAddNothingAreNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		more   bool
		late   time.Duration
		fields []string
		asked  int // for more than the deadline's answer
	}{
		"no record":    {false, time.Hour, []string{attached}, 1},
		"switched off": {true, 0, []string{attached}, 0},
		"the flag off": {true, time.Hour, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, g := lateWorld(t, c.more)
			w.engine.cfg.Late = c.late
			close(g.open)
			a, _ := w.must(alice, hashBody(digestOf("document"), c.fields...))
			w.settled()
			w.restart(nil) // what follows a submission has ended with the engine
			if asked, _ := g.count(); asked != c.asked {
				t.Errorf("asked %d times, want %d", asked, c.asked)
			}
			if events := w.announced(a.SubmissionID); len(events) != 1 || events[0].Event != wire.EventCompleted {
				t.Errorf("events: %s", encode(t, events))
			}
		})
	}
}

// A stop ends the waiting at once. A submission that could not end is not
// followed, and asks again.
func TestLateWaitingEndsWithTheEngine(t *testing.T) {
	w, g := lateWorld(t, true)
	fail := make(chan struct{}, 1)
	fail <- struct{}{}
	w.engine.step = func(name string) error {
		if name == "settle.gathered" {
			select {
			case <-fail:
				return fault.New(fault.Transient, "", "not now")
			default:
			}
		}
		return nil
	}
	a, _ := w.must(alice, hashBody(digestOf("document"), attached))
	w.restart(nil)
	if asked, dismissed := g.count(); asked != 2 || dismissed != 2 {
		t.Errorf("asked %d times, dismissed %d times", asked, dismissed)
	}
	if events := w.announced(a.SubmissionID); len(events) != 1 {
		t.Errorf("events: %s", encode(t, events))
	}
}

// Power lost between the commit of the event and its announcement costs nothing:
// it is announced at the next start, and only once.
func TestLateEventSurvivesACrash(t *testing.T) {
	w, g := lateWorld(t, true)
	committed := make(chan struct{})
	w.engine.step = func(name string) error {
		if name == "late.committed" {
			close(committed)
			return errCrash
		}
		return nil
	}
	a, _ := w.must(alice, hashBody(digestOf("document"), attached))
	close(g.open)
	<-committed
	if events := w.events.bySubmission(a.SubmissionID); len(events) > 1 {
		t.Fatal("it was announced")
	}
	w.restart(new(int)) // nothing that was not synced is left
	if told := w.updates(a.SubmissionID, 2); len(told) != 1 || len(told[0].Receipts) != 2 {
		t.Errorf("after the crash: %s", encode(t, told))
	}
}
