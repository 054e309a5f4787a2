package receipts_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// byID returns n records in the order of their ids.
func byID(n int, size int) []wire.Record {
	var out []wire.Record
	for i := range n {
		out = append(out, record("note", fmt.Sprintf("%0*d", size, i), part(i)))
	}
	slices.SortFunc(out, func(a, b wire.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return out
}

// capped gathers the records one to a page from archive-a, with copies of the
// lowest from archive-b, in the given order.
func capped(t *testing.T, g *receipts.Gatherer, rs []wire.Record, order []int) (receipts.Gathered, time.Duration, float64) {
	t.Helper()
	a := &asker{t: t, script: []says{{1, reply("archive-b", rs[0])}}}
	for _, n := range order {
		a.script = append(a.script, says{1, page(n+1, len(rs), reply("archive-a", rs[n]))})
	}
	g.Asker, g.Roster, g.Wait = a, roster{"archive-a", "archive-b"}, wait
	got, took := gatherBy(t, g, a)
	n, _ := dropped(t, g, "over-cap")
	return got, took, n
}

// TestRecordCapIsExactAndIndependentOfOrder: at the cap all is well, one more
// makes the answer incomplete, and what remains is the same in every order.
func TestRecordCapIsExactAndIndependentOfOrder(t *testing.T) {
	rs := byID(4, 8)
	lowest := []wire.RecordID{rs[0].ID, rs[1].ID, rs[2].ID}
	synctest.Test(t, func(t *testing.T) {
		for _, order := range permutations(4) {
			if got, _, drops := capped(t, &receipts.Gatherer{MaxRecords: 4}, rs, order); !got.Complete || len(got.Records) != 4 || drops != 0 {
				t.Fatalf("at the cap: %d records, complete %v, %v drops", len(got.Records), got.Complete, drops)
			}
			got, took, drops := capped(t, &receipts.Gatherer{MaxRecords: 3}, rs, order)
			held := ids(got)
			slices.SortFunc(held, func(a, b wire.RecordID) int { return bytes.Compare(a[:], b[:]) })
			if diff := cmp.Diff(lowest, held); diff != "" {
				t.Errorf("order %v: held (-want +got):\n%s", order, diff)
			}
			if got.Complete || took != wait || drops != 1 {
				t.Errorf("order %v: complete %v after %v, %v drops", order, got.Complete, took, drops)
			}
			if diff := cmp.Diff([]wire.ArchiveID{"archive-a"}, got.Missing); diff != "" {
				t.Errorf("order %v: missing (-want +got):\n%s", order, diff)
			}
		}
	})
}

// TestByteCapKeepsTheLowestIDsThatFit: a small record with a high id does not
// slip in behind a large one that did not fit.
func TestByteCapKeepsTheLowestIDsThatFit(t *testing.T) {
	rs := byID(4, 1000)
	rs[3] = record("note", "small", part(3))
	for i := 4; bytes.Compare(rs[3].ID[:], rs[2].ID[:]) <= 0; i++ {
		rs[3] = record("note", "small", part(i))
	}
	// Room for two large records and the small one, not for three large ones.
	const room = 2*1000 + 4*600
	synctest.Test(t, func(t *testing.T) {
		for _, order := range permutations(4) {
			got, _, _ := capped(t, &receipts.Gatherer{MaxBytes: room}, rs, order)
			held := ids(got)
			slices.SortFunc(held, func(a, b wire.RecordID) int { return bytes.Compare(a[:], b[:]) })
			if diff := cmp.Diff([]wire.RecordID{rs[0].ID, rs[1].ID}, held); diff != "" {
				t.Errorf("order %v: held (-want +got):\n%s", order, diff)
			}
			if diff := cmp.Diff([]wire.ArchiveID{"archive-a"}, got.Missing); diff != "" || got.Complete {
				t.Errorf("order %v: missing (-want +got):\n%s", order, diff)
			}
		}
	})
}

// TestEvictedCopiesMakeEveryHolderMissing: also an archive that had answered in
// full, and then lost a record to the cap.
func TestEvictedCopiesMakeEveryHolderMissing(t *testing.T) {
	rs := byID(2, 8)
	synctest.Test(t, func(t *testing.T) {
		a := &asker{t: t, script: []says{{1, reply("archive-a", rs[1])}, {2, reply("archive-b", rs[0])}}}
		g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a", "archive-b"}, Wait: wait, MaxRecords: 1}
		got, took := gatherBy(t, g, a)
		if diff := cmp.Diff(statement{[]wire.ArchiveID{"archive-a"}, 1, false, "deadline", wait}, stated(got, took)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
