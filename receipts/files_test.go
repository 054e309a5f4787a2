package receipts_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// Where one archive has the file that is looked for, the others are not waited for
// beyond Soon; where none has it everybody is.
func TestFoundFilesWaitForNobody(t *testing.T) {
	ms := time.Millisecond
	mine := record(wire.KindFile, "a")
	other := record(wire.KindFile, "other") // under the digest, and not the one
	isMine := func(r *wire.Record) bool { return r.File.Name == "a" }
	for _, c := range []struct {
		name   string
		script []says
		want   statement
		held   int
	}{
		{"the others are silent", []says{{5 * ms, reply("archive-a", mine)}},
			statement{roster{"archive-b", "archive-c"}, 1, false, "deadline", 5*ms + receipts.Soon}, 1},
		{"one is in time", []says{{5 * ms, reply("archive-a", mine)}, {5*ms + receipts.Soon - 1, reply("archive-c", mine)}},
			statement{roster{"archive-b"}, 2, false, "deadline", 5*ms + receipts.Soon}, 1},
		{"all answer", []says{{5 * ms, reply("archive-a", mine)}, {9 * ms, reply("archive-b")}, {20 * ms, reply("archive-c", mine)}},
			statement{none, 2, true, "all", 20 * ms}, 1},
		{"found late", []says{{wait - 1, reply("archive-a", mine)}}, statement{roster{"archive-b", "archive-c"}, 1, false, "deadline", wait}, 1},
		{"another is found", []says{{5 * ms, reply("archive-a", other)}}, statement{roster{"archive-b", "archive-c"}, 1, false, "deadline", wait}, 1},
		{"found after another", []says{{5 * ms, reply("archive-a", other)}, {200 * ms, reply("archive-b", mine)}},
			statement{roster{"archive-c"}, 2, false, "deadline", 200*ms + receipts.Soon}, 2},
		{"nothing", nil, statement{three, 0, false, "deadline", wait}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &receipts.Gatherer{Asker: &asker{t: t, script: c.script}, Roster: three, Wait: wait}
				start := time.Now()
				got, err := g.GatherFiles(t.Context(), subject, acme, isMine)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, stated(got, time.Since(start)), cmp.Transformer("ids", func(r roster) []wire.ArchiveID { return r })); diff != "" || len(got.Records) != c.held {
					t.Errorf("%d records, (-want +got):\n%s", len(got.Records), diff)
				}
			})
		})
	}
}

// What a stranger sends is not enough, and who wants to hear all does.
func TestOnlyEnrolledArchivesCutTheWaitShort(t *testing.T) {
	mine := record(wire.KindFile, "a")
	any := func(*wire.Record) bool { return true }
	for name, ask := range map[string]func(context.Context, *receipts.Gatherer) (receipts.Gathered, error){
		"a stranger has it": func(ctx context.Context, g *receipts.Gatherer) (receipts.Gathered, error) {
			return g.GatherFiles(ctx, subject, acme, any)
		},
		"all are wanted": func(ctx context.Context, g *receipts.Gatherer) (receipts.Gathered, error) {
			g.Roster = roster{"archive-a", "stranger"}
			return g.GatherFiles(ctx, subject, acme, nil)
		},
		"all with a block are wanted": func(ctx context.Context, g *receipts.Gatherer) (receipts.Gathered, error) {
			g.Roster = roster{"archive-a", "stranger"}
			return g.GatherBlock(ctx, subject, acme, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &receipts.Gatherer{
					Asker:  &asker{t: t, nobody: true, script: []says{{time.Millisecond, reply("stranger", mine)}}},
					Roster: roster{"archive-a"}, Wait: wait, Unlisted: func() bool { return true },
				}
				start := time.Now()
				got, err := ask(t.Context(), g)
				if err != nil || time.Since(start) != wait || len(got.Records) != 1 {
					t.Errorf("%d records after %v, %v", len(got.Records), time.Since(start), err)
				}
			})
		})
	}
}
