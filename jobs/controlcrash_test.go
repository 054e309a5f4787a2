package jobs

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// controlGaps are the places between the steps of Steer.
var controlGaps = []string{"control.read", "control.stored", "quiet.put", "quiet.ended", "control.answer"}

// steered are requests to steer that follow one another, and how the document
// stands after each.
var steered = []struct {
	q     Steering
	until wire.Time
	holds int
}{
	{about(wire.KindRetain, wire.Control{RetainUntil: in(2)}), in(2), 0},
	{about(wire.KindHold, wire.Control{Name: "case"}), in(2), 1},
	{about(wire.KindRelease, wire.Control{Name: "case"}), in(2), 0},
}

// After a crash in any gap and the client's retry the decision stands, once, on
// every archive; one that was durable stands without a retry.
func TestCrashInAnyGapOfSteering(t *testing.T) {
	for _, gap := range controlGaps {
		for n := range steered {
			for _, keep := range unsynced() {
				t.Run(fmt.Sprintf("%s/%s/%d", gap, steered[n].q.Kind, keep), func(t *testing.T) { crashSteering(t, gap, n, keep) })
			}
		}
	}
}

func crashSteering(t *testing.T, gap string, n, keep int) {
	w := newWorld(t, 3, nil)
	w.must(alice, hashBody(digestOf("document"), metadata("1")))
	for _, before := range steered[:n] {
		w.steer(before.q)
	}
	w.settled()
	c := &crasher{gap: gap, world: w, keep: keep, happy: make(chan struct{})}
	w.engine.step = c.step
	answered := make(chan error, 1)
	go func() {
		_, err := w.engine.Steer(t.Context(), steered[n].q)
		answered <- err
	}()
	w.lose(c)
	acknowledged := <-answered == nil
	durable := gap != "control.read"
	if acknowledged {
		t.Error("a crash was acknowledged")
	}
	if durable { // before anybody retries
		w.stands(n)
	}
	_, err := w.engine.Steer(t.Context(), steered[n].q)
	if err != nil && !(steered[n].q.Kind == wire.KindRelease && durable && fault.CodeOf(err) == codeNoHold) {
		t.Fatalf("the retry: %v", err)
	}
	w.stands(n)
	w.settled()
	w.everywhere(n + 1)
}

// stands fails unless the document stands as after the request n.
func (w *world) stands(n int) {
	w.t.Helper()
	if got := w.state(); got.RetainUntil != steered[n].until || len(got.Holds) != steered[n].holds {
		w.t.Errorf("after %s it is %+v", steered[n].q.Kind, got)
	}
}

// Every write of the job store fails once, without and with being persisted. The
// retry finds the decision, or makes it, and it stands once.
func TestStoreWriteFailsWhileSteering(t *testing.T) {
	boom := errors.New("injected")
	for n := range 4 {
		for _, persisted := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d persisted %v", n, persisted), func(t *testing.T) {
				w := newWorld(t, 2, func(c *Config) { c.PutWait = time.Second })
				w.must(alice, hashBody(digestOf("document"), metadata("1")))
				w.settled()
				w.restart(nil) // so that the writes to come are those of the steering
				w.failOnce(n, persisted, boom)
				for i := range steered {
					_, err := w.engine.Steer(t.Context(), steered[i].q)
					for tries := 0; err != nil && fault.CodeOf(err) != codeNoHold; tries++ {
						if tries == 3 {
							t.Fatalf("the retry is refused: %v", err)
						}
						_, err = w.engine.Steer(t.Context(), steered[i].q)
					}
					w.stands(i)
				}
				w.settled()
				w.everywhere(len(steered))
			})
		}
	}
}

// failOnce makes the n-th commit from now on fail, with or without being done.
func (w *world) failOnce(n int, persisted bool, failure error) {
	count := 0
	w.failing(persisted, failure, func() bool { count++; return count-1 == n })
}

// failing makes commits fail, with or without being done, of which fails says so.
func (w *world) failing(persisted bool, failure error, fails func() bool) {
	commit := w.engine.store.commit
	instead := func(items []*update) {
		if !fails() {
			commit(items)
			return
		}
		if persisted {
			done := make([]*update, len(items))
			for i, u := range items {
				done[i] = &update{fn: u.fn, done: make(chan struct{})}
			}
			commit(done)
		}
		for _, u := range items {
			u.err = failure
			close(u.done)
		}
	}
	w.engine.store.instead.Store(&instead)
}
