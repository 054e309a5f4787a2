package receipts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// TestLaw5ForeignLooksLikeAbsentBesideMirrors: with mirrors, without, where
// strangers may listen and where only the named are asked, what is not the caller's
// changes neither who is asked, nor a byte of the answer, nor when it is given.
func TestLaw5ForeignLooksLikeAbsentBesideMirrors(t *testing.T) {
	type seen struct {
		Answer string
		Took   time.Duration
		Asked  []asking
	}
	look := func(set func(*fleet, *receipts.Gatherer), records ...wire.Record) (s seen) {
		synctest.Test(t, func(t *testing.T) {
			f := quiet(t)
			f.members[1].records = append(f.members[1].records, numbered(8, record("note", "mine"))) // perhaps, in every case
			for n, r := range records {
				f.members[n].records = append(f.members[n].records, r)
			}
			g, start := f.gatherer(), time.Now()
			set(f, g)
			got, err := g.Gather(t.Context(), subject, acme, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			s = seen{string(answer), time.Since(start), f.asks}
		})
		return s
	}
	older, newer := numbered(3, record("note", "secret", of(globex))), numbered(10, record("note", "secret", of(globex)))
	refused := numbered(3, record("note", "secret", of(globex), shared("initech", "C")))
	private := numbered(3, record(wire.KindPrivateMetadata, "VERAESM...", of(globex), shared(acme, "C")))
	modes := map[string]func(*fleet, *receipts.Gatherer){
		"trusted mirrors":    func(*fleet, *receipts.Gatherer) {},
		"one is not trusted": func(f *fleet, _ *receipts.Gatherer) { f.members[2].mirrored = false },
		"without mirrors":    func(_ *fleet, g *receipts.Gatherer) { g.Mirrors = nil },
		"strangers":          func(_ *fleet, g *receipts.Gatherer) { g.Unlisted = census(true) },
		"directed":           func(f *fleet, g *receipts.Gatherer) { g.Direct = 1 },
		"one is dead":        func(f *fleet, g *receipts.Gatherer) { f.members[0].dead, f.members[0].mirrored = true, false },
	}
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		absent := look(modes[mode])
		for name, r := range map[string]wire.Record{"foreign": older, "foreign and newer": newer, "refused": refused, "private": private} {
			if diff := cmp.Diff(absent, look(modes[mode], r, r, r)); diff != "" {
				t.Errorf("%s, %s (-absent +got):\n%s", mode, name, diff)
			}
		}
	}
}

// TestLawsHoldWhateverMirrorsSay draws fleets: archives that are trusted or not,
// doubted, dead or slow, with records acknowledged before the question and after
// it, mirrors that are right or wrong, strangers, and any order of arrival.
func TestLawsHoldWhateverMirrorsSay(t *testing.T) {
	law := func(rt *rapid.T) {
		f, honest := drawFleet(t, rt)
		g := f.gatherer()
		stranger := rapid.IntRange(0, 3).Draw(rt, "stranger") == 3
		g.Unlisted = census(stranger)
		g.SampleEvery = rapid.SampledFrom([]int{1, 1 << 40}).Draw(rt, "sample")
		f.gone = rapid.Bool().Draw(rt, "tells who is gone")
		g.Direct = rapid.IntRange(0, 4).Draw(rt, "direct")
		var broken []string
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			got, err := g.Gather(t.Context(), subject, acme, nil)
			if err != nil {
				broken = append(broken, err.Error())
			}
			broken = append(broken, f.broken(got, time.Since(start), stranger, honest)...)
		})
		for _, b := range broken {
			rt.Error(b)
		}
	}
	for range need.Rounds(5, 1000) {
		rapid.Check(t, law)
	}
}

// acknowledged is up to which record of an archive everything was acknowledged
// before the question.
const acknowledged = 9

func drawFleet(t *testing.T, rt *rapid.T) (f *fleet, honest bool) {
	f, honest = &fleet{t: t}, rapid.Bool().Draw(rt, "honest")
	tenants := rapid.SampledFrom([]wire.TenantID{acme, globex})
	for n := range rapid.SampledFrom([]int{3, 4, 2, 1, 0}).Draw(rt, "archives") {
		m := &member{
			id: wire.ArchiveID(fmt.Sprintf("archive-%d", n)), boot: "boot",
			after:    time.Duration(8*rapid.IntRange(1, 9).Draw(rt, "after") + n), // no two at once
			dead:     rapid.IntRange(0, 3).Draw(rt, "dead") == 3,
			doubted:  rapid.IntRange(0, 5).Draw(rt, "doubted") == 5,
			mirrored: rapid.Bool().Draw(rt, "mirrored"),
			upto:     acknowledged + uint64(rapid.IntRange(0, 1).Draw(rt, "ahead")),
		}
		if rapid.IntRange(0, 9).Draw(rt, "late") == 9 {
			m.after += wait
		}
		for i := range rapid.IntRange(0, 2).Draw(rt, "records") {
			seq := uint64(rapid.IntRange(1, acknowledged+2).Draw(rt, "seq"))
			m.records = append(m.records, numbered(seq, record("note", fmt.Sprint(n, i), of(tenants.Draw(rt, "tenant")))))
		}
		m.lies = !honest && m.mirrored && !m.absent(acme)
		f.members = append(f.members, m)
	}
	return f, honest
}

// broken are the laws that an answer breaks.
func (f *fleet) broken(got receipts.Gathered, took time.Duration, stranger, honest bool) (list []string) {
	law := func(kept bool, format string, args ...any) {
		if !kept {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	shown := map[wire.RecordID]bool{}
	for i := range got.Records {
		shown[got.Records[i].Record.ID] = true
	}
	law(took <= wait, "law 6: it took %v", took)
	law(slices.Equal(got.Expected, f.Enrolled()), "expected %v", got.Expected)
	law(!got.Complete || len(got.Missing) == 0 && got.Reason == wire.ReasonAll && !stranger && len(f.members) > 0, "law 6: complete and %+v", got)
	law(got.Complete || got.Reason != wire.ReasonAll, "law 6: not complete and %s", got.Reason)
	law(!honest || len(f.told) == 0, "law 6: %v contradicted", f.told)
	named := map[wire.ArchiveID]bool{}
	for _, a := range f.asks {
		law(!stranger || !a.Alone, "law 6: strangers may listen, and were not asked")
		for _, id := range a.Named {
			named[id] = true
		}
	}
	for _, m := range f.members {
		silent := m.mirrored && !m.doubted && m.absent(acme)
		missing := slices.Contains(got.Missing, m.id)
		law(silent || named[m.id] || len(f.asks) == 0, "law 6: %s was not named", m.id)
		law(silent || len(f.asks) > 0, "law 6: nobody was asked, and %s may have something", m.id)
		law(!missing || !silent || !honest, "law 6: %s is missing", m.id)
		law(missing || !m.doubted, "law 6: %s lost records and is not missing", m.id)
		for _, r := range m.visible(acme) {
			law(!honest || !got.Complete || shown[r.ID] || r.Seq > acknowledged, "law 6: complete without record %d of %s", r.Seq, m.id)
			// A mirror that was seen to be wrong ends the trust in all.
			law(!m.lies || m.doubted || !shown[r.ID] || r.Seq > m.upto || len(f.told) > 0, "law 6: the mirror of %s was wrong, and nobody told", m.id)
		}
		law(len(f.told) == 0 || !got.Complete || named[m.id] || len(m.visible(acme)) > 0, "law 6: complete, and only the mirror of %s spoke", m.id)
		for _, r := range m.records {
			law(r.TenantID == acme || !shown[r.ID], "law 5: a record of %s is shown", r.TenantID)
		}
	}
	law(len(f.asks) <= 1 && f.mirror == 1 || len(f.members) == 0, "%d questions", len(f.asks))
	return list
}
