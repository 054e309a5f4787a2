package wire

import (
	"bytes"
	"cmp"
	"slices"
)

// Retention is what control records say of one record, or of all records of a
// tenant under one digest. Nothing of it is covered by a record's id. A nil
// Retention says nothing; its methods may be called. Values are not changed once
// they are made.
type Retention struct {
	// RetainUntil is the latest date of all retain records that are about it. It
	// only ever grows.
	RetainUntil Time `json:"retainUntil,omitzero"`
	// AllUntil is the latest of those that are about every record under the
	// digest; never shown to a tenant.
	AllUntil Time `json:"allUntil,omitzero"`
	// Holds are the newest decisions, one a target and name, in the order of their
	// names. Those that were released are among them until the state is shown:
	// they are what overrules an archive that did not hear of the release.
	Holds []Hold `json:"holds,omitempty"`
}

// Hold is the newest decision on one hold. Later is the later attachedAt, and at
// one instant the higher id of the control record.
type Hold struct {
	Name      string   `json:"name"`
	RecordID  RecordID `json:"recordId,omitzero"` // the one record that it is on; zero: all under the digest
	Reason    string   `json:"reason,omitzero"`
	DecidedAt Time     `json:"decidedAt"`
	ControlID RecordID `json:"controlId"` // of the control record
	Released  bool     `json:"released,omitzero"`
}

// StatementOf returns what one control record says of its target. It fails for
// records of other kinds, and as ParseControl does.
func StatementOf(r *Record) (target RecordID, says *Retention, err error) {
	if !r.Kind.Steers() {
		return target, nil, refuse("kind", "%q steers nothing", r.Kind)
	}
	c, err := ParseControl(r.Kind, r.Body)
	if err != nil {
		return target, nil, err
	}
	if r.Kind == KindRetain {
		says = &Retention{RetainUntil: c.RetainUntil}
		if c.RecordID.IsZero() {
			says.AllUntil = c.RetainUntil
		}
		return c.RecordID, says, nil
	}
	return c.RecordID, &Retention{Holds: []Hold{{
		Name: c.Name, RecordID: c.RecordID, Reason: c.Reason, DecidedAt: r.AttachedAt, ControlID: r.ID, Released: r.Kind == KindRelease,
	}}}, nil
}

// Merge returns what r and o say together. It is commutative, associative and
// idempotent: in whatever order, and how often, statements arrive, the same ones
// give the same state.
func (r *Retention) Merge(o *Retention) *Retention {
	switch {
	case r == nil:
		return o
	case o == nil:
		return r
	}
	return &Retention{
		RetainUntil: later(r.RetainUntil, o.RetainUntil), AllUntil: later(r.AllUntil, o.AllUntil), Holds: mergeHolds(r.Holds, o.Holds),
	}
}

// mergeHolds merges two lists in order; of one hold the newer decision stays.
func mergeHolds(a, b []Hold) []Hold {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...)
	}
	out := make([]Hold, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].compare(&b[0]); {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			newer := a[0]
			if b[0].After(&a[0]) {
				newer = b[0]
			}
			out, a, b = append(out, newer), a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// compare orders holds by what they are, not by when they were decided.
func (h *Hold) compare(o *Hold) int {
	return cmp.Or(cmp.Compare(h.Name, o.Name), bytes.Compare(h.RecordID[:], o.RecordID[:]))
}

// After reports whether h was decided after o.
func (h *Hold) After(o *Hold) bool {
	return cmp.Or(h.DecidedAt.Compare(o.DecidedAt), bytes.Compare(h.ControlID[:], o.ControlID[:])) > 0
}

// later returns the later of two times; absent is before all.
func later(a, b Time) Time {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	if c := a.Compare(b); c > 0 || c == 0 && a < b {
		return a
	}
	return b
}

// Until returns the date until which r retains; empty: none.
func (r *Retention) Until() Time {
	if r == nil {
		return ""
	}
	return r.RetainUntil
}

// Hold returns the newest decision on the hold with this target and name.
func (r *Retention) Hold(target RecordID, name string) (Hold, bool) {
	if r == nil {
		return Hold{}, false
	}
	for _, h := range r.Holds {
		if h.Name == name && h.RecordID == target {
			return h, true
		}
	}
	return Hold{}, false
}

// OfAll returns what of r is said of every record under the digest.
func (r *Retention) OfAll() *Retention {
	if r == nil {
		return nil
	}
	out := &Retention{RetainUntil: r.AllUntil, AllUntil: r.AllUntil}
	for _, h := range r.Holds {
		if h.RecordID.IsZero() {
			out.Holds = append(out.Holds, h)
		}
	}
	return out
}

// Shown returns the state as its tenant sees it: the date, and the holds that
// are in force. It is nil if there is neither.
func (r *Retention) Shown() *Retention {
	if r == nil {
		return nil
	}
	out := &Retention{RetainUntil: r.RetainUntil}
	for _, h := range r.Holds {
		if !h.Released {
			out.Holds = append(out.Holds, h)
		}
	}
	if out.RetainUntil == "" && len(out.Holds) == 0 {
		return nil
	}
	return out
}

// Check reports the first rule that r breaks, as an *Error: dates that are
// instants, and holds in order, each once.
func (r *Retention) Check() error {
	if err := r.check(); err != nil {
		return err
	}
	return nil
}

func (r *Retention) check() *Error {
	if r == nil {
		return nil
	}
	for _, t := range []struct {
		field string
		at    Time
	}{{"retainUntil", r.RetainUntil}, {"allUntil", r.AllUntil}} {
		if _, ok := t.at.Instant(); t.at != "" && (!ok || len(t.at) > MaxTimeText) {
			return refuse(t.field, "%s is no instant", show(string(t.at)))
		}
	}
	if len(r.Holds) > maxHoldsShown {
		return refuse("holds", "%d holds; at most %d are shown", len(r.Holds), maxHoldsShown)
	}
	for i := range r.Holds {
		if i > 0 && r.Holds[i-1].compare(&r.Holds[i]) >= 0 {
			return refuse("", "stands out of order").in(index(i)).in("holds")
		}
		if err := r.Holds[i].check(); err != nil {
			return err.in(index(i)).in("holds")
		}
	}
	return nil
}

func (h *Hold) check() *Error {
	if err := checkText(h.Name, MaxHoldName); err != nil {
		return err.in("name")
	}
	if err := checkText(h.Reason, MaxReason); err != nil {
		return err.in("reason")
	}
	if _, ok := h.DecidedAt.Instant(); !ok || len(h.DecidedAt) > MaxTimeText {
		return refuse("decidedAt", "%s is no instant", show(string(h.DecidedAt)))
	}
	if h.ControlID.IsZero() {
		return refuse("controlId", "missing")
	}
	return nil
}

// Controls collects what the control records of one tenant under one digest say.
// The zero value is ready. It is for one goroutine.
type Controls struct {
	all *Retention
	one map[RecordID]*Retention
}

// Add adds a control record; its error is that of StatementOf.
func (c *Controls) Add(r *Record) error {
	target, says, err := StatementOf(r)
	switch {
	case err != nil:
		return err
	case target.IsZero():
		c.all = c.all.Merge(says)
		return nil
	case c.one == nil:
		c.one = map[RecordID]*Retention{}
	}
	c.one[target] = c.one[target].Merge(says)
	return nil
}

// Of returns the state of the record with id; nil: nothing is said of it. Of
// more holds than can be shown those that are in force come first.
func (c *Controls) Of(id RecordID) *Retention {
	state := c.all.Merge(c.one[id])
	if state == nil || len(state.Holds) <= maxHoldsShown {
		return state
	}
	holds := slices.Clone(state.Holds)
	slices.SortStableFunc(holds, func(a, b Hold) int {
		switch {
		case a.Released == b.Released:
			return 0
		case b.Released:
			return -1
		}
		return 1
	})
	holds = holds[:maxHoldsShown]
	slices.SortFunc(holds, func(a, b Hold) int { return a.compare(&b) })
	return &Retention{RetainUntil: state.RetainUntil, AllUntil: state.AllUntil, Holds: holds}
}
