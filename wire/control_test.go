package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestControlBody(t *testing.T) {
	const until = `"retainUntil":"2036-11-30T00:00:00.000000000Z"`
	id := `"recordId":"` + strings.Repeat("ab", 32) + `"`
	for _, tt := range []struct {
		name       string
		kind       Kind
		body       string
		field, say string
	}{
		{"retain all", KindRetain, `{` + until + `}`, "", ""},
		{"retain one", KindRetain, `{` + id + `,` + until + `,"reason":"tax law"}`, "", ""},
		{"unknown keys", KindRetain, `{` + until + `,"mode":"compliance"}`, "", ""},
		{"retain without a date", KindRetain, `{}`, "retainUntil", "missing"},
		{"retain with a day", KindRetain, `{"retainUntil":"2036-11-30"}`, "retainUntil", "RFC 3339"},
		{"retain with an offset", KindRetain, `{"retainUntil":"2036-11-30T00:00:00.000000000+01:00"}`, "retainUntil", "UTC"},
		{"retain with few digits", KindRetain, `{"retainUntil":"2036-11-30T00:00:00Z"}`, "retainUntil", "nine digits"},
		{"retain with a name", KindRetain, `{` + until + `,"name":"x"}`, "name", "only a hold"},
		{"hold all", KindHold, `{}`, "", ""},
		{"hold one", KindHold, `{` + id + `,"name":"case 17","reason":"x"}`, "", ""},
		{"hold with a date", KindHold, `{` + until + `}`, "retainUntil", "only a record of kind"},
		{"release with a date", KindRelease, `{` + until + `}`, "retainUntil", "only a record of kind"},
		{"name at the limit", KindHold, `{"name":"` + strings.Repeat("n", MaxHoldName) + `"}`, "", ""},
		{"name beyond", KindHold, `{"name":"` + strings.Repeat("n", MaxHoldName+1) + `"}`, "name", "at most 64"},
		{"name with a control character", KindHold, `{"name":"a\u0007"}`, "name", "control"},
		{"reason beyond", KindRelease, `{"reason":"` + strings.Repeat("n", MaxReason+1) + `"}`, "reason", "at most 256"},
		{"record id that is none", KindHold, `{"recordId":"ab"}`, "recordId", "64 hexadecimal"},
		{"twice", KindHold, `{"name":"a","name":"b"}`, "name", "twice"},
		{"other case", KindHold, `{"Name":"a"}`, "Name", "only in case"},
		{"a list", KindHold, `[]`, "", "where an object"},
		{"nothing", KindHold, ``, "", "an object is expected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseControl(tt.kind, []byte(tt.body))
			requireVerdict(t, err, tt.field, tt.say)
			r := PutRecord{Kind: tt.kind, SHA256: Digest{1}, TenantID: "acme", AttachedAt: "2026-11-30T14:02:11.123456789Z", Body: []byte(tt.body)}
			if (r.Check() == nil) != (err == nil) {
				t.Errorf("the body: %v, the record: %v", err, r.Check())
			}
		})
	}
	r := PutRecord{Kind: KindHold, SHA256: Digest{1}, TenantID: "acme", Body: []byte(`{}`)}
	requireVerdict(t, r.Check(), "attachedAt", "when it was decided")
	r.AttachedAt, r.ShareWith = "2026-11-30T14:02:11.123456789Z", []Share{{Public, ModeFiles}}
	requireVerdict(t, r.Check(), "shareWith", "nobody")
}

// controlRecord is a control record of kind with a body, decided at second n.
func controlRecord(t testing.TB, kind Kind, n int, c Control) Record {
	t.Helper()
	body, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	r := Record{Kind: kind, SHA256: Digest{1}, TenantID: "acme", AttachedAt: Time(fmt.Sprintf("2026-11-30T14:02:%02d.000000000Z", n)), Body: body}
	r.ID = r.ComputeID()
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return r
}

func until(year int) Time { return Time(fmt.Sprintf("%d-01-01T00:00:00.000000000Z", year)) }

// The same control records give the same state in whatever order, however often
// and over however many archives they arrive.
func TestStateIsEqualWhateverTheOrder(t *testing.T) {
	one, other := RecordID{1}, RecordID{2}
	records := []Record{
		controlRecord(t, KindRetain, 1, Control{RetainUntil: until(2030)}),
		controlRecord(t, KindRetain, 2, Control{RetainUntil: until(2029)}),
		controlRecord(t, KindRetain, 3, Control{RecordID: one, RetainUntil: until(2040)}),
		controlRecord(t, KindRetain, 4, Control{RecordID: other, RetainUntil: until(2028)}),
		controlRecord(t, KindHold, 5, Control{Name: "a", Reason: "first"}),
		controlRecord(t, KindRelease, 6, Control{Name: "a"}),
		controlRecord(t, KindHold, 7, Control{Name: "a", Reason: "again"}),
		controlRecord(t, KindHold, 8, Control{RecordID: one, Name: "a"}),
		controlRecord(t, KindRelease, 9, Control{RecordID: one, Name: "a"}),
		controlRecord(t, KindHold, 10, Control{}),
		controlRecord(t, KindRelease, 10, Control{}), // at one instant: the higher id decides
		controlRecord(t, KindHold, 11, Control{RecordID: other}),
	}
	var first Controls
	for i := range records {
		if err := first.Add(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	state := first.Of(one)
	if err := state.Check(); err != nil {
		t.Error(err)
	}
	if state.RetainUntil != until(2040) || state.AllUntil != until(2030) {
		t.Errorf("retained until %s, all until %s", state.RetainUntil, state.AllUntil)
	}
	if h, ok := state.Hold(RecordID{}, "a"); !ok || h.Released || h.Reason != "again" {
		t.Errorf("the hold of all is %+v", h)
	}
	if h, ok := state.Hold(one, "a"); !ok || !h.Released {
		t.Errorf("the hold of one is %+v", h)
	}
	if _, ok := state.Hold(other, ""); ok {
		t.Error("the hold of another record counts")
	}
	if got := first.Of(other); got.RetainUntil != until(2030) || len(got.Shown().Holds) < 2 {
		t.Errorf("the other record has %+v", got)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		// Every record comes to one of three archives at least, in any order.
		var archives [3]Controls
		for _, i := range rng.Perm(len(records)) {
			for copies := 1 + rng.IntN(3); copies > 0; copies-- {
				if err := archives[rng.IntN(3)].Add(&records[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, id := range []RecordID{one, other, {3}} {
			var merged *Retention
			for _, a := range rng.Perm(3) {
				merged = merged.Merge(archives[a].Of(id)).Merge(archives[a].Of(id))
			}
			if diff := cmp.Diff(first.Of(id), merged); diff != "" {
				t.Fatalf("record %s: (-first +merged)\n%s", id, diff)
			}
		}
	}
}

func TestShownStateHasWhatIsInForce(t *testing.T) {
	hold := Hold{Name: "a", DecidedAt: until(2026), ControlID: RecordID{1}}
	released := Hold{Name: "b", DecidedAt: until(2026), ControlID: RecordID{2}, Released: true}
	for _, tt := range []struct {
		name     string
		in, want *Retention
	}{
		{"nothing", nil, nil},
		{"released", &Retention{Holds: []Hold{released}}, nil},
		{"held", &Retention{Holds: []Hold{hold, released}}, &Retention{Holds: []Hold{hold}}},
		{"retained", &Retention{RetainUntil: until(2030), AllUntil: until(2029)}, &Retention{RetainUntil: until(2030)}},
	} {
		if diff := cmp.Diff(tt.want, tt.in.Shown()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

// An archive that has more holds than can be shown shows those in force, and
// never more than a reader takes.
func TestMoreHoldsThanCanBeShown(t *testing.T) {
	var c Controls
	for i := range 3 * maxHoldsShown {
		r := controlRecord(t, KindHold, 1, Control{Name: fmt.Sprint(i)})
		if i%3 > 0 {
			r = controlRecord(t, KindRelease, 2, Control{Name: fmt.Sprint(i)})
		}
		if err := c.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	state := c.Of(RecordID{})
	if err := state.Check(); err != nil {
		t.Error(err)
	}
	if n := len(state.Shown().Holds); n != maxHoldsShown {
		t.Errorf("%d holds in force are shown", n)
	}
}

func TestRetentionCheck(t *testing.T) {
	good := Hold{Name: "a", DecidedAt: until(2026), ControlID: RecordID{1}}
	with := func(change func(*Hold)) *Retention {
		h := good
		change(&h)
		return &Retention{Holds: []Hold{h}}
	}
	for _, tt := range []struct {
		name       string
		r          *Retention
		field, say string
	}{
		{"nothing", nil, "", ""},
		{"all", &Retention{RetainUntil: until(2030), AllUntil: until(2029), Holds: []Hold{good}}, "", ""},
		{"no instant", &Retention{RetainUntil: "soon"}, "retainUntil", "no instant"},
		{"no instant for all", &Retention{AllUntil: "soon"}, "allUntil", "no instant"},
		{"twice", &Retention{Holds: []Hold{good, good}}, "holds[1]", "order"},
		{"undecided", with(func(h *Hold) { h.DecidedAt = "" }), "holds[0].decidedAt", "no instant"},
		{"nobody's", with(func(h *Hold) { h.ControlID = RecordID{} }), "holds[0].controlId", "missing"},
		{"long name", with(func(h *Hold) { h.Name = strings.Repeat("n", MaxHoldName+1) }), "holds[0].name", "at most"},
		{"long reason", with(func(h *Hold) { h.Reason = strings.Repeat("n", MaxReason+1) }), "holds[0].reason", "at most"},
		{"too many", &Retention{Holds: make([]Hold, maxHoldsShown+1)}, "holds", "at most"},
	} {
		t.Run(tt.name, func(t *testing.T) { requireVerdict(t, tt.r.Check(), tt.field, tt.say) })
	}
}

// Only its own tenant sees how long a record is retained.
func TestRetentionIsItsTenantsAlone(t *testing.T) {
	r := Record{Kind: KindMetadata, TenantID: "acme", Retention: &Retention{RetainUntil: until(2030)}, ShareWith: []Share{{Public, ModeFiles}}}
	if seen, ok := r.For("acme"); !ok || seen.Retention == nil {
		t.Errorf("its tenant sees %+v, %v", seen.Retention, ok)
	}
	if seen, ok := r.For("globex"); !ok || seen.Retention != nil {
		t.Errorf("a grantee sees %+v, %v", seen.Retention, ok)
	}
}

// FuzzControl holds the reader of control bodies to its writer: what is read, and
// only that, is written and read again as the same, and says one thing.
func FuzzControl(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"retainUntil":"2036-11-30T00:00:00.000000000Z"}`, `{"name":"case 17","reason":"x","mode":1}`,
		`{"recordId":"` + strings.Repeat("ab", 32) + `","name":"\u00e9"}`, `{"retainUntil":"9999-12-31T23:59:59.999999999Z"}`, `{"name":null}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, kind := range []Kind{KindRetain, KindHold, KindRelease} {
			c, err := ParseControl(kind, []byte(body))
			if err != nil {
				continue
			}
			again, err := Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := ParseControl(kind, again); err != nil || d != c {
				t.Fatalf("%q reads as %+v, and written anew as %+v, %v", body, c, d, err)
			}
			r := Record{Kind: kind, SHA256: Digest{1}, TenantID: "acme", AttachedAt: until(2026), Body: []byte(body)}
			r.ID = r.ComputeID()
			target, says, err := StatementOf(&r)
			if err != nil || target != c.RecordID || says.Check() != nil {
				t.Fatalf("%q says %+v of %s: %v", body, says, target, err)
			}
			if diff := cmp.Diff(says, says.Merge(says)); diff != "" {
				t.Fatalf("said twice it says more: %s", diff)
			}
		}
	})
}
