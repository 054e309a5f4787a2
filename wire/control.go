package wire

// Limits of control records. An input beyond one is refused with a message that
// names it.
const (
	MaxHoldName = 64  // bytes
	MaxReason   = 256 // bytes
	MaxHolds    = 16  // names of holds on one target, those that were released included

	// maxHoldsShown bounds the holds in one Retention: those on the record and
	// those on its whole digest, of as many as two aggregators.
	maxHoldsShown = 4 * MaxHolds
)

// Control is the body of a control record of retention: of kind retain, hold or
// release. The record's subject is the digest that it is about, its tenant the
// one whose records it steers, its attachedAt the instant of the decision.
type Control struct {
	// RecordID is the one record that is meant; zero: every record of the tenant
	// with this subject, also those that come later.
	RecordID RecordID `json:"recordId,omitzero"`
	// RetainUntil is what a retain record is for, in the form that At writes.
	RetainUntil Time `json:"retainUntil,omitzero"`
	// Name tells several holds on one target apart; the unnamed one is one of them.
	Name   string `json:"name,omitzero"`
	Reason string `json:"reason,omitzero"`
}

// Steers reports whether k is the kind of a record whose body is a Control.
func (k Kind) Steers() bool { return k == KindRetain || k == KindHold || k == KindRelease }

// ParseControl reads the body of a control record of a kind that steers,
// strictly as Decode does, and checks it.
func ParseControl(kind Kind, body []byte) (Control, error) {
	c, err := Decode[Control](body)
	if err != nil {
		return Control{}, err
	}
	if err := c.check(kind); err != nil {
		return Control{}, err
	}
	return c, nil
}

// Check reports the first rule that c breaks as the body of a record of a kind
// that steers, as an *Error.
func (c Control) Check(kind Kind) error {
	if err := c.check(kind); err != nil {
		return err
	}
	return nil
}

func (c *Control) check(kind Kind) *Error {
	if kind == KindRetain {
		switch at, ok := c.RetainUntil.Instant(); {
		case c.RetainUntil == "":
			return refuse("retainUntil", "missing; give the instant until which is retained")
		case !ok || At(at) != c.RetainUntil:
			return refuse("retainUntil", "%s; write the instant as RFC 3339 in UTC with nine digits and Z", show(string(c.RetainUntil)))
		case c.Name != "":
			return refuse("name", "only a hold has one")
		}
	} else if c.RetainUntil != "" {
		return refuse("retainUntil", "only a record of kind %q has one", KindRetain)
	}
	if err := checkText(c.Name, MaxHoldName); err != nil {
		return err.in("name")
	}
	if err := checkText(c.Reason, MaxReason); err != nil {
		return err.in("reason")
	}
	return nil
}

// checkControl checks the body of a record of a kind that steers, and that it
// says when it was decided: holds and releases are told apart by that.
func (r *PutRecord) checkControl() *Error {
	if _, ok := r.AttachedAt.Instant(); !ok {
		return refuse("attachedAt", "missing or no instant; a record of kind %q says when it was decided", r.Kind)
	}
	if len(r.ShareWith) > 0 {
		return refuse("shareWith", "a record of kind %q is shared with nobody", r.Kind)
	}
	_, err := ParseControl(r.Kind, r.Body)
	switch e, ok := err.(*Error); {
	case err == nil:
		return nil
	case ok:
		return e.in("body")
	}
	return refuse("body", "%v", err)
}
