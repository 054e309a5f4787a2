package receipts_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// state is one of the things that an archive can be to an aggregator.
type state struct {
	name  string
	set   func(*member)
	named bool // a word of it is expected
	shows bool // it has a record for the caller
	lost  bool // it is missing although it answers
	dead  bool // it does not answer
}

func mirrored(m *member) { m.mirrored, m.upto = true, 9 }
func holding(m *member)  { m.records = []wire.Record{numbered(7, record("note", "held"))} }
func both(set ...func(*member)) func(*member) {
	return func(m *member) {
		for _, s := range set {
			s(m)
		}
	}
}

var states = []state{
	{name: "trusted, nothing", set: mirrored},
	{name: "trusted, something", set: both(mirrored, holding), named: true, shows: true},
	{name: "untrusted, nothing", set: both(), named: true},
	{name: "untrusted, something", set: holding, named: true, shows: true},
	{name: "doubted, nothing", set: both(mirrored, func(m *member) { m.doubted = true }), named: true, lost: true},
	{name: "doubted, something", set: both(mirrored, holding, func(m *member) { m.doubted = true }), named: true, lost: true, shows: true},
	{name: "another process is mirrored", set: both(mirrored, func(m *member) { m.process = "of-before" }), named: true},
	{name: "dead", set: func(m *member) { m.dead = true }, named: true, dead: true},
	{name: "dead under its lease", set: both(mirrored, func(m *member) { m.dead = true })},
}

// TestLaw6MirrorsSpareTheWait: of every three archives, whatever each of them is,
// those are named that may have something or whose mirror means nothing; the
// gathering ends with the last of them, at once where there is none, and it is
// complete when none is missing. A stranger takes the whole wait.
func TestLaw6MirrorsSpareTheWait(t *testing.T) {
	const ms = time.Millisecond
	type outcome struct {
		Said     statement
		Asked    []asking
		Expected []wire.ArchiveID
		Records  int
	}
	synctest.Test(t, func(t *testing.T) {
		for i := range len(states) * len(states) * len(states) * 2 {
			combination := []state{states[i%len(states)], states[i/len(states)%len(states)], states[i/len(states)/len(states)%len(states)]}
			stranger := i >= len(states)*len(states)*len(states)
			f := &fleet{t: t}
			want := outcome{Said: statement{Missing: none, Reason: "all", Complete: true}, Expected: three}
			said := &want.Said
			named := none
			for n, s := range combination {
				m := &member{id: three[n], boot: "boot", after: time.Duration(n+1) * ms}
				s.set(m)
				f.members = append(f.members, m)
				if s.named {
					named, said.Took = append(named, m.id), max(said.Took, m.after)
				}
				if s.lost || s.named && s.dead {
					said.Missing, said.Complete = append(slices.Clone(said.Missing), m.id), false
				}
				if s.lost && said.Reason == "all" {
					said.Reason = "lost-records"
				}
				if s.named && s.dead {
					said.Reason, said.Took = "deadline", wait
				}
				if s.shows {
					want.Records, said.Replied = 1, said.Replied+1
				}
			}
			if len(named) > 0 || stranger {
				want.Asked = []asking{{named, false}}
			}
			if stranger {
				said.Reason, said.Complete, said.Took = "deadline", false, wait
			}
			g, start := f.gatherer(), time.Now()
			g.Unlisted = census(stranger)
			got, err := g.Gather(t.Context(), subject, acme, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen := outcome{stated(got, time.Since(start)), f.asks, got.Expected, len(got.Records)}
			if diff := cmp.Diff(want, seen, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s, %s; stranger: %v (-want +got):\n%s", combination[0].name, combination[1].name, combination[2].name, stranger, diff)
			}
		}
	})
}

// quiet is three archives of which the mirrors say that they have nothing.
func quiet(t *testing.T) *fleet {
	f := &fleet{t: t}
	for n, id := range three {
		f.members = append(f.members, &member{id: id, boot: "boot", after: time.Duration(n+1) * time.Millisecond, mirrored: true, upto: 9})
	}
	return f
}

// TestMirrorsAndWhatComesMeanwhile: a silent archive may answer with what came
// after the question, a contradiction ends all trust in this gathering, and who is
// enrolled or doubted while it runs is so for it too.
func TestMirrorsAndWhatComesMeanwhile(t *testing.T) {
	const ms = time.Millisecond
	held := func(seq uint64) []wire.Record { return []wire.Record{numbered(seq, record("note", "held"))} }
	for _, c := range []struct {
		name  string
		set   func(*fleet, *receipts.Gatherer)
		want  statement
		held  int
		alarm int
	}{
		{"one is named, a silent one has something newer", func(f *fleet, _ *receipts.Gatherer) {
			f.members[0].records, f.members[2].mirrored = held(10), false
		}, statement{none, 1, true, "all", 3 * ms}, 1, 0},
		{"something older, told before the last word", func(f *fleet, _ *receipts.Gatherer) {
			f.members[0].records, f.members[0].lies, f.members[2].mirrored = held(9), true, false
		}, statement{roster{"archive-b"}, 1, false, "deadline", wait}, 1, 1},
		{"something older, told after the last word", func(f *fleet, _ *receipts.Gatherer) {
			f.members[2].records, f.members[2].lies, f.members[0].mirrored = held(9), true, false
		}, statement{none, 0, true, "all", 1 * ms}, 0, 0},
		{"something of unknown age", func(f *fleet, _ *receipts.Gatherer) {
			f.members[0].records, f.members[0].lies, f.members[2].mirrored = held(0), true, false
		}, statement{roster{"archive-b"}, 1, false, "deadline", wait}, 1, 1},
		{"two were wrong, twice each", func(f *fleet, _ *receipts.Gatherer) {
			twice := append(held(8), numbered(9, record("note", "more")))
			f.members[0].records, f.members[0].lies, f.members[2].mirrored = twice, true, false
			f.members[1].records, f.members[1].lies = twice, true
		}, statement{none, 2, true, "all", 3 * ms}, 2, 2},
		{"a silent one is found to have lost records", func(f *fleet, g *receipts.Gatherer) {
			f.members[2].mirrored = false
			g.Roster = doubting{f, func(id wire.ArchiveID) bool { return id == "archive-b" && len(f.asks) > 0 }}
		}, statement{roster{"archive-b"}, 0, false, "lost-records", 3 * ms}, 0, 0},
		{"one is enrolled, nobody is named", func(f *fleet, g *receipts.Gatherer) {
			g.Roster = growing{&[]roster{three, append(slices.Clone(three), "archive-d")}}
		}, statement{none, 0, false, "deadline", wait}, 0, 0},
		{"one is enrolled behind the mirrors", func(f *fleet, g *receipts.Gatherer) {
			g.Roster = growing{&[]roster{three, three, append(slices.Clone(three), "archive-d")}}
		}, statement{none, 0, false, "deadline", wait}, 0, 0},
		{"one that is not enrolled begins to listen", func(f *fleet, g *receipts.Gatherer) {
			g.Unlisted = census(false, true)
		}, statement{none, 0, false, "deadline", wait}, 0, 0},
		{"mirrors of archives that nobody knows", func(f *fleet, g *receipts.Gatherer) {
			g.Mirrors = strange{f, receipts.Silence{ID: "archive-z", Boot: "boot", Seq: 9}}
		}, statement{none, 0, true, "all", 0}, 0, 0},
		{"the same twice", func(f *fleet, g *receipts.Gatherer) {
			g.Mirrors = strange{f, receipts.Silence{ID: "archive-a", Boot: "boot", Seq: 9}}
		}, statement{none, 0, true, "all", 0}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := quiet(t)
				g := f.gatherer()
				c.set(f, g)
				start := time.Now()
				got, err := g.Gather(t.Context(), subject, acme, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, stated(got, time.Since(start)), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(got.Records) != c.held || len(f.told) != c.alarm || f.mirror != 1 {
					t.Errorf("%d records, %d contradictions, mirrors asked %d times", len(got.Records), len(f.told), f.mirror)
				}
			})
		})
	}
}

// doubting is a fleet that finds out losses.
type doubting struct {
	*fleet
	lost func(wire.ArchiveID) bool
}

func (d doubting) Doubted(id wire.ArchiveID) bool { return d.lost(id) }

// strange adds a word to what mirrors say.
type strange struct {
	receipts.Mirrors
	more receipts.Silence
}

func (s strange) Silent(tenant wire.TenantID, digest wire.Digest, archives []wire.ArchiveID) []receipts.Silence {
	return append(s.Mirrors.Silent(tenant, digest, archives), s.more)
}

// A silent archive that begins to answer is heard to the end; one of another
// process than the mirrored one contradicts nothing, and neither does what the
// caller may not see.
func TestLaw6ASilentArchiveThatAnswersIsHeard(t *testing.T) {
	const ms = time.Millisecond
	older := numbered(3, record("note", "held"))
	by := func(boot string, r wire.Reply) wire.Reply { r.Boot = boot; return r }
	unseen := numbered(3, record("note", "held", of(globex)))
	for _, c := range []struct {
		name   string
		script []says
		want   statement
		alarm  int
	}{
		{"a page of two", []says{{1 * ms, page(1, 2, reply("archive-b", numbered(10, older)))}, {2 * ms, reply("archive-a")}}, statement{roster{"archive-b"}, 1, false, "deadline", wait}, 0},
		{"both pages", []says{{1 * ms, page(1, 2, reply("archive-b", numbered(10, older)))}, {2 * ms, reply("archive-a")}, {3 * ms, page(2, 2, reply("archive-b"))}}, statement{none, 1, true, "all", 3 * ms}, 0},
		{"a new process", []says{{1 * ms, by("new", reply("archive-b", older))}, {2 * ms, reply("archive-a")}}, statement{none, 1, true, "all", 2 * ms}, 0},
		{"nothing, unasked", []says{{1 * ms, reply("archive-b")}, {2 * ms, reply("archive-a")}}, statement{none, 0, true, "all", 2 * ms}, 0},
		{"another tenant's", []says{{1 * ms, reply("archive-b", unseen)}, {2 * ms, reply("archive-a")}}, statement{none, 0, true, "all", 2 * ms}, 0},
		{"a damaged one", []says{{1 * ms, reply("archive-b", wire.Record{Kind: "note", SHA256: subject, TenantID: acme, ID: wire.RecordID{1}})}, {2 * ms, reply("archive-a")}},
			statement{roster{"archive-b"}, 0, false, "deadline", wait}, 0},
		{"an older one", []says{{1 * ms, reply("archive-b", older)}, {2 * ms, reply("archive-a")}}, statement{none, 1, true, "all", 2 * ms}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := &said{Silence: receipts.Silence{ID: "archive-b", Seq: 5}}
				a := &asker{t: t, script: c.script}
				g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a", "archive-b"}, Mirrors: said, Wait: wait, SampleEvery: 1 << 40}
				got, took := gatherBy(t, g, a)
				if diff := cmp.Diff(c.want, stated(got, took), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if said.told != c.alarm {
					t.Errorf("%d contradictions", said.told)
				}
			})
		})
	}
}

// said are mirrors that always say the same.
type said struct {
	receipts.Silence
	told int
}

func (s *said) Silent(wire.TenantID, wire.Digest, []wire.ArchiveID) []receipts.Silence {
	return []receipts.Silence{s.Silence}
}
func (s *said) Contradicted(receipts.Silence, wire.RecordID) { s.told++ }

// TestMirrorsAreSampled: now and then a silent archive is asked all the same. That
// finds a mirror that is wrong where nobody would have been asked, costs the wait
// where it does not answer, and changes the result in no other case.
func TestMirrorsAreSampled(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(*member)
		want   statement
		alarms int
	}{
		{"it has nothing", func(*member) {}, statement{none, 0, true, "all", 1}, 0},
		{"it has something newer", func(m *member) { m.records = []wire.Record{numbered(10, record("note", "x"))} }, statement{none, 1, true, "all", 1}, 0},
		{"its mirror is wrong", func(m *member) { m.lies, m.records = true, []wire.Record{numbered(9, record("note", "x"))} }, statement{none, 1, true, "all", 1}, 1},
		{"it does not answer", func(m *member) { m.dead = true }, statement{none, 0, true, "all", wait}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{t: t, members: []*member{{id: "archive-a", boot: "boot", after: 1, mirrored: true, upto: 9}}}
				c.set(f.members[0])
				g, start := f.gatherer(), time.Now()
				g.SampleEvery = 1
				got, err := g.Gather(t.Context(), subject, acme, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, stated(got, time.Since(start))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]asking{{f.Enrolled(), false}}, f.asks); diff != "" || len(f.told) != c.alarms {
					t.Errorf("%d contradictions; asked (-want +got):\n%s", len(f.told), diff)
				}
			})
		})
	}
}

// A sample is as likely for everybody, of one archive at a time, and of each.
func TestSamplesAreNobodysChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := quiet(t)
		g := f.gatherer()
		g.SampleEvery = 4
		picked := map[string]int{}
		const rounds = 400
		for range rounds {
			for _, tenant := range []wire.TenantID{acme, globex} {
				f.asks = nil
				if got, err := g.Gather(t.Context(), subject, tenant, nil); err != nil || !got.Complete {
					t.Fatal(got, err)
				}
				for _, a := range f.asks {
					picked[string(tenant)]++
					picked[fmt.Sprint(a.Named)]++
				}
			}
		}
		// Six standard deviations off is not chance.
		for _, tenant := range []wire.TenantID{acme, globex} {
			if n := picked[string(tenant)]; n < rounds/4-52 || n > rounds/4+52 {
				t.Errorf("%s: %d of %d", tenant, n, rounds)
			}
		}
		if len(picked) != 2+len(three) {
			t.Errorf("asked: %v", picked)
		}
	})
}

// What an archive shows late contradicts its mirror as well.
func TestLateRepliesContradict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := quiet(t)
		f.members[0].mirrored, f.members[0].dead = false, true
		f.members[1].lies, f.members[1].after = true, wait+5
		f.members[1].records = []wire.Record{numbered(9, record("note", "x"))}
		start := time.Now()
		first, late, err := f.gatherer().GatherLate(t.Context(), subject, acme, nil, extra)
		if err != nil || late == nil || len(first.Missing) != 1 || first.Complete {
			t.Fatalf("%+v, %v", first, err)
		}
		then, more := late(t.Context())
		if !more || then.Complete || len(f.told) != 1 || !slices.Equal(then.Missing, roster{"archive-a", "archive-c"}) || time.Since(start) != wait+extra {
			t.Errorf("%+v after %v, %d contradictions", then, time.Since(start), len(f.told))
		}
	})
}

// The asker's failing to ask within the wait is nobody's word but the mirrors'.
func TestMirrorsSpeakWhereNobodyCouldBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := quiet(t)
		f.members[1].mirrored = false
		g := f.gatherer()
		g.Asker = &asker{t: t, slow: 2 * wait}
		got, err := g.Gather(t.Context(), subject, acme, nil)
		if err != nil || got.Complete || !slices.Equal(got.Missing, roster{"archive-b"}) || got.Reason != wire.ReasonDeadline {
			t.Errorf("%+v, %v", got, err)
		}
		g.Asker = &asker{t: t, hangUp: 1}
		if got, err = g.Gather(t.Context(), subject, acme, nil); err != nil || !slices.Equal(got.Missing, roster{"archive-b"}) || got.Reason != wire.ReasonDeadline {
			t.Errorf("nobody listens: %+v, %v", got, err)
		}
	})
}
