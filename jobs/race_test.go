package jobs

import (
	"context"
	"strings"
	"testing"

	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// kept makes a submission durable, as step 3 of Accept does, and stops there.
func (w *world) kept(c Caller, body string) *submission {
	w.t.Helper()
	c.SubmissionID = wire.NewSubmissionID()
	req, err := splitter.ReadJSON(w.t.Context(), strings.NewReader(body), splitter.Config{
		Uploader: w.archives, SubmissionID: c.SubmissionID, TenantID: c.TenantID,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	d, err := w.engine.draft(w.t.Context(), c, req)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.engine.store.update(w.t.Context(), func(t *tx) error { return w.engine.write(t, d, nil) }); err != nil {
		w.t.Fatal(err)
	}
	return &d.submission
}

func (e *Engine) task(id ref) *task {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open[id]
}

// A request that joins a submission may wake it before the one that made it
// gets to: one task stands all the same, so one pass runs at a time.
func TestSubmissionHasOneTask(t *testing.T) {
	w := newWorld(t, 2, nil)
	hold := make(chan struct{})
	w.engine.step = func(string) error { <-hold; return nil }
	s := w.kept(Caller{TenantID: alice}, hashBody(digestOf("document"), metadata("1")))
	w.engine.kick(s.ref())
	first := w.engine.task(s.ref())
	w.engine.track(s)
	if second := w.engine.task(s.ref()); second != first || first == nil {
		t.Errorf("the submission has the tasks %p and %p", first, second)
	}
	close(hold)
	w.ended(alice, wire.Accepted{JobID: s.JobID, SubmissionID: s.ID})
}

// A submission ends once, with one event, also if its last step is taken twice.
func TestEndIsOnce(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.deliver(nil)
	s := w.kept(Caller{TenantID: alice}, hashBody(digestOf("document")))
	again, lost := s.clone(), s.clone()
	for _, settle := range []func() error{
		func() error { return w.engine.settle(t.Context(), s) },
		func() error { return w.engine.settle(t.Context(), again) },
		func() error { return w.engine.fail(context.Background(), lost, errInFlight) },
	} {
		if err := settle(); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []*submission{again, lost} {
		if other.EventID != s.EventID || other.Status != wire.StatusCompleted {
			t.Errorf("the submission ended as %s with event %s, then as %s with %s", s.Status, s.EventID, other.Status, other.EventID)
		}
	}
	if events := w.announced(s.ID); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}
