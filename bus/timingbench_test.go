package bus

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// A foreignClass is a class of digests under which a caller may see nothing.
type foreignClass struct {
	name    string
	digests []wire.Digest
	took    []time.Duration
}

// foreignClasses are digests of which nobody has anything, those under which two
// archives have records of another tenant, and those with such that are shared with
// a third one.
func foreignClasses(b *testing.B, w *watcher) []*foreignClass {
	b.Helper()
	const each = 500
	classes := []*foreignClass{{name: "absent"}, {name: "private"}, {name: "shared"}}
	for i := range each {
		for _, c := range classes {
			subject := fmt.Sprint(c.name, " ", i)
			c.digests = append(c.digests, digestOf(subject))
			put := note(subject, "a body of a usual size, about as long as some metadata would be {}")
			put.Record.TenantID = tenantB
			switch c.name {
			case "absent":
				continue
			case "shared":
				put.Record.ShareWith = []wire.Share{{TenantID: "tenant-c", Mode: wire.ModeFiles}}
			}
			for _, id := range []wire.ArchiveID{"archive-a", "archive-b"} {
				if _, err := w.archives.Put(b.Context(), id, put); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	return classes
}

// BenchmarkLaw5InTime gathers, for one who may see none of it, what nobody has, what
// is another's and what is shared with a third one, in random order, at three real
// archives. The medians of the classes are to lie within 2 % of each other. Run it
// with -benchtime 20000x; "all wait" takes 3 ms a round.
func BenchmarkLaw5InTime(b *testing.B) {
	_, w := mirroredFleet(b, time.Minute, "archive-a", "archive-b", "archive-c")
	for _, id := range w.roster.Enrolled() {
		w.trusts(b, id)
	}
	classes := foreignClasses(b, w)
	for _, mode := range []struct {
		name string
		g    *receipts.Gatherer
	}{
		{"mirrors", &receipts.Gatherer{Mirrors: w.mirrors, Wait: time.Minute}},
		{"all named", &receipts.Gatherer{Wait: time.Minute}},
		{"all wait", &receipts.Gatherer{Wait: 3 * time.Millisecond, Unlisted: func() bool { return true }}},
	} {
		b.Run(mode.name, func(b *testing.B) {
			g := mode.g
			g.Asker, g.Roster = w.archives, w.roster
			gather := func(d wire.Digest) time.Duration {
				start := time.Now()
				found, err := g.Gather(b.Context(), d, tenantA, nil)
				took := time.Since(start)
				if err != nil || len(found.Records) != 0 || found.Complete != (g.Unlisted == nil) || len(found.Expected) != 3 {
					b.Fatalf("%+v, %v", found, err)
				}
				return took
			}
			for _, c := range classes {
				c.took = c.took[:0]
				for _, d := range c.digests[:min(len(c.digests), b.N)] {
					gather(d)
				}
			}
			random := rand.New(rand.NewPCG(5, 0))
			b.ResetTimer()
			for range b.N {
				c := classes[random.IntN(len(classes))]
				c.took = append(c.took, gather(c.digests[random.IntN(len(c.digests))]))
			}
			b.StopTimer()
			reportClasses(b, classes)
		})
	}
}

func reportClasses(b *testing.B, classes []*foreignClass) {
	if len(classes[0].took) == 0 {
		return
	}
	absent := p50(classes[0].took)
	for _, c := range classes {
		if len(c.took) == 0 {
			continue
		}
		b.ReportMetric(p50(c.took), "ns-p50-"+c.name)
		b.ReportMetric(p99(c.took), "ns-p99-"+c.name)
		b.ReportMetric(p50(c.took)/absent, "x-absent-"+c.name)
	}
}

// What archives answer about what is another's differs in nothing from what they
// answer about what is not there, but for the digest.
func TestLaw5AnswersAboutForeignRecordsAreAlike(t *testing.T) {
	_, w := mirroredFleet(t, testLease, "archive-a")
	put := note("private", "body")
	put.Record.TenantID = tenantB
	shared := note("shared", "body")
	shared.Record.TenantID, shared.Record.ShareWith = tenantB, []wire.Share{{TenantID: "tenant-c", Mode: wire.ModeFiles}}
	for _, p := range []wire.Put{put, shared} {
		if _, err := w.archives.Put(t.Context(), "archive-a", p); err != nil {
			t.Fatal(err)
		}
	}
	raw := func(subject string) []byte {
		t.Helper()
		q := query(subject)
		q.CorrelationID = wire.NewCorrelationID()
		sub, err := w.conn.ctl.SubscribeSync(wire.SubjectReplyPrefix + string(q.CorrelationID))
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Unsubscribe()
		next, stop, err := w.archives.Ask(t.Context(), q, []wire.ArchiveID{"archive-a"}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		await(t, next)
		msg, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		digest := digestOf(subject)
		return bytes.ReplaceAll(msg.Data, []byte(digest.String()), nil)
	}
	absent := raw("absent")
	for _, subject := range []string{"private", "shared"} {
		if other := raw(subject); !bytes.Equal(absent, other) {
			t.Errorf("%s:\n%s\nabsent:\n%s", subject, other, absent)
		}
	}
}
