package archive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/wire"
)

// control is a control record about a subject, decided at second n.
func control(t testing.TB, tenant wire.TenantID, subject wire.Digest, kind wire.Kind, n int, c wire.Control) wire.PutRecord {
	t.Helper()
	body, err := wire.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return wire.PutRecord{
		Kind: kind, SHA256: subject, TenantID: tenant, SubmissionID: wire.NewSubmissionID(),
		AttachedAt: wire.Time(fmt.Sprintf("2026-11-30T12:00:%02d.000000000Z", n)), ContentType: "application/json", Body: body,
	}
}

// retentions asks and returns the state of each record that came, by id.
func retentions(t testing.TB, n *Node, tenant wire.TenantID, subject wire.Digest) map[wire.RecordID]*wire.Retention {
	t.Helper()
	reply, _, err := n.Answer(t.Context(), query(tenant, subject))
	if err != nil {
		t.Fatal(err)
	}
	states := map[wire.RecordID]*wire.Retention{}
	for _, r := range reply.Records {
		states[r.ID] = r.Retention
	}
	return states
}

func until(year int) wire.Time { return wire.Time(fmt.Sprintf("%d-01-01T00:00:00.000000000Z", year)) }

// What control records say is shown on the records they mean, to their own
// tenant alone, under every digest that the records are found by; they
// themselves are not, and they stand also for records that come later.
func TestRetentionIsShownOnItsRecords(t *testing.T) {
	n := newNode(t)
	subject := digest("x")
	one := metadata(alice, subject, `{"n":1}`)
	one.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeFiles}}
	other := metadata(bob, subject, `{"n":2}`)
	file := fileRecord(alice, subject)
	n.cfg.Files.(*files).add(file.File.SHA256, digest("root"), digest("leaf"))
	elsewhere := metadata(alice, digest("y"), `{"n":3}`)
	for _, r := range []wire.PutRecord{one, other, file, elsewhere} {
		mustPut(t, n, r)
	}
	if states := retentions(t, n, alice, subject); states[one.ID()] != nil || len(states) != 2 {
		t.Fatalf("before anything was said: %v", states)
	}
	mustPut(t, n, control(t, alice, subject, wire.KindRetain, 1, wire.Control{RetainUntil: until(2030)}))
	mustPut(t, n, control(t, alice, subject, wire.KindRetain, 2, wire.Control{RecordID: file.ID(), RetainUntil: until(2040)}))
	hold := control(t, alice, subject, wire.KindHold, 3, wire.Control{RecordID: one.ID(), Name: "case"})
	mustPut(t, n, hold)
	mustPut(t, n, control(t, carol, subject, wire.KindRetain, 4, wire.Control{RetainUntil: until(2050)})) // hers, not theirs

	all := &wire.Retention{RetainUntil: until(2030), AllUntil: until(2030)}
	want := map[wire.RecordID]*wire.Retention{
		one.ID(): all.Merge(&wire.Retention{Holds: []wire.Hold{{
			Name: "case", RecordID: one.ID(), DecidedAt: hold.AttachedAt, ControlID: hold.ID(),
		}}}),
		file.ID(): {RetainUntil: until(2040), AllUntil: until(2030)},
	}
	if diff := cmp.Diff(want, retentions(t, n, alice, subject)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, key := range []wire.Digest{file.File.SHA256, digest("leaf"), wire.Digest(file.ID())} {
		if diff := cmp.Diff(want[file.ID()], retentions(t, n, alice, key)[file.ID()]); diff != "" {
			t.Errorf("found by %s: (-want +got)\n%s", key, diff)
		}
	}
	if diff := cmp.Diff(map[wire.RecordID]*wire.Retention{one.ID(): nil, other.ID(): nil}, retentions(t, n, bob, subject)); diff != "" {
		t.Errorf("another tenant sees (-want +got)\n%s", diff)
	}
	if states := retentions(t, n, alice, digest("y")); len(states) != 1 || states[elsewhere.ID()] != nil {
		t.Errorf("another subject has %v", states)
	}
	late := metadata(alice, subject, `{"n":4}`)
	mustPut(t, n, late)
	if diff := cmp.Diff(all, retentions(t, n, alice, subject)[late.ID()]); diff != "" {
		t.Errorf("a later record: (-want +got)\n%s", diff)
	}
	for _, id := range ask(t, n, alice, subject) {
		if id == hold.ID() {
			t.Error("a control record shows itself")
		}
	}
	if got := ask(t, n, alice, subject, wire.KindRetain, wire.KindHold); got != nil {
		t.Errorf("control records were answered: %v", got)
	}
}

// Two archives that got the same records in any order, one of them reopened,
// answer the same state.
func TestRetentionIsEqualWhateverTheOrder(t *testing.T) {
	subject := digest("x")
	record := metadata(alice, subject, `{"n":1}`)
	records := []wire.PutRecord{
		record,
		control(t, alice, subject, wire.KindRetain, 1, wire.Control{RetainUntil: until(2030)}),
		control(t, alice, subject, wire.KindRetain, 2, wire.Control{RetainUntil: until(2029)}),
		control(t, alice, subject, wire.KindHold, 3, wire.Control{Name: "a"}),
		control(t, alice, subject, wire.KindRelease, 4, wire.Control{Name: "a"}),
		control(t, alice, subject, wire.KindHold, 5, wire.Control{Name: "b"}),
		control(t, alice, subject, wire.KindRelease, 6, wire.Control{Name: "b"}),
		control(t, alice, subject, wire.KindHold, 7, wire.Control{Name: "b"}),
	}
	var first *wire.Retention
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 6 {
		fs := vfs.NewMem()
		c := testConfig(fs, "archive-a")
		mustInit(t, c)
		n := mustOpen(t, c)
		order := slices.Clone(records)
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, r := range order {
			mustPut(t, n, r)
		}
		if round%2 == 1 {
			mustClose(t, n)
			n = mustOpen(t, c)
		}
		got := retentions(t, n, alice, subject)[record.ID()]
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" || got.RetainUntil != until(2030) {
			t.Errorf("round %d: (-first +this)\n%s", round, diff)
		}
		if shown := got.Shown(); len(shown.Holds) != 1 || shown.Holds[0].Name != "b" {
			t.Errorf("in force are %+v", shown.Holds)
		}
		mustClose(t, n)
	}
}

// A control record that nobody could read later is not stored.
func TestControlRecordsAreCheckedBeforeTheyAreStored(t *testing.T) {
	n := newNode(t)
	mustPut(t, n, metadata(alice, digest("x"), `{}`))
	bad := control(t, alice, digest("x"), wire.KindHold, 1, wire.Control{})
	bad.Body = []byte(`{"name":`)
	if _, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: bad}); err == nil {
		t.Error("a control record that nobody can read was stored")
	}
}
