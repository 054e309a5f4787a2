package receipts_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// extra is LATE_MS in these tests.
const extra = 10 * time.Second

// TestLateReplies: the deadline is kept, and what comes until extra beyond it is
// told once, as soon as nobody can have more.
func TestLateReplies(t *testing.T) {
	const ms = time.Millisecond
	one, two := record("note", "one"), record("note", "two")
	first := says{1 * ms, reply("archive-a", one)}
	for _, c := range []struct {
		name     string
		unlisted bool
		script   []says
		hangUp   time.Duration
		roster   roster
		took     time.Duration // of the answer at the deadline
		late     bool          // there is more to wait for
		more     bool          // there came more
		records  int           // in the end
		reason   string        // in the end
		until    time.Duration // when it was told
	}{
		{"all in time", false, []says{first}, 0, roster{"archive-a"}, 1 * ms, false, false, 0, "", 0},
		{"one is late", false, []says{first, {wait + 5*ms, reply("archive-b", two)}}, 0, roster{"archive-a", "archive-b"}, wait, true, true, 2, "all", wait + 5*ms},
		{"one is late, with nothing", false, []says{first, {wait + 5*ms, reply("archive-b")}}, 0, roster{"archive-a", "archive-b"}, wait, true, false, 1, "all", wait + 5*ms},
		{"one is late, with the same", false, []says{first, {wait + 5*ms, reply("archive-b", one)}}, 0, roster{"archive-a", "archive-b"}, wait, true, false, 1, "all", wait + 5*ms},
		{"one never comes", false, []says{first}, 0, roster{"archive-a", "archive-b"}, wait, true, false, 1, "deadline", wait + extra},
		{"one comes, another does not", false, []says{first, {wait + 5*ms, reply("archive-b", two)}}, 0, three, wait, true, true, 2, "deadline", wait + extra},
		{"one comes too late", false, []says{first, {wait + extra + 1, reply("archive-b", two)}}, 0, roster{"archive-a", "archive-b"}, wait, true, false, 1, "deadline", wait + extra},
		{"an unlisted one is late", true, []says{first, {wait + 5*ms, seedOnly("seed-archive", minimal("x"))}}, 0, roster{"archive-a"}, wait, true, true, 2, "deadline", wait + extra},
		{"an unlisted one is silent", true, []says{first}, 0, roster{"archive-a"}, wait, true, false, 1, "deadline", wait + extra},
		{"cut off after the deadline", false, []says{first, {wait + 1, reply("archive-b", two)}}, 5 * ms, three, wait, true, true, 2, "deadline", wait + 1 + 5*ms},
		{"nobody listens", false, nil, 1 * ms, roster{"archive-a"}, 1 * ms, false, false, 0, "", 0},
		{"nobody is enrolled", false, nil, 0, nil, 0, false, false, 0, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t, script: c.script, hangUp: c.hangUp, longest: wait + extra}
				g := &receipts.Gatherer{Asker: a, Roster: c.roster, Wait: wait, Unlisted: census(c.unlisted)}
				start := time.Now()
				found, late, err := g.GatherLate(t.Context(), subject, acme, nil, extra)
				if took := time.Since(start); err != nil || took != c.took || (late != nil) != c.late {
					t.Fatalf("%+v, %v after %v, more to come: %v", found, err, took, late != nil)
				}
				if late == nil {
					if a.stops != a.opens {
						t.Error("it was not stopped")
					}
					return
				}
				then, more := late(t.Context())
				if took := time.Since(start); more != c.more || len(then.Records) != c.records || then.Reason != c.reason || took != c.until {
					t.Errorf("%d records, more: %v, %s after %v", len(then.Records), more, then.Reason, took)
				}
				if len(found.Records) > 1 || a.stops != 1 {
					t.Errorf("the first answer changed to %+v, or %d stops", found, a.stops)
				}
			})
		})
	}
}

// Who leaves, or closes, ends the waiting at once; and only so many wait.
func TestLateWaitingEndsAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, longest: wait + extra}
		g := &receipts.Gatherer{Asker: a, Roster: three, Wait: wait}
		ask := func(ctx context.Context) receipts.Late {
			_, late, err := g.GatherLate(ctx, subject, acme, nil, extra)
			if err != nil {
				t.Fatal(err)
			}
			return late
		}
		ctx, cancel := context.WithCancel(t.Context())
		late := ask(ctx)
		cancel() // the one that asked need not stay
		done, leave := context.WithCancel(t.Context())
		leave()
		start := time.Now()
		if _, more := late(done); more || time.Since(start) != 0 {
			t.Errorf("it went on for %v", time.Since(start))
		}
		var all []receipts.Late
		for range receipts.MaxLate {
			all = append(all, ask(t.Context()))
		}
		if slices.ContainsFunc(all, func(l receipts.Late) bool { return l == nil }) || ask(t.Context()) != nil {
			t.Errorf("%d may not be waited for, or one more may", receipts.MaxLate)
		}
		for _, l := range all {
			l(done)
		}
		if late = ask(t.Context()); late == nil {
			t.Error("room was not given back")
		}
		late(done)
		if _, late, err := g.GatherLate(t.Context(), subject, acme, nil, 0); late != nil || err != nil {
			t.Errorf("nothing beyond the deadline was wanted: %v", err)
		}
		if a.opens != a.stops {
			t.Errorf("%d asked, %d stopped", a.opens, a.stops)
		}
	})
}

// An asker that takes the whole wait does not take more of it because somebody
// would listen longer; and an error leaves nothing behind.
func TestLateKeepsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, slow: 3 * wait, longest: wait + extra}
		g := &receipts.Gatherer{Asker: a, Roster: three, Wait: wait}
		start := time.Now()
		found, late, err := g.GatherLate(t.Context(), subject, acme, nil, extra)
		if took := time.Since(start); err != nil || late != nil || took != wait || found.Reason != wire.ReasonDeadline {
			t.Errorf("%+v, %v after %v", found, err, took)
		}
		a.slow, a.err = 0, fmt.Errorf("broken")
		for range 2 * receipts.MaxLate {
			if _, _, err := g.GatherLate(t.Context(), subject, acme, nil, extra); err == nil {
				t.Fatal("no error")
			}
		}
		a.err = nil
		if _, late, err = g.GatherLate(t.Context(), subject, acme, nil, extra); late == nil || err != nil {
			t.Fatalf("room was lost: %v", err)
		}
		late(t.Context())
	})
}
