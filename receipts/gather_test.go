package receipts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// statement is what a gathering says of itself.
type statement struct {
	Missing  []wire.ArchiveID
	Replied  int
	Complete bool
	Reason   string
	Took     time.Duration
}

func stated(g receipts.Gathered, took time.Duration) statement {
	return statement{g.Missing, g.Replied, g.Complete, g.Reason, took}
}

var none = []wire.ArchiveID{}

// TestWaitIsAbsolute is law 6: when a gathering ends, and what it may say then.
func TestWaitIsAbsolute(t *testing.T) {
	m := record(wire.KindMetadata, `{"a":1}`)
	n := record("note", "hello")
	ms := time.Millisecond
	for _, c := range []struct {
		name   string
		asker  *asker
		roster roster
		want   statement
		held   int
	}{
		{"all answer", &asker{script: []says{{10 * ms, reply("archive-c")}, {20 * ms, reply("archive-a", m)}, {30 * ms, reply("archive-b", m)}}},
			three, statement{none, 2, true, "all", 30 * ms}, 1},
		{"all have nothing", &asker{script: []says{{1 * ms, reply("archive-a")}, {2 * ms, reply("archive-b")}, {3 * ms, reply("archive-c")}}},
			three, statement{none, 0, true, "all", 3 * ms}, 0},
		{"one is silent", &asker{script: []says{{10 * ms, reply("archive-a", m)}, {20 * ms, reply("archive-c", n)}}},
			three, statement{roster{"archive-b"}, 2, false, "deadline", wait}, 2},
		{"all are silent", &asker{}, three, statement{three, 0, false, "deadline", wait}, 0},
		{"one answers too late", &asker{script: []says{{1 * ms, reply("archive-a")}, {2 * ms, reply("archive-b")}, {wait + 1, reply("archive-c", m)}}},
			three, statement{roster{"archive-c"}, 0, false, "deadline", wait}, 0},
		{"one answers in the last moment", &asker{script: []says{{1 * ms, reply("archive-a")}, {2 * ms, reply("archive-b")}, {wait - 1, reply("archive-c", m)}}},
			three, statement{none, 1, true, "all", wait - 1}, 1},
		{"pages in any order", &asker{script: []says{{1 * ms, page(3, 3, reply("archive-a", m))}, {2 * ms, page(1, 3, reply("archive-a"))}, {9 * ms, page(2, 3, reply("archive-a", n))}}},
			roster{"archive-a"}, statement{none, 1, true, "all", 9 * ms}, 2},
		{"last page too late", &asker{script: []says{{1 * ms, page(1, 2, reply("archive-a", m))}, {wait + 1, page(2, 2, reply("archive-a", n))}}},
			roster{"archive-a"}, statement{roster{"archive-a"}, 1, false, "deadline", wait}, 1},
		{"a peer without pages", &asker{script: []says{{1 * ms, page(0, 0, reply("archive-a", m))}}},
			roster{"archive-a"}, statement{none, 1, true, "all", 1 * ms}, 1},
		{"nobody listens", &asker{hangUp: 1 * ms}, three, statement{three, 0, false, "no-archives", 1 * ms}, 0},
		{"cut off after the first", &asker{script: []says{{1 * ms, reply("archive-a", m)}}, hangUp: 4 * ms},
			three, statement{roster{"archive-b", "archive-c"}, 1, false, "deadline", 5 * ms}, 1},
		{"asking takes the whole wait", &asker{slow: 2 * wait}, three, statement{three, 0, false, "deadline", wait}, 0},
		{"asking takes part of the wait", &asker{slow: wait / 2, script: []says{{1, reply("archive-a")}, {2, reply("archive-b")}, {wait/2 + 1, reply("archive-c")}}},
			three, statement{roster{"archive-c"}, 0, false, "deadline", wait}, 0},
		{"nobody is enrolled", &asker{}, nil, statement{none, 0, false, "no-archives", 0}, 0},
		{"roster out of order and twice", &asker{script: []says{{1 * ms, reply("archive-b")}, {2 * ms, reply("archive-a")}}},
			roster{"archive-b", "archive-a", "archive-b"}, statement{none, 0, true, "all", 2 * ms}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, took := gather(t, c.asker, c.roster)
				if diff := cmp.Diff(c.want, stated(got, took), cmp.Transformer("ids", func(r roster) []wire.ArchiveID { return r })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(got.Records) != c.held || got.Records == nil || got.Expected == nil || got.Missing == nil {
					t.Errorf("%d records, want %d; no list may be nil: %+v", len(got.Records), c.held, got)
				}
				if c.roster == nil && len(c.asker.asked) > 0 {
					t.Error("nobody is enrolled, but somebody was asked")
				}
			})
		})
	}
}

// A reply that lies in the channel when the wait has passed came in time. With
// so many of them, chance alone would not take all.
func TestRepliesThatCameInTimeCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := wire.ArchiveID("archive-z")
		all := roster{silent}
		var replies queued
		for i := range 40 {
			id := wire.ArchiveID(fmt.Sprintf("archive-%02d", i))
			all, replies = append(all, id), append(replies, reply(id))
		}
		g := &receipts.Gatherer{Asker: replies, Roster: all, Wait: wait}
		got, err := g.Gather(t.Context(), subject, acme, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]wire.ArchiveID{silent}, got.Missing); diff != "" || got.Reason != wire.ReasonDeadline {
			t.Errorf("reason %s, missing (-want +got):\n%s", got.Reason, diff)
		}
	})
}

// queued is an asker whose replies are there when the wait is over.
type queued []wire.Reply

func (q queued) Ask(ctx context.Context, _ wire.Query, _ []wire.ArchiveID, _ bool) (func(context.Context) (wire.Reply, wire.ArchiveID, bool), func(), error) {
	<-ctx.Done()
	out := make(chan wire.Reply, len(q))
	for _, r := range q {
		out <- r
	}
	return hearing(ctx, out, nil), func() {}, nil
}

// However much lies there when the wait has passed, only a little of it is taken.
func TestAFloodDoesNotLengthenTheWait(t *testing.T) {
	for reading, most := range map[time.Duration]int{0: receipts.MaxOverdue, time.Millisecond: 2} {
		synctest.Test(t, func(t *testing.T) {
			words := 0
			g := &receipts.Gatherer{Asker: flood{&words, reading}, Roster: roster{"archive-a", "archive-b"}, Wait: wait}
			start := time.Now()
			got, err := g.Gather(t.Context(), subject, acme, nil)
			if took := time.Since(start) - wait; err != nil || got.Reason != wire.ReasonDeadline || words != most || took > time.Duration(most)*reading+time.Millisecond { // one may be under way
				t.Errorf("%+v, %v; %d words for %v after the wait", got, err, words, took)
			}
		})
	}
}

// flood is an asker that is never without a word, and counts those after the wait, of
// which each takes a while to read.
type flood struct {
	overdue *int
	reading time.Duration
}

func (f flood) Ask(context.Context, wire.Query, []wire.ArchiveID, bool) (func(context.Context) (wire.Reply, wire.ArchiveID, bool), func(), error) {
	return func(ctx context.Context) (wire.Reply, wire.ArchiveID, bool) {
		if ctx.Err() != nil {
			*f.overdue++
			time.Sleep(f.reading)
			return reply("archive-a"), "", true
		}
		time.Sleep(time.Millisecond)
		return reply("archive-a"), "", true
	}, func() {}, nil
}

// TestCallerWhoLeavesGetsHisOwnError: the passed wait is a normal end, the
// caller's leaving is not.
func TestCallerWhoLeavesGetsHisOwnError(t *testing.T) {
	leave := errors.New("client hung up")
	for _, c := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		slow time.Duration
		want error
		took time.Duration
	}{
		{"cancelled while listening", cancelAfter(5*time.Millisecond, leave), 0, context.Canceled, 5 * time.Millisecond},
		{"cancelled while asking", cancelAfter(5*time.Millisecond, leave), time.Second, context.Canceled, 5 * time.Millisecond},
		{"cancelled before", cancelAfter(0, leave), time.Second, context.Canceled, 0},
		{"deadline of the caller", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 9*time.Millisecond)
		}, 0, context.DeadlineExceeded, 9 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := c.ctx(t.Context())
				defer cancel()
				a := &asker{t: t, slow: c.slow, script: []says{{time.Millisecond, reply("archive-a")}}}
				g := &receipts.Gatherer{Asker: a, Roster: three, Wait: wait}
				start := time.Now()
				got, err := g.Gather(ctx, subject, acme, nil)
				if err != c.want || time.Since(start) != c.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(start), c.want, c.took)
				}
				if diff := cmp.Diff(receipts.Gathered{}, got); diff != "" {
					t.Errorf("a result beside the error:\n%s", diff)
				}
				if c.slow == 0 && a.stops != 1 {
					t.Errorf("stopped %d times", a.stops)
				}
			})
		})
	}
}

func cancelAfter(d time.Duration, cause error) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		if d == 0 {
			cancel(cause)
		} else {
			time.AfterFunc(d, func() { cancel(cause) })
		}
		return ctx, func() { cancel(nil) }
	}
}

func TestErrorsOfTheAskerAreReturned(t *testing.T) {
	a := &asker{t: t, err: fault.New(fault.Transient, "BUS_DISCONNECTED", "no connection")}
	g := &receipts.Gatherer{Asker: a, Roster: three, Wait: wait}
	_, err := g.Gather(t.Context(), subject, acme, nil)
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "BUS_DISCONNECTED" {
		t.Errorf("Gather = %v", err)
	}
	g = &receipts.Gatherer{Asker: a, Roster: three}
	if _, err := g.Gather(t.Context(), subject, acme, nil); err == nil || fault.KindOf(err) != fault.Internal {
		t.Errorf("without a wait: %v, want Internal", err)
	}
}

func TestEveryQueryHasItsOwnCorrelationID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, hangUp: 1}
		g := &receipts.Gatherer{Asker: a, Roster: three, Wait: wait}
		kinds := []wire.Kind{"note", wire.KindFile}
		for range 2 {
			if _, err := g.Gather(t.Context(), subject, globex, kinds); err != nil {
				t.Fatal(err)
			}
		}
		p, q := a.asked[0], a.asked[1]
		if p.CorrelationID == q.CorrelationID {
			t.Error("two queries have one correlation id")
		}
		q.CorrelationID = ""
		if diff := cmp.Diff(wire.Query{SHA256: subject, TenantID: globex, Kinds: kinds}, q); diff != "" {
			t.Errorf("query (-want +got):\n%s", diff)
		}
	})
}

// TestLaw6PagesOfTwoAnswersAreNotMixed: an archive that is asked twice answers twice,
// and what it stored in between may move its records from one page to another. Only
// the pages of one answer are all that it has.
func TestLaw6PagesOfTwoAnswersAreNotMixed(t *testing.T) {
	const ms = time.Millisecond
	of := func(answer string, r wire.Reply) wire.Reply { r.Answer = answer; return r }
	one, two, three := record("note", "1"), record("note", "2"), record("note", "3")
	first := []wire.Reply{of("first", page(1, 2, reply("archive-a", one, two))), of("first", page(2, 2, reply("archive-a", three)))}
	second := []wire.Reply{of("second", page(1, 2, reply("archive-a", one))), of("second", page(2, 2, reply("archive-a", two, three)))}
	for _, c := range []struct {
		name string
		come []wire.Reply
		want statement
		held int
	}{
		{"one after the other", []wire.Reply{first[0], first[1], second[0], second[1]}, statement{none, 1, true, "all", 2 * ms}, 3},
		{"side by side", []wire.Reply{second[0], first[0], first[1], second[1]}, statement{none, 1, true, "all", 4 * ms}, 3},
		{"the last page first", []wire.Reply{first[1], second[0], second[1], first[0]}, statement{none, 1, true, "all", 4 * ms}, 3},
		{"half of each", []wire.Reply{second[0], first[1]}, statement{roster{"archive-a"}, 1, false, "deadline", wait}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t}
				for n, r := range c.come {
					a.script = append(a.script, says{time.Duration(n+1) * ms, r})
				}
				got, took := gatherBy(t, &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait}, a)
				if diff := cmp.Diff(c.want, stated(got, took)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(got.Records) != c.held {
					t.Errorf("%d records", len(got.Records))
				}
			})
		})
	}
}
