package receipts_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// permutations returns all orders of 0 to n-1.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			out = append(out, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return out
}

// replay gathers the replies in the given order and returns the job's bytes.
func replay(t *testing.T, r roster, replies []wire.Reply, order []int) []byte {
	t.Helper()
	a := &asker{t: t}
	for i, n := range order {
		a.script = append(a.script, says{time.Duration(i+1) * time.Millisecond, replies[n]})
	}
	g, _ := gather(t, a, r)
	job, err := receipts.Assemble(receipts.View{
		JobID: "0197f3a0-5c1e-7d42-9b6a-3f1d2c4b5a69", TenantID: acme, Digest: subject,
		Seal:    wire.Receipt{Kind: wire.ReceiptSeal, Timestamp: "2026-11-30T14:02:11.120000000Z", Certificate: "c"},
		Queried: true, Gathered: g,
		OpenPrivate: func(r wire.Record) (wire.RawJSON, error) { return wire.RawJSON(`{"opened":true}`), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := wire.Encode(job)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSixArrivalOrdersGiveTheSameBytes is law 7 and case RC-03: the instants of
// the case, overlapping archives, all six orders of arrival.
func TestSixArrivalOrdersGiveTheSameBytes(t *testing.T) {
	times := []wire.Time{
		"2026-11-30T14:02:11Z", "2026-11-30T14:02:11.1Z", "2026-11-30T14:02:11.15Z",
		"2026-11-30T19:32:12+05:30", "2026-11-30T14:02:12Z", // one instant
		"2026-11-30T14:02:10.999999999Z", // older than the seal
	}
	var rs []wire.Record
	for i, at := range times {
		rs = append(rs, record("note", string(at), attachedAt(at), part(i)))
	}
	file := record(wire.KindFile, "a.pdf", attachedAt("2026-11-30T14:02:11.05Z"))
	meta, private := record(wire.KindMetadata, `{"n":1}`), record(wire.KindPrivateMetadata, "sealed", part(1))
	later := func(r wire.Record) wire.Record { r.StoredAt = "2026-11-30T15:00:00Z"; r.Seq = 99; return r }
	replies := []wire.Reply{
		reply("archive-c", rs[5], rs[3], rs[0], later(meta), file),
		reply("archive-a", rs[1], rs[4], later(rs[0]), private, meta, rs[2]),
		reply("archive-b", later(file), later(rs[5]), rs[2], later(private), rs[1]),
	}
	synctest.Test(t, func(t *testing.T) {
		var first []byte
		for _, order := range permutations(3) {
			got := replay(t, three, replies, order)
			if first == nil {
				first = got
				job, err := wire.Decode[wire.Job](got)
				if err != nil {
					t.Fatal(err)
				}
				checkOrder(t, job, rs, meta)
			}
			if !bytes.Equal(got, first) {
				t.Errorf("order %v gives other bytes:\n%s\n%s", order, got, first)
			}
		}
	})
}

// checkOrder checks the sequence that case RC-03 asks for.
func checkOrder(t *testing.T, job wire.Job, rs []wire.Record, meta wire.Record) {
	t.Helper()
	var got []wire.RecordID
	for _, r := range job.Receipts {
		got = append(got, r.RecordID)
	}
	equal := []wire.RecordID{rs[3].ID, rs[4].ID}
	slices.SortFunc(equal, func(a, b wire.RecordID) int { return bytes.Compare(a[:], b[:]) })
	atZero := []wire.RecordID{rs[0].ID, meta.ID}
	slices.SortFunc(atZero, func(a, b wire.RecordID) int { return bytes.Compare(a[:], b[:]) })
	want := slices.Concat([]wire.RecordID{{}, rs[5].ID}, atZero, []wire.RecordID{rs[1].ID, rs[2].ID}, equal)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if job.Receipts[0].Kind != wire.ReceiptSeal {
		t.Errorf("the first receipt is %q, want the seal", job.Receipts[0].Kind)
	}
	if diff := cmp.Diff([]wire.ArchiveID{"archive-b", "archive-c"}, job.Files[0].ArchiveIDs); diff != "" || job.Files[0].ArchiveID != "archive-b" {
		t.Errorf("archives of the file (-want +got):\n%s", diff)
	}
}

// TestAnyArrivalOrderGivesTheSameBytes draws records, who holds them, pages and
// orders.
func TestAnyArrivalOrderGivesTheSameBytes(t *testing.T) {
	times := rapid.SampledFrom([]wire.Time{"", "2026-11-30T14:02:11Z", "2026-11-30T14:02:11.5Z", "2026-11-30T15:02:11+01:00",
		"yesterday", "2026-13-01T00:00:00Z", "0000", "2026-11-30T14:02:11.500Z"})
	kinds := rapid.SampledFrom([]wire.Kind{"note", wire.KindMetadata, wire.KindPrivateMetadata, wire.KindFile})
	subs := rapid.SampledFrom([]wire.SubmissionID{"", submission1, submission2})
	rapid.Check(t, func(rt *rapid.T) {
		var replies []wire.Reply
		held := map[wire.ArchiveID][]wire.Record{}
		for i := range rapid.IntRange(0, 8).Draw(rt, "records") {
			r := record(kinds.Draw(rt, "kind"), `{"n":1}`, attachedAt(times.Draw(rt, "attachedAt")), in(subs.Draw(rt, "submission")), part(i))
			for _, id := range three {
				if rapid.Bool().Draw(rt, "held") {
					r.StoredAt, r.Seq = times.Draw(rt, "storedAt"), uint64(i)
					held[id] = append(held[id], r)
				}
			}
		}
		for _, id := range three {
			pages := rapid.IntRange(1, 3).Draw(rt, "pages")
			for p := range pages {
				lo, hi := len(held[id])*p/pages, len(held[id])*(p+1)/pages
				replies = append(replies, page(p+1, pages, reply(id, held[id][lo:hi]...)))
			}
		}
		order := make([]int, len(replies))
		for i := range order {
			order[i] = i
		}
		other := rapid.Permutation(order).Draw(rt, "order")
		synctest.Test(t, func(t *testing.T) {
			a, b := replay(t, three, replies, order), replay(t, three, replies, other)
			if !bytes.Equal(a, b) {
				rt.Errorf("order %v:\n%s\n%s", other, a, b)
			}
		})
	})
}

// TestOddTimesComeLast: what names no instant sorts after all that do, then by
// text, then by id.
func TestOddTimesComeLast(t *testing.T) {
	want := []wire.Record{
		record("note", "a", attachedAt("2026-11-30T14:02:11.1Z")),
		record("note", "b", attachedAt("2026-11-30T14:02:11.15Z")),
		record("note", "c", attachedAt("9999-12-31T23:59:59Z")),
		record("note", "d", attachedAt(""), storedAt("")),
		record("note", "e", attachedAt("0")),
		record("note", "f", attachedAt("2026-11-30 14:02")),
		record("note", "g", attachedAt("yesterday"), storedAt("2026-11-30T14:02:11Z")),
	}
	minimal := record("note", "h", attachedAt(""), storedAt("2026-11-30T14:02:11.12Z")) // stands by when it was stored
	want = slices.Insert(want, 1, minimal)
	shuffled := slices.Clone(want)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	got, _ := gather(t, &asker{script: []says{{0, reply("archive-a", shuffled...)}}}, roster{"archive-a"})
	for i, h := range got.Records {
		if h.Record.ID != want[i].ID {
			t.Errorf("place %d: %q, want %q", i, h.Record.Body, want[i].Body)
		}
	}
}

// TestCopiesMerge: one record from three archives is one, with the earliest time
// of storing and no sequence number.
func TestCopiesMerge(t *testing.T) {
	copies := func(texts ...wire.Time) []wire.Reply {
		var out []wire.Reply
		for i, at := range texts {
			r := record("note", "hello", storedAt(at))
			r.Seq = uint64(10 + i)
			out = append(out, reply(three[i], r))
		}
		return out
	}
	for _, c := range []struct {
		name  string
		texts []wire.Time
		want  wire.Time
	}{
		{"earliest by instant", []wire.Time{"2026-11-30T14:00:00Z", "2026-11-30T14:30:00+01:00", "2026-11-30T14:00:00.1Z"}, "2026-11-30T14:30:00+01:00"},
		{"an instant before odd texts", []wire.Time{"0", "2026-11-30T14:00:00Z", ""}, "2026-11-30T14:00:00Z"},
		{"equal instants by text", []wire.Time{"2026-11-30T14:00:00Z", "2026-11-30T14:00:00.0Z", "2026-11-30T15:00:00+01:00"}, "2026-11-30T14:00:00.0Z"},
		{"odd texts by text", []wire.Time{"b", "", "a"}, "a"},
		{"none", []wire.Time{"", "", ""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, order := range permutations(3) {
				synctest.Test(t, func(t *testing.T) {
					a := &asker{}
					for i, n := range order {
						a.script = append(a.script, says{time.Duration(i), copies(c.texts...)[n]})
					}
					got, _ := gather(t, a, three)
					if len(got.Records) != 1 || got.Replied != 3 {
						t.Fatalf("%d records of %d archives", len(got.Records), got.Replied)
					}
					h := got.Records[0]
					if h.Record.StoredAt != c.want || h.Record.Seq != 0 {
						t.Errorf("order %v: stored at %q, seq %d, want %q and 0", order, h.Record.StoredAt, h.Record.Seq, c.want)
					}
					if diff := cmp.Diff([]wire.ArchiveID(three), h.ArchiveIDs); diff != "" {
						t.Errorf("archives (-want +got):\n%s", diff)
					}
				})
			}
		})
	}
}
