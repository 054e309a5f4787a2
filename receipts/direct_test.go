package receipts_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// TestDirectQuestionsGoToTheNamedAlone: from as many archives on as was set, or where
// that takes no more messages, and only while no stranger could miss the question.
func TestDirectQuestionsGoToTheNamedAlone(t *testing.T) {
	for _, c := range []struct {
		direct   int
		named    roster
		stranger bool
		alone    bool
	}{
		{0, three[:1], false, false}, {0, three, false, false}, {1, three[:1], true, false}, {9, three[:1], true, false},
		{1, three, false, true}, {3, three, false, true}, {4, three, false, false}, {4, three[:2], false, true}, {4, three[:1], false, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := quiet(t)
				for _, m := range f.members[:len(c.named)] {
					m.mirrored = false
				}
				g := f.gatherer()
				g.Direct, g.Unlisted = c.direct, census(c.stranger)
				got, err := g.Gather(t.Context(), subject, acme, nil)
				if err != nil || got.Complete == c.stranger {
					t.Errorf("%+v, %v", got, err)
				}
				if diff := cmp.Diff([]asking{{c.named, c.alone}}, f.asks); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestNobodyWaitsForWhomTheQuestionDidNotReach: such an archive is missing, at once
// and in every mode, and whoever did get the question is still waited for.
func TestNobodyWaitsForWhomTheQuestionDidNotReach(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		set      func(*fleet)
		stranger bool
		want     statement
	}{
		{"one is gone, early", func(f *fleet) { f.members[0].dead = true }, false, statement{roster{"archive-a"}, 0, false, "deadline", 3 * ms}},
		{"one is gone, late", func(f *fleet) { f.members[2].dead = true }, false, statement{roster{"archive-c"}, 0, false, "deadline", 3 * ms}},
		{"all are gone", func(f *fleet) {
			for _, m := range f.members {
				m.dead = true
			}
		}, false, statement{three, 0, false, "no-archives", 3 * ms}},
		{"those are gone that have no mirror", func(f *fleet) {
			f.members[0].dead, f.members[1].mirrored, f.members[2].mirrored = true, true, true
		}, false, statement{roster{"archive-a"}, 0, false, "deadline", 1 * ms}},
		{"one is gone and a stranger may listen", func(f *fleet) { f.members[0].dead = true }, true, statement{roster{"archive-a"}, 0, false, "deadline", wait}},
	} {
		for _, direct := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, direct %d", c.name, direct), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := quiet(t)
					f.gone = true
					for _, m := range f.members {
						m.mirrored = false
					}
					c.set(f)
					g := f.gatherer()
					g.Direct, g.Unlisted = direct, census(c.stranger)
					start := time.Now()
					got, late, err := g.GatherLate(t.Context(), subject, acme, nil, extra)
					if err != nil || (late != nil) != c.stranger {
						t.Fatalf("%v; more to come: %v", err, late != nil)
					}
					if diff := cmp.Diff(c.want, stated(got, time.Since(start)), cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					if late != nil {
						late(t.Context())
					}
				})
			})
		}
	}
}

// The word that an archive is not there may come after the deadline as well, and
// means nothing of one that nobody knows, or twice.
func TestWhomTheQuestionDidNotReachLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan wire.ArchiveID)
		g := &receipts.Gatherer{Asker: &asker{t: t, longest: wait + extra, gone: gone}, Roster: roster{"archive-a", "archive-b"}, Wait: wait}
		start := time.Now()
		first, late, err := g.GatherLate(t.Context(), subject, acme, nil, extra)
		if err != nil || late == nil || len(first.Missing) != 2 {
			t.Fatalf("%+v, %v", first, err)
		}
		go func() {
			for _, id := range (roster{"archive-z", "archive-a", "archive-a", "archive-b"}) {
				gone <- id
			}
		}()
		then, more := late(t.Context())
		if more || len(then.Missing) != 2 || time.Since(start) != wait {
			t.Errorf("%+v after %v", then, time.Since(start))
		}
	})
}
