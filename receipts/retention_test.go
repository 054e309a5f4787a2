package receipts_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

const (
	year2030 wire.Time = "2030-01-01T00:00:00.000000000Z"
	year2040 wire.Time = "2040-01-01T00:00:00.000000000Z"
)

// decided is a decision on the hold name of all records, in the year 2026 + n.
func decided(name string, n byte, released bool) wire.Hold {
	return wire.Hold{
		Name: name, DecidedAt: wire.At(time.Date(2026+int(n), 1, 1, 0, 0, 0, 0, time.UTC)), ControlID: wire.RecordID{n}, Released: released,
	}
}

func retained(state *wire.Retention) func(*wire.Record) {
	return func(r *wire.Record) { r.Retention = state }
}

// The copies of a record say together how long it is retained, whichever archive
// did not hear of what, and in whatever order they answer.
func TestStatesOfCopiesMergeInAnyOrder(t *testing.T) {
	copy1 := record("note", "hello", retained(&wire.Retention{RetainUntil: year2030, AllUntil: year2030, Holds: []wire.Hold{decided("a", 1, false), decided("b", 1, false)}}))
	copy2 := record("note", "hello", retained(&wire.Retention{RetainUntil: year2040, Holds: []wire.Hold{decided("a", 2, true)}}))
	copy3 := record("note", "hello")
	replies := []wire.Reply{reply("archive-a", copy1), reply("archive-b", copy2), reply("archive-c", copy3)}
	want := &wire.Retention{RetainUntil: year2040, Holds: []wire.Hold{decided("b", 1, false)}}
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
				if diff := cmp.Diff(want, job.Receipts[1].Retention); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
			if !bytes.Equal(got, first) {
				t.Errorf("order %v gives other bytes:\n%s\n%s", order, got, first)
			}
		}
	})
}

// A state that is none makes its copy a hole, not a record without a state; on a
// record of another tenant it is nobody's business.
func TestStateThatIsNoneIsAHole(t *testing.T) {
	bad := &wire.Retention{RetainUntil: "for ever"}
	for _, c := range []struct {
		name     string
		r        wire.Record
		complete bool
	}{
		{"own", record("note", "hello", retained(bad)), false},
		{"shared", record("note", "hello", of(globex), shared(acme, wire.ModeFiles), retained(bad)), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t, script: []says{{time.Millisecond, reply("archive-a", c.r)}}}
				got, _ := gather(t, a, roster{"archive-a"})
				if got.Complete != c.complete || len(got.Records) == 1 != c.complete {
					t.Errorf("complete %v, %d records", got.Complete, len(got.Records))
				}
			})
		})
	}
}

func TestStateIsShownToItsTenant(t *testing.T) {
	state := &wire.Retention{RetainUntil: year2030, AllUntil: year2030, Holds: []wire.Hold{decided("a", 1, false), decided("b", 2, true)}}
	other := &wire.Retention{RetainUntil: year2040}
	public := shared(wire.Public, wire.ModeFiles)
	held := []receipts.Held{
		{Record: record(wire.KindMetadata, `{"n":1}`, retained(state), public)},
		{Record: record(wire.KindPrivateMetadata, "sealed", part(1), retained(other))},
		{Record: record("note", "x", part(2), retained(state), public)},
		{Record: record(wire.KindFile, "a.pdf", part(3), retained(other), public)},
	}
	for _, viewer := range []wire.TenantID{acme, globex} {
		job, err := receipts.Assemble(receipts.View{TenantID: viewer, Digest: subject, Queried: true, Gathered: receipts.Gathered{Records: held}})
		if err != nil {
			t.Fatal(err)
		}
		shown := state.Shown()
		if viewer != acme {
			shown = nil
		}
		if len(job.Receipts) != 2 || len(job.Files) != 1 {
			t.Fatalf("%d receipts, %d files", len(job.Receipts), len(job.Files))
		}
		for _, r := range job.Receipts {
			if diff := cmp.Diff(shown, r.Retention); diff != "" {
				t.Errorf("%s sees on %s (-want +got)\n%s", viewer, r.Kind, diff)
			}
		}
		want := (*wire.Retention)(nil)
		if viewer == acme {
			want = other
		}
		for _, r := range job.Receipts {
			if r.Kind == wire.ReceiptMetadataAttach {
				if diff := cmp.Diff(want, r.PrivateRetention); diff != "" {
					t.Errorf("%s sees on the private record (-want +got)\n%s", viewer, diff)
				}
			}
		}
		if diff := cmp.Diff(want, job.Files[0].Retention); diff != "" {
			t.Errorf("%s sees on the file (-want +got)\n%s", viewer, diff)
		}
	}
	alone, err := receipts.Assemble(receipts.View{TenantID: acme, Digest: subject, Queried: true, Gathered: receipts.Gathered{Records: held[1:2]}})
	if err != nil || alone.Receipts[0].Retention == nil || alone.Receipts[0].PrivateRetention != nil {
		t.Errorf("private metadata alone: %+v, %v", alone.Receipts, err)
	}
}
