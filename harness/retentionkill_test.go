package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// While several clients retain at once, with dates in any order, processes are
// killed and started again. What was acknowledged stands ever after, and at the
// end every archive that has the record says so.
func TestKilledProcessesShortenNothing(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=500"}})
	l := &lock{t: t, w: w, c: w.Client("acme"), digest: sum([]byte("killed"))}
	id := l.attach(1)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	var acknowledged wire.Time
	tries := 0
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				// Later and later on the whole, in no order among the clients.
				mu.Lock()
				tries++
				until := begun.AddDate(1, 0, 0).Add(time.Duration(tries)*time.Minute - rand.N(20*time.Minute))
				mu.Unlock()
				out, err := w.Client("acme").Retain(ctx, l.target(id), until, "")
				switch {
				case err == nil:
					if out.Retention.Until().Compare(wire.At(until)) < 0 {
						t.Errorf("until %s was acknowledged, and %s stands", until, out.Retention.Until())
					}
					mu.Lock()
					if acknowledged == "" || wire.At(until).Compare(acknowledged) > 0 {
						acknowledged = wire.At(until)
					}
					mu.Unlock()
				case ctx.Err() != nil, fault.CodeOf(err) == "RETENTION_SHORTER":
				case !fault.Is(err, fault.Transient):
					t.Error(err)
				}
			}
		})
	}
	names := w.Names() // the aggregator first
	for n := range need.Rounds(3, 30) {
		name := names[0]
		if n%2 == 1 {
			name = names[rand.IntN(len(names))]
		}
		// The kill comes while requests are under way.
		before := func() int { mu.Lock(); defer mu.Unlock(); return tries }
		for from := before(); before() < from+8; {
			time.Sleep(time.Millisecond) // polls; nothing is timed by it
		}
		mu.Lock()
		stands := acknowledged
		mu.Unlock()
		if err := w.Kill(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := w.Restart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := w.WaitUp(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if _, r := l.state(id); stands != "" && (r.RetainUntil == "" || r.RetainUntil.Compare(stands) < 0) {
			t.Errorf("until %s was acknowledged before %s was killed, and now %q stands", stands, name, r.RetainUntil)
		}
	}
	stop()
	clients.Wait()
	_, r := l.state(id)
	if acknowledged == "" || r.RetainUntil.Compare(acknowledged) < 0 {
		t.Errorf("until %q was acknowledged, and %q stands", acknowledged, r.RetainUntil)
	}
	t.Logf("%d requests", tries)
	nc := dial(t, w)
	var holders []wire.ArchiveID
	awaitJob(t, l.c, l.digest, func(job *wire.Job) bool {
		if job.Complete && len(job.Receipts) > 1 {
			holders = job.Receipts[1].ArchiveIDs
		}
		return len(holders) > 0
	})
	for _, archive := range holders {
		deadline := time.Now().Add(time.Minute)
		for {
			// A request whose client left may have been decided since: at least.
			says := stateAt(t, nc, archive, l.digest)
			if says.Until() != "" && says.Until().Compare(r.RetainUntil) >= 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s says %+v, want %s", archive, says, r.RetainUntil)
			}
			time.Sleep(20 * time.Millisecond) // polls; nothing is timed by it
		}
	}
}
