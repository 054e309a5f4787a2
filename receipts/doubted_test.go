package receipts_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// suspicious is a roster that knows who lost records; from, if it is not zero, is
// when that is found out, counted from the begin of the test.
type suspicious struct {
	roster
	lost  wire.ArchiveID
	start time.Time
	from  time.Duration
}

func (s suspicious) Doubted(id wire.ArchiveID) bool {
	return id == s.lost && time.Since(s.start) >= s.from
}

// Law 6: an archive that lost records is heard, what it has is shown, and no
// answer is complete. It costs no wait: it has said all that it can say. One that
// says itself that it lost something under the key is believed.
func TestLaw6LostRecordsAreNeverComplete(t *testing.T) {
	m := record(wire.KindMetadata, `{"a":1}`)
	ms := time.Millisecond
	lostSome := reply("archive-b")
	lostSome.Lost = 1
	for name, c := range map[string]struct {
		lost   wire.ArchiveID
		from   time.Duration
		b      wire.Reply
		want   statement
		shared []wire.ArchiveID
	}{
		"it has something":            {"archive-b", 0, reply("archive-b", m), statement{roster{"archive-b"}, 2, false, "lost-records", 3 * ms}, roster{"archive-a", "archive-b"}},
		"it has nothing":              {"archive-b", 0, reply("archive-b"), statement{roster{"archive-b"}, 1, false, "lost-records", 3 * ms}, roster{"archive-a"}},
		"it is found out meanwhile":   {"archive-b", 2 * ms, reply("archive-b"), statement{roster{"archive-b"}, 1, false, "lost-records", 3 * ms}, roster{"archive-a"}},
		"it is found out later":       {"archive-b", 9 * ms, reply("archive-b"), statement{none, 1, true, "all", 3 * ms}, roster{"archive-a"}},
		"it says so itself":           {"", 0, lostSome, statement{roster{"archive-b"}, 1, false, "deadline", wait}, roster{"archive-a"}},
		"one that is not asked is":    {"archive-z", 0, reply("archive-b"), statement{none, 1, true, "all", 3 * ms}, roster{"archive-a"}},
		"nobody is, and all have one": {"", 0, reply("archive-b", m), statement{none, 2, true, "all", 3 * ms}, roster{"archive-a", "archive-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t, script: []says{{1 * ms, reply("archive-a", m)}, {2 * ms, c.b}, {3 * ms, reply("archive-c")}}}
				g := &receipts.Gatherer{Asker: a, Roster: suspicious{three, c.lost, time.Now(), c.from}, Wait: wait}
				start := time.Now()
				got, err := g.Gather(t.Context(), subject, acme, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, stated(got, time.Since(start)), cmp.Transformer("ids", func(r roster) []wire.ArchiveID { return r })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(got.Records) != 1 || !slices.Equal(got.Records[0].ArchiveIDs, c.shared) {
					t.Errorf("records: %+v", got.Records)
				}
			})
		})
	}
}
