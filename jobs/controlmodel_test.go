package jobs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// lockModel is what the laws say of how the document stands.
type lockModel struct {
	until map[wire.RecordID]int // years from now, by target
	held  map[wire.RecordID]map[string]bool
	made  int // decisions that changed something
}

// stands is the date of a target.
func (m *lockModel) stands(target wire.RecordID) int {
	return max(m.until[wire.RecordID{}], m.until[target])
}

// names are the names of the holds on a target, and on all.
func (m *lockModel) names(target wire.RecordID) []string {
	list := []string{}
	for _, of := range slices.Compact([]wire.RecordID{{}, target}) {
		for name, on := range m.held[of] {
			if on {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return list
}

// decide is the outcome that a request must have.
func (m *lockModel) decide(q Steering, years int) (changed bool, code string) {
	target, name := q.Control.RecordID, q.Control.Name
	if m.held[target] == nil {
		m.held[target] = map[string]bool{}
	}
	switch {
	case q.Kind == wire.KindRetain && years < m.stands(target):
		return false, codeShorter
	case q.Kind == wire.KindRetain:
		changed = years > m.stands(target)
		m.until[target] = max(years, m.until[target])
	case q.Kind == wire.KindRelease && !m.held[target][name]:
		return false, codeNoHold
	default:
		hold := q.Kind == wire.KindHold
		changed = m.held[target][name] != hold
		m.held[target][name] = hold
	}
	if changed {
		m.made++
	}
	return changed, ""
}

// Requests, archives that come and go, are enrolled and retired, restarts and
// power losses in any order: what is answered and shown is what the laws say, and
// at the end every archive has every decision.
func TestDecisionsAreThoseOfTheModel(t *testing.T) {
	for seed := range need.Rounds(5, 60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { followModel(t, rand.New(rand.NewPCG(uint64(seed), 7)), need.Rounds(40, 100)) })
	}
}

func followModel(t *testing.T, rng *rand.Rand, steps int) {
	w := newWorld(t, 3, func(c *Config) {
		c.PutWait = 50 * time.Millisecond
		c.Gatherer.(*receipts.Gatherer).Wait = 5 * time.Millisecond // the archives of the test answer at once, or not at all
	})
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1"), `"privateMetadata":{"secret":1}`))
	w.settled()
	targets := []wire.RecordID{{}, a.Parts[0].RecordID, a.Parts[1].RecordID}
	m := &lockModel{until: map[wire.RecordID]int{}, held: map[wire.RecordID]map[string]bool{}}
	for range steps {
		switch n := rng.IntN(20); {
		case n < 14:
			m.request(w, rng, targets)
		case n < 17: // one archive goes, or comes back
			ids := w.archives.Enrolled()
			w.archives.set(ids[rng.IntN(len(ids))], func(n *node) { n.up = !n.up })
			w.engine.Nudge()
		case n == 17: // one more
			if len(w.archives.Enrolled()) < 6 {
				w.settle()
				w.archives.enrol(wire.ArchiveID(fmt.Sprintf("archive-%d", rng.IntN(1_000_000))))
				w.engine.Nudge()
			}
		case n == 18: // an orderly restart
			w.restart(nil)
		default: // power is lost
			w.restart(new(100 * rng.IntN(2)))
		}
		m.compare(w, targets)
	}
	w.settle()
	if got := len(w.controls()); got != m.made {
		t.Errorf("%d control records for %d decisions", got, m.made)
	}
	w.everywhere(m.made)
	m.compare(w, targets)
}

// request makes a request and holds its outcome against the model.
func (m *lockModel) request(w *world, rng *rand.Rand, targets []wire.RecordID) {
	w.t.Helper()
	c := wire.Control{RecordID: targets[rng.IntN(len(targets))]}
	kind := []wire.Kind{wire.KindRetain, wire.KindHold, wire.KindRelease}[rng.IntN(3)]
	years := 1 + rng.IntN(8)
	if kind == wire.KindRetain {
		c.RetainUntil = in(years)
	} else {
		c.Name = []string{"", "case 17"}[rng.IntN(2)]
	}
	q := about(kind, c)
	changed, code := m.decide(q, years)
	out, err := w.engine.Steer(w.t.Context(), q)
	if fault.CodeOf(err) != code || err == nil && out.Changed != changed {
		w.t.Errorf("%s %+v: changed %v, %v; want %v, %q", kind, c, out.Changed, err, changed, code)
	}
}

// compare holds what is shown against the model.
func (m *lockModel) compare(w *world, targets []wire.RecordID) {
	w.t.Helper()
	got := w.state()
	at := func(target wire.RecordID) (t wire.Time) {
		if years := m.stands(target); years > 0 {
			t = in(years)
		}
		return t
	}
	if got.RetainUntil != at(targets[0]) || !cmp.Equal(names(got.Holds), m.names(targets[0])) {
		w.t.Errorf("all are %+v, want %s, %q", got, at(targets[0]), m.names(targets[0]))
	}
	for _, r := range got.Records {
		if r.RetainUntil != at(r.RecordID) || !cmp.Equal(names(r.Holds), m.names(r.RecordID)) {
			w.t.Errorf("record %s is %+v, want %s, %q", r.RecordID, r, at(r.RecordID), m.names(r.RecordID))
		}
	}
}

// settle brings all archives back and waits until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	w.archives.all(func(n *node) { n.up = true })
	w.engine.Nudge()
	w.left(0)
}

// restart opens the engine anew, after a power loss if unsynced is given.
func (w *world) restart(unsynced *int) {
	w.t.Helper()
	after := w.fs
	if unsynced != nil {
		after = w.crash(*unsynced)
	}
	w.archives.deliver(nil)
	if err := w.engine.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.fs = after
	w.open(nil)
}
