package jobs

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// counting is a Gatherer that counts how often the archives are asked.
type counting struct {
	Gatherer
	asked atomic.Int64
}

func (c *counting) Gather(ctx context.Context, d wire.Digest, t wire.TenantID, k []wire.Kind) (receipts.Gathered, error) {
	c.asked.Add(1)
	return c.Gatherer.Gather(ctx, d, t, k)
}

// Who waits for a submission from before its archives are asked gets what they
// said then, his private metadata opened; who comes later, wants another view or
// is another has them asked again. Nothing is kept behind.
func TestWaitersShareOneQuestionToTheArchives(t *testing.T) {
	const waiters = 3
	gatherer := &counting{}
	w := newWorld(t, 2, func(c *Config) { gatherer.Gatherer, c.Gatherer = c.Gatherer, gatherer })
	hold := make(chan struct{})
	w.engine.step = func(name string) error {
		if name == "settle.registered" {
			<-hold
		}
		return nil
	}
	a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), `"privateMetadata":{"secret":1}`, attached))
	if err != nil {
		t.Fatal(err)
	}
	ends, group := make([]Ended, waiters), sync.WaitGroup{}
	for i := range waiters {
		group.Go(func() {
			var err error
			if ends[i], err = w.engine.Wait(t.Context(), alice, a.SubmissionID); err != nil {
				t.Error(err)
			}
		})
	}
	for len(w.engine.hub.present(ref{alice, a.SubmissionID})) < waiters {
		if t.Context().Err() != nil {
			t.Fatal("the waiters never came")
		}
	}
	close(hold)
	group.Wait()
	want := gatherer.asked.Load()
	if want != 1 {
		t.Fatalf("the archives were asked %d times before anybody wanted the job", want)
	}
	bodies := make([]string, waiters)
	for i := range waiters {
		group.Go(func() {
			job, err := w.engine.Job(t.Context(), alice, a.JobID, View{SubmissionID: a.SubmissionID, Ended: ends[i]})
			if err != nil {
				t.Error(err)
			}
			bodies[i] = string(encode(t, job))
		})
	}
	group.Wait()
	if n := gatherer.asked.Load(); n != want {
		t.Errorf("the waiters' jobs asked the archives %d times more", n-want)
	}
	for _, body := range bodies {
		if body != bodies[0] || !strings.Contains(body, `"privateMetadata":{"secret":1}`) {
			t.Errorf("a waiter's job is %s", body)
		}
	}
	other, _ := w.must(bob, hashBody(digestOf("document"), attached))
	for name, tc := range map[string]struct {
		tenant wire.TenantID
		job    wire.Accepted
		view   View
		asks   int64
	}{
		"later":        {alice, a, View{SubmissionID: a.SubmissionID}, 1},
		"flag off":     {alice, a, View{SubmissionID: a.SubmissionID, IncludeAttached: new(false), Ended: ends[0]}, 0},
		"other tenant": {bob, other, View{SubmissionID: other.SubmissionID, Ended: ends[0]}, 1},
	} {
		before := gatherer.asked.Load()
		job, err := w.engine.Job(t.Context(), tc.tenant, tc.job.JobID, tc.view)
		if err != nil || job.SubmissionID != tc.job.SubmissionID {
			t.Errorf("%s: %s, %v", name, encode(t, job), err)
		}
		if n := gatherer.asked.Load() - before; n != tc.asks {
			t.Errorf("%s: the archives were asked %d times, want %d", name, n, tc.asks)
		}
		if tc.tenant == bob && strings.Contains(string(encode(t, job)), "secret") {
			t.Errorf("%s sees another's: %s", name, encode(t, job))
		}
	}
	if late, err := w.engine.Wait(t.Context(), alice, a.SubmissionID); err != nil || late.found != nil || len(w.engine.hub.waiters) != 0 {
		t.Errorf("something is kept: %+v, %d waiters, %v", late, len(w.engine.hub.waiters), err)
	}
}
