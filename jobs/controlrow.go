package jobs

import (
	"context"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// steering is how a target stands: one record, or all of a tenant under a
// digest. The row is written in the commit that decides, so that the next
// decision sees it whatever became of the archives.
type steering struct {
	State  *wire.Retention              `json:"state"`           // of this target alone
	Retain wire.SubmissionID            `json:"retain,omitzero"` // whose record the date is from
	Holds  map[string]wire.SubmissionID `json:"holds,omitempty"` // whose record the newest decision is from, by name
}

func steeringKey(tenant wire.TenantID, digest wire.Digest, target wire.RecordID) []byte {
	return rowKey(rowSteering, tenantTag(tenant), digest[:], target[:])
}

func (t *tx) steering(key []byte) (s steering, err error) {
	row, ok, err := t.get(key)
	if err != nil || !ok {
		return s, err
	}
	return decodeRow[steering](key, row)
}

// decision is what became of a request that steers.
type decision struct {
	made    ref             // the submission whose control record stands
	changed bool            // that record is of this request
	state   *wire.Retention // of the target, from now on
}

// decide is step 2 of Steer.
func (e *Engine) decide(ctx context.Context, q Steering, known *wire.Retention) (d decision, err error) {
	var made *submission
	err = e.store.update(ctx, func(t *tx) error {
		var err error
		d, made, err = e.decideIn(t, q, known)
		return err
	})
	if err == nil && made != nil {
		e.steered.Store(true)
		e.track(made)
	}
	return d, err
}

// decideIn decides in a commit. It returns the new submission, or nil if nothing
// has to change.
func (e *Engine) decideIn(t *tx, q Steering, known *wire.Retention) (d decision, made *submission, err error) {
	target := q.Control.RecordID
	key := steeringKey(q.TenantID, q.SHA256, target)
	all, err := t.steering(steeringKey(q.TenantID, q.SHA256, wire.RecordID{}))
	if err != nil {
		return d, nil, err
	}
	own := all
	if !target.IsZero() {
		if own, err = t.steering(key); err != nil {
			return d, nil, err
		}
	}
	here := all.State.Merge(own.State)
	stands := here.Merge(known)
	d.state = stands
	by, err := q.judge(all, own, here, stands)
	if err != nil || by != "" {
		d.made = ref{q.TenantID, by}
		return d, nil, err
	}
	if err := e.Room(); err != nil {
		return d, nil, err
	}
	made, says, put, err := e.controlOf(q, stands)
	if err != nil {
		return d, nil, err
	}
	own.note(q, made.ID, says)
	row, err := encodeRow(own)
	if err != nil {
		return d, nil, err
	}
	t.set(key, row)
	d.made, d.changed, d.state = made.ref(), true, stands.Merge(says)
	return d, made, t.writeControl(made, put)
}

// judge returns the submission whose record says already what is asked for, none
// if it has to be said now, or why it may not be. What only archives know is said
// again: this store, which puts it on every archive, has lost it.
func (q *Steering) judge(all, own steering, here, stands *wire.Retention) (by wire.SubmissionID, err error) {
	c := &q.Control
	if q.Kind == wire.KindRetain {
		switch {
		case stands.Until() != "" && stands.Until().Compare(c.RetainUntil) > 0:
			return "", fault.New(fault.Conflict, codeShorter,
				"retainUntil: it is retained until %s, and that is never shortened: give that instant or a later one", stands.Until()).InField("retainUntil")
		case all.State.Until() == c.RetainUntil:
			return all.Retain, nil
		case here.Until() == c.RetainUntil:
			return own.Retain, nil
		}
		return "", nil
	}
	last, decided := stands.Hold(c.RecordID, c.Name)
	mine, _ := here.Hold(c.RecordID, c.Name)
	switch held := decided && !last.Released; {
	case q.Kind == wire.KindRelease && !held:
		return "", fault.New(fault.NotFound, codeNoHold, "name: there is no hold %q on it to release; a hold on one record is released with its recordId, one on all without", c.Name).InField("name")
	case q.Kind == wire.KindHold && held && mine.ControlID == last.ControlID:
		return own.Holds[c.Name], nil
	case !decided && namesOf(stands, c.RecordID) >= wire.MaxHolds:
		return "", fault.New(fault.Conflict, codeTooManyHolds, "name: there were holds of %d names on it, and more are not kept apart: use one of those again", wire.MaxHolds).InField("name")
	}
	return "", nil
}

// namesOf counts the names of holds that were ever on a target.
func namesOf(r *wire.Retention, target wire.RecordID) (n int) {
	if r != nil {
		for _, h := range r.Holds {
			if h.RecordID == target {
				n++
			}
		}
	}
	return n
}

// note enters what a new record says.
func (s *steering) note(q Steering, by wire.SubmissionID, says *wire.Retention) {
	s.State = s.State.Merge(says)
	if q.Kind == wire.KindRetain {
		s.Retain = by
		return
	}
	if s.Holds == nil {
		s.Holds = map[string]wire.SubmissionID{}
	}
	s.Holds[q.Control.Name] = by
}

// controlOf makes the control record of a request, its submission, what it says
// and the bytes of its put. It is decided after all that it overrules, also if
// the clock was set back.
func (e *Engine) controlOf(q Steering, stands *wire.Retention) (s *submission, says *wire.Retention, put []byte, err error) {
	at := e.cfg.Now()
	if last, ok := stands.Hold(q.Control.RecordID, q.Control.Name); ok && q.Kind != wire.KindRetain {
		if before, ok := last.DecidedAt.Instant(); ok && !at.After(before) {
			at = before.Add(time.Nanosecond)
		}
	}
	s = &submission{
		ID: wire.NewSubmissionID(), Tenant: q.TenantID, Digest: q.SHA256, Placement: q.SHA256, AttachedAt: wire.At(at),
		Control: q.Kind, UploadsDone: true, Status: wire.StatusPending,
	}
	body, err := wire.Encode(q.Control)
	if err != nil {
		return nil, nil, nil, err
	}
	r := wire.Record{
		Kind: q.Kind, SHA256: q.SHA256, TenantID: q.TenantID, SubmissionID: s.ID, AttachedAt: s.AttachedAt, ContentType: "application/json", Body: body,
	}
	r.ID = r.ComputeID()
	if _, says, err = wire.StatementOf(&r); err != nil {
		return nil, nil, nil, err
	}
	s.Parts = []part{{Kind: r.Kind, RecordID: r.ID, Size: int64(len(body)), SHA256: r.Portable().BodySHA256()}}
	put, err = wire.Encode(wire.Put{PutID: wire.NewPutID(), Record: r.Portable()})
	return s, says, put, err
}

// writeControl puts a new submission of a control record into the store.
func (t *tx) writeControl(s *submission, put []byte) error {
	id := s.ref().key()
	t.set(rowKey(rowOutbox, id, ordinal(0)), frameRow(put))
	t.set(rowKey(rowPending, id), nil)
	t.set(rowKey(rowControl, id), nil)
	return t.putSubmission(s)
}
