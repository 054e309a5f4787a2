package bus

import (
	"testing"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

var (
	_ receipts.Mirrors = (*Mirrors)(nil)
	_ receipts.Asker   = (*Archives)(nil)
)

// Gatherings over real mirrors: what nobody has is answered without a question, what
// was acknowledged is found at once, and a sample that shows what a mirror denied
// ends the belief in it.
func TestGatheringsUseMirrorsAndFindThemWrong(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, time.Minute)
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	gather := func(subject string, every int) receipts.Gathered {
		t.Helper()
		// A gathering that waited would not end while this test runs.
		gatherer := &receipts.Gatherer{Asker: w.archives, Roster: w.roster, Mirrors: w.mirrors, Wait: time.Hour, SampleEvery: every}
		found, err := gatherer.Gather(t.Context(), digestOf(subject), tenantA, nil)
		if err != nil || !found.Complete || found.Reason != wire.ReasonAll || len(found.Expected) != 1 || len(found.Missing) != 0 {
			t.Fatalf("%s: %+v, %v", subject, found, err)
		}
		return found
	}
	asked := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.queries }
	const never = 1 << 40
	if gather("nothing", never); asked() != 0 {
		t.Errorf("%d questions about what nobody has", asked())
	}
	if gather("nothing", 1); asked() != 1 {
		t.Errorf("%d questions of a sample", asked())
	}
	if _, err := a.fakeNode.Put(t.Context(), note("forgotten", "body")); err != nil { // past the filter
		t.Fatal(err)
	}
	g.put(w, "archive-a", "known") // its number is above that of the forgotten one
	if found := gather("known", never); len(found.Records) != 1 || asked() != 2 {
		t.Errorf("%d records, %d questions", len(found.Records), asked())
	}
	contradictions := w.mirrors.metrics.contradictions.WithLabelValues("record")
	if gather("nothing", 1); asked() != 3 || count(contradictions) != 0 {
		t.Errorf("%d questions, %d contradictions", asked(), count(contradictions))
	}
	if found := gather("forgotten", 1); len(found.Records) != 1 || count(contradictions) != 1 || w.mirrors.State("archive-a").State == MirrorTrusted {
		t.Errorf("%d records, %d contradictions, the mirror is %+v", len(found.Records), count(contradictions), w.mirrors.State("archive-a"))
	}
	w.mirrors.mu.Lock()
	w.mirrors.pause = time.Now().Add(time.Hour) // also on a slow machine
	w.mirrors.mu.Unlock()
	if gather("nothing", never); asked() != 5 {
		t.Errorf("%d questions: the archive was not asked without a mirror", asked())
	}
}
