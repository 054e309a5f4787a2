package bus

import (
	"testing"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// TestLaw6FromTheFirstMillisecond: an aggregator that has just started, and has
// heard nobody yet, misses no archive that it knew before, dead or alive. It says
// that all is there when it is, and not before.
func TestLaw6FromTheFirstMillisecond(t *testing.T) {
	w := startWatched(t, 3)
	for _, id := range w.ids {
		w.await(t, id, wire.StateUp)
	}
	if _, err := w.client.Put(t.Context(), "archive-b", note("s", "1")); err != nil {
		t.Fatal(err)
	}
	if err := w.sites[2].service.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dead := range []bool{true, false} {
		if !dead {
			w.serve(t, w.sites[2])
		}
		w.begin(t)
		complete, patience := 0, 20*time.Millisecond
		for began := time.Now(); complete == 0 && (!dead || time.Since(began) < 3*HelloInterval); patience = min(patience+patience/4, time.Second) {
			g := &receipts.Gatherer{Asker: w.client, Roster: w.roster, Wait: patience}
			found, err := g.Gather(t.Context(), digestOf("s"), tenantA, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Expected) != 3 || found.Complete != (len(found.Missing) == 0) {
				t.Fatalf("%+v", found)
			}
			if found.Complete {
				complete++
				if dead || len(found.Records) != 1 {
					t.Fatalf("complete with %d records, archive-c dead: %v", len(found.Records), dead)
				}
			}
		}
	}
}
