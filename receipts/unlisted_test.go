package receipts_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// seedOnly is the reply of an archive that knows only the seed's contract: it has
// no pages, no boot, and ids of its own or none.
func seedOnly(id wire.ArchiveID, records ...wire.Record) wire.Reply {
	return wire.Reply{ArchiveID: id, SHA256: subject, Records: records}
}

// minimal is a record as a seed-only peer keeps it.
func minimal(body string, edit ...func(*wire.Record)) wire.Record {
	r := wire.Record{Kind: "note", SHA256: subject, TenantID: acme, Body: []byte(body)}
	for _, e := range edit {
		e(&r)
	}
	return r
}

// census answers whether an unlisted archive may listen, one answer after the
// other; the last stays.
func census(answers ...bool) func() bool {
	return func() bool {
		now := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return now
	}
}

// TestLaw6UnlistedArchives: while an archive that knows only the seed may be
// listening the wait is waited in full, and nothing is called complete. took is
// the time class: the moment of the last expected answer, or the whole wait.
func TestLaw6UnlistedArchives(t *testing.T) {
	const ms = time.Millisecond
	one := record("note", "one")
	all := []says{{1 * ms, reply("archive-a")}, {2 * ms, reply("archive-b", one)}, {3 * ms, reply("archive-c")}}
	late := says{800 * ms, seedOnly("seed-archive", minimal("other"))}
	early := says{0, seedOnly("seed-archive", minimal("other"))}
	for _, c := range []struct {
		name     string
		unlisted func() bool
		script   []says
		roster   roster
		want     statement
		held     int
	}{
		{"no such setting", nil, append(all, late), three, statement{none, 1, true, "all", 3 * ms}, 1},
		{"none: its word is not taken", census(false), append([]says{early}, all...), three, statement{none, 1, true, "all", 3 * ms}, 1},
		{"census finds nobody", census(false), all, three, statement{none, 1, true, "all", 3 * ms}, 1},
		{"census finds one, which has it", census(true), append(all, late), three, statement{none, 2, false, "deadline", wait}, 2},
		{"census finds one, which has nothing", census(true), all, three, statement{none, 1, false, "deadline", wait}, 1},
		{"wait, and nobody is there", census(true), all, three, statement{none, 1, false, "deadline", wait}, 1},
		{"one joins after the question", census(false, true), append(all, late), three, statement{none, 2, false, "deadline", wait}, 2},
		{"one leaves after the question", census(true, false), all, three, statement{none, 1, false, "deadline", wait}, 1},
		{"one that answers is one", census(false, true), append([]says{early}, all...), three, statement{none, 2, false, "deadline", wait}, 2},
		{"an enrolled one is missing as well", census(true), all[:2], three, statement{roster{"archive-c"}, 1, false, "deadline", wait}, 1},
		{"nobody is enrolled", census(true), []says{late}, nil, statement{none, 1, false, "deadline", wait}, 1},
		{"nobody is enrolled, nobody has it", census(true), nil, nil, statement{none, 0, false, "deadline", wait}, 0},
		{"nobody is enrolled or listens", census(false), nil, nil, statement{none, 0, false, "no-archives", 0}, 0},
		{"it answers another question", census(true), append([]says{{0, wire.Reply{ArchiveID: "seed-archive", SHA256: wire.Digest{9}, Records: early.reply.Records}}}, all...), three, statement{none, 1, false, "deadline", wait}, 1},
		{"it has a record that an enrolled one has", census(true), append(all, says{4 * ms, seedOnly("seed-archive", one)}), three, statement{none, 2, false, "deadline", wait}, 1},
		{"it answers after the wait", census(true), append(all, says{wait + 1, late.reply}), three, statement{none, 1, false, "deadline", wait}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t, script: c.script, nobody: true}
				got, took := gatherBy(t, &receipts.Gatherer{Asker: a, Roster: c.roster, Wait: wait, Unlisted: c.unlisted}, a)
				if diff := cmp.Diff(c.want, stated(got, took), cmp.Transformer("ids", func(r roster) []wire.ArchiveID { return r })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(got.Records) != c.held || !slices.Equal(got.Expected, slices.Clone([]wire.ArchiveID(c.roster))) {
					t.Errorf("%d records of %v, want %d of %v", len(got.Records), got.Expected, c.held, c.roster)
				}
			})
		})
	}
}

// growing is a roster that has other archives at each look; the last stay.
type growing struct{ looks *[]roster }

func (g growing) Enrolled() []wire.ArchiveID {
	now := (*g.looks)[0]
	if len(*g.looks) > 1 {
		*g.looks = (*g.looks)[1:]
	}
	return now.Enrolled()
}

// TestLaw6AnArchiveThatJoinsIsNotMissed: one that is enrolled after the question
// began is known to the census and not expected. It may have got the question, so
// that nothing is complete before its word, which nobody has asked for.
func TestLaw6AnArchiveThatJoinsIsNotMissed(t *testing.T) {
	one, two := roster{"archive-a"}, roster{"archive-a", "archive-b"}
	yes := []says{{1, reply("archive-a")}, {2, reply("archive-b", record("note", "b"))}}
	for _, c := range []struct {
		name   string
		looks  []roster
		script []says
		want   statement
	}{
		{"before the question is asked", []roster{one, two}, yes, statement{none, 1, false, "deadline", wait}},
		{"before the last word", []roster{one, one, two}, yes, statement{none, 1, false, "deadline", wait}},
		{"without a word", []roster{one, one, two}, yes[:1], statement{none, 0, false, "deadline", wait}},
		{"the first of all", []roster{nil, one}, []says{{1, reply("archive-a", record("note", "a"))}}, statement{none, 1, false, "deadline", wait}},
		{"one leaves", []roster{two, one}, yes, statement{none, 1, true, "all", 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t, script: c.script, nobody: true}
				got, took := gatherBy(t, &receipts.Gatherer{Asker: a, Roster: growing{&c.looks}, Wait: wait, Unlisted: census(false)}, a)
				if diff := cmp.Diff(c.want, stated(got, took), cmp.Transformer("ids", func(r roster) []wire.ArchiveID { return r })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The server's word that nobody listens ends also a wait for unlisted archives.
func TestNobodyListensEndsTheWaitForStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, hangUp: 1, nobody: true}
		got, took := gatherBy(t, &receipts.Gatherer{Asker: a, Roster: roster{}, Wait: wait, Unlisted: census(true)}, a)
		if got.Complete || got.Reason != wire.ReasonNoArchives || took != 1 {
			t.Errorf("%+v after %v", got, took)
		}
		a = &asker{t: t, script: []says{{1, seedOnly("seed-archive", minimal("x"))}}, hangUp: 1, nobody: true}
		got, took = gatherBy(t, &receipts.Gatherer{Asker: a, Roster: roster{}, Wait: wait, Unlisted: census(true)}, a)
		if got.Complete || got.Reason != wire.ReasonDeadline || len(got.Records) != 1 || took != 2 {
			t.Errorf("after an answer: %+v after %v", got, took)
		}
	})
}

// TestLaw5UnlistedRecordsAreNotBelieved: what an archive that is not enrolled
// sends counts only if the record itself admits the caller, and nothing that the
// record's id does not cover is taken from it.
func TestLaw5UnlistedRecordsAreNotBelieved(t *testing.T) {
	edited := func(r wire.Record, edit func(*wire.Record)) wire.Record { edit(&r); return r }
	file := edited(record(wire.KindFile, "a.pdf"), func(r *wire.Record) { f := *r.File; f.ID[3]++; r.File, r.ID[3] = &f, r.ID[3]+1 })
	for _, c := range []struct {
		name   string
		record wire.Record
		reason string // for which it is dropped; empty: it is shown
	}{
		{"the caller's", minimal("x"), ""},
		{"an id of its own", edited(minimal("x"), func(r *wire.Record) { r.ID = wire.RecordID{1, 2, 3} }), ""},
		{"a file with ids of its own", file, ""},
		{"shared with the caller", minimal("x", of(globex), shared(acme, "B")), ""},
		{"public", minimal("x", of(globex), shared(wire.Public, "B")), ""},
		{"another tenant's", minimal("x", of(globex)), "not-visible"},
		{"another tenant's, shared with others", minimal("x", of(globex), shared("initech", "C")), "not-visible"},
		{"another tenant's private metadata, shared", minimal("VERAESM", of(globex), shared(acme, "C"), kind(wire.KindPrivateMetadata)), "not-visible"},
		{"private metadata in clear", minimal("{}", kind(wire.KindPrivateMetadata)), "malformed"},
		{"private metadata", minimal("VERAESM...", kind(wire.KindPrivateMetadata)), ""},
		{"control record", minimal("{}", kind(wire.KindHold)), "kind-not-asked"},
		{"another digest", minimal("x", func(r *wire.Record) { r.SHA256 = wire.Digest{9} }), "foreign-key"},
		{"a body that is not its digest's", minimal("x", func(r *wire.Record) { r.BodySHA256 = wire.Digest{9} }), "damaged"},
		{"no record by our rules", minimal("x", kind("Note!")), "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.record.Retention = &wire.Retention{RetainUntil: "2099-01-01T00:00:00.000000000Z"}
				a := &asker{t: t, script: []says{{1, seedOnly("seed-archive", c.record)}, {2, reply("archive-a")}}}
				g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait, Unlisted: census(true)}
				got, _ := gatherBy(t, g, a)
				if c.reason != "" {
					if n, all := dropped(t, g, c.reason); n != 1 || all != 1 || len(got.Records) != 0 || got.Replied != 0 {
						t.Errorf("%v dropped as %s, %v in all; shown: %+v", n, c.reason, all, got.Records)
					}
					return
				}
				if len(got.Records) != 1 || got.Replied != 1 {
					t.Fatalf("shown: %+v", got.Records)
				}
				h := got.Records[0]
				if h.Record.ID != h.Record.ComputeID() || h.Record.File != nil && h.Record.File.ID != h.Record.ID || h.Record.Retention != nil || !slices.Equal(h.ArchiveIDs, roster{"seed-archive"}) {
					t.Errorf("shown: %+v", h)
				}
			})
		})
	}
}

func kind(k wire.Kind) func(*wire.Record) { return func(r *wire.Record) { r.Kind = k } }

// TestStrangersDisplaceNothing: of a record that an enrolled archive has, a
// stranger adds only his name, and however much he sends, nothing of an enrolled
// archive goes, and it is not called short.
func TestStrangersDisplaceNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := minimal("mine", storedAt("2026-11-30T14:02:12.000000000Z"))
		copied := minimal("mine", storedAt("1970-01-01T00:00:00.000000000Z"))
		a := &asker{t: t, script: []says{{1, seedOnly("seed-archive", copied)}}}
		const flood = 400
		for i := range flood {
			id := wire.ArchiveID(fmt.Sprintf("flood-%d", i))
			a.script = append(a.script, says{2, seedOnly(id, minimal(fmt.Sprint("junk ", i)), copied)})
		}
		a.script = append(a.script, says{3, reply("archive-a", mine)})
		g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait, Unlisted: census(true), MaxRecords: 64}
		got, _ := gatherBy(t, g, a)
		if len(got.Missing) != 0 || len(got.Records) != 1+64/8 {
			t.Errorf("missing %v, %d records", got.Missing, len(got.Records))
		}
		at := slices.IndexFunc(got.Records, func(h receipts.Held) bool { return h.Record.ID == mine.ComputeID() })
		if at < 0 {
			t.Fatal("the record of the enrolled archive is gone")
		}
		if h := got.Records[at]; h.Record.StoredAt != mine.StoredAt || !slices.Contains(h.ArchiveIDs, "archive-a") || len(h.ArchiveIDs) > 1+receipts.MaxUnlisted {
			t.Errorf("it became %+v", h)
		}
		if n, _ := dropped(t, g, "over-cap"); n < flood-receipts.MaxUnlisted {
			t.Errorf("%v dropped", n)
		}
	})
}

// dismissing is a roster from which an archive was retired.
type dismissing struct {
	roster
	gone wire.ArchiveID
}

func (d dismissing) WasRetired(id wire.ArchiveID) bool { return id == d.gone }

func TestRetiredArchivesAreNoStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, script: []says{{1, seedOnly("archive-z", minimal("x"))}, {2, reply("archive-a")}}}
		g := &receipts.Gatherer{Asker: a, Roster: dismissing{roster{"archive-a"}, "archive-z"}, Wait: wait, Unlisted: census(true)}
		got, _ := gatherBy(t, g, a)
		if n, _ := dropped(t, g, "unlisted-archive"); n != 1 || len(got.Records) != 0 {
			t.Errorf("%v dropped, shown: %+v", n, got.Records)
		}
	})
}

// Beside an unlisted archive, too, what is not the caller's looks like what is not
// there: the same answer, at the same time, and nothing late.
func TestLaw5ForeignLooksLikeAbsentBesideStrangers(t *testing.T) {
	type seen struct {
		Found  receipts.Gathered
		Took   time.Duration
		More   bool
		Behind time.Duration
	}
	look := func(script []says) (s seen) {
		synctest.Test(t, func(t *testing.T) {
			a := &asker{t: t, script: append([]says{{0, reply("archive-a")}}, script...), longest: wait + extra}
			g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait, Unlisted: census(true)}
			start := time.Now()
			found, late, err := g.GatherLate(t.Context(), subject, acme, nil, extra)
			if err != nil || late == nil {
				t.Fatalf("%+v, %v", found, err)
			}
			s.Found, s.Took = found, time.Since(start)
			_, s.More = late(t.Context())
			s.Behind = time.Since(start)
		})
		return s
	}
	absent := look(nil)
	for name, script := range map[string][]says{
		"foreign":       {{1, seedOnly("seed-archive", minimal("x", of(globex)))}},
		"foreign, late": {{wait + 1, seedOnly("seed-archive", minimal("x", of(globex)))}},
		"refused":       {{1, seedOnly("seed-archive", minimal("x", of(globex), shared("initech", "C")))}},
		"empty":         {{1, seedOnly("seed-archive")}},
	} {
		if diff := cmp.Diff(absent, look(script)); diff != "" {
			t.Errorf("%s (-absent +got):\n%s", name, diff)
		}
	}
}

// copied is a roster of which nobody knows whether it is the newest.
type copied struct {
	roster
	current bool
}

func (c copied) Current() bool { return c.current }

// TestLaw6AnOldRosterMakesNoAnswerComplete: there may be archives that it does not
// have.
func TestLaw6AnOldRosterMakesNoAnswerComplete(t *testing.T) {
	all := []says{{1, reply("archive-a")}, {2, reply("archive-b")}, {3, reply("archive-c")}}
	for current, want := range map[bool]statement{true: {none, 0, true, "all", 3}, false: {none, 0, false, "deadline", wait}} {
		synctest.Test(t, func(t *testing.T) {
			a := &asker{t: t, script: all}
			got, took := gatherBy(t, &receipts.Gatherer{Asker: a, Roster: copied{three, current}, Wait: wait}, a)
			if diff := cmp.Diff(want, stated(got, took), cmp.Transformer("ids", func(r roster) []wire.ArchiveID { return r })); diff != "" {
				t.Errorf("current %v (-want +got):\n%s", current, diff)
			}
		})
	}
}
