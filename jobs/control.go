package jobs

import (
	"context"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// Codes of requests that retain, hold or release.
const (
	codeNoRecords       = "NO_RECORDS"
	codeShorter         = "RETENTION_SHORTER"
	codeRetentionPast   = "RETENTION_PAST"
	codeRetentionBeyond = "RETENTION_TOO_LONG"
	codeNoHold          = "NO_HOLD"
	codeTooManyHolds    = "TOO_MANY_HOLDS"
)

// maxRetentionYears is how far ahead a record can be retained. It keeps a slip of
// the pen, which nobody could take back, from lasting for ever.
const maxRetentionYears = 100

// Steering is a request to retain, hold or release what a tenant has under a
// digest.
type Steering struct {
	TenantID wire.TenantID
	Kind     wire.Kind // wire.KindRetain, KindHold or KindRelease
	SHA256   wire.Digest
	Control  wire.Control
}

// Steer retains, holds or releases. Its steps:
//
//	(1) the archives are asked what the tenant has there, and how it stands
//	(2) one commit decides, and makes the control record durable
//	(3) the record is put at every enrolled archive, from that copy alone
//
// The decision looks at what the archives said and at every decision before it,
// so that no interleaving of requests shortens anything: a date before the one
// that stands is Conflict RETENTION_SHORTER, the same date and a hold that is
// there already change nothing, the release of what is not held is NotFound
// NO_HOLD. Nothing under the digest is NotFound NO_RECORDS, and looks like what
// is another tenant's. Only the refusal of dates that have passed looks at this
// machine's clock.
//
// From step 2 on the decision stands and reaches every archive, also those that
// are away or enrolled later; the answer says how many have it by now.
func (e *Engine) Steer(ctx context.Context, q Steering) (wire.Steered, error) {
	if err := e.checkSteering(q); err != nil {
		return wire.Steered{}, err
	}
	_, known, err := e.stateKnown(ctx, q) // (1)
	if err != nil {
		return wire.Steered{}, err
	}
	if err := e.at("control.read"); err != nil {
		return wire.Steered{}, err
	}
	d, err := e.decide(ctx, q, known) // (2)
	if err != nil {
		return wire.Steered{}, err
	}
	if err := e.at("control.stored"); err != nil {
		return wire.Steered{}, err
	}
	if !d.changed {
		e.kick(d.made) // it may wait for an archive
	}
	s, err := e.awaitStored(ctx, d.made) // (3)
	if err != nil {
		return wire.Steered{}, err
	}
	if err := e.at("control.answer"); err != nil {
		return wire.Steered{}, err
	}
	out := wire.Steered{
		Kind: q.Kind, SHA256: q.SHA256, RecordID: q.Control.RecordID, ControlID: s.Parts[0].RecordID, DecidedAt: s.AttachedAt,
		Changed: d.changed, Status: wire.StatusCompleted, Retention: d.state.Shown(),
	}
	for _, id := range e.cfg.Archives.Enrolled() {
		out.Archives++
		if s.has(id) {
			out.Copies++
		}
	}
	if !s.Stored {
		out.Status = wire.StatusPending
	}
	return out, nil
}

// checkSteering refuses what needs no look at what stands. A date is brought to
// one form by whoever read it.
func (e *Engine) checkSteering(q Steering) error {
	switch {
	case !q.Kind.Steers():
		return fault.New(fault.Internal, "", "jobs: %q steers nothing", q.Kind)
	case q.SHA256.IsZero():
		return fault.New(fault.Invalid, "BAD_FIELD", "sha256: the digest of nothing: give the one that the records are about").InField("sha256")
	}
	if err := q.Control.Check(q.Kind); err != nil {
		return badField(err)
	}
	if q.Kind != wire.KindRetain {
		return nil
	}
	until, _ := q.Control.RetainUntil.Instant()
	switch now := e.cfg.Now(); {
	case !until.After(now):
		return fault.New(fault.Invalid, codeRetentionPast, "retainUntil: %s has passed: give an instant in the future", q.Control.RetainUntil).InField("retainUntil")
	case until.After(now.AddDate(maxRetentionYears, 0, 0)):
		return fault.New(fault.Invalid, codeRetentionBeyond,
			"retainUntil: %s is more than %d years ahead, and could never be shortened: give an earlier instant, and extend it later", q.Control.RetainUntil, maxRetentionYears).InField("retainUntil")
	}
	return nil
}

// stateKnown is step 1 of Steer: what the archives have there, and what they and
// this aggregator know of the target. It is an error if the tenant has nothing.
func (e *Engine) stateKnown(ctx context.Context, q Steering) (found receipts.Gathered, known *wire.Retention, err error) {
	key := q.SHA256
	if !q.Control.RecordID.IsZero() {
		key = wire.Digest(q.Control.RecordID) // there may be thousands of others under the subject
	}
	if found, err = e.gather(ctx, key, q.TenantID, nil); err != nil {
		return found, nil, err
	}
	there := false
	for i := range found.Records {
		r := &found.Records[i].Record
		switch {
		case !q.means(r):
			continue
		case q.Control.RecordID.IsZero():
			known = known.Merge(r.Retention.OfAll())
		default:
			known = known.Merge(r.Retention)
		}
		there = true
	}
	if !there {
		if there, err = e.hasParts(q); err != nil || !there {
			return found, nil, cmpErr(err, nothing(q, found))
		}
	}
	return found, known, nil
}

// means reports whether a record is one that the request is about.
func (q *Steering) means(r *wire.Record) bool {
	return r.TenantID == q.TenantID && r.SHA256 == q.SHA256 && (q.Control.RecordID.IsZero() || r.ID == q.Control.RecordID)
}

// nothing is the answer to a request about what is not there. It is sure of that
// only when every enrolled archive was heard.
func nothing(q Steering, found receipts.Gathered) error {
	switch {
	case doubtful(found):
		return unheard(found)
	case !q.Control.RecordID.IsZero():
		return fault.New(fault.NotFound, codeNoRecords, "recordId: this key's tenant has no record %s about %s", q.Control.RecordID, q.SHA256)
	}
	return fault.New(fault.NotFound, codeNoRecords, "sha256: this key's tenant has no record about %s; "+
		"a file that is attached to another digest is found under that one, by its recordId", q.SHA256)
}

// Retentions returns how all that a tenant has under a digest stands, by what the
// archives and this aggregator know; NotFound NO_RECORDS if he has nothing there.
func (e *Engine) Retentions(ctx context.Context, tenant wire.TenantID, digest wire.Digest) (wire.Retentions, error) {
	q := Steering{TenantID: tenant, SHA256: digest}
	found, known, err := e.stateKnown(ctx, q)
	if err != nil {
		return wire.Retentions{}, err
	}
	here, err := e.standing(tenant, digest)
	if err != nil {
		return wire.Retentions{}, err
	}
	all := known.Merge(here[wire.RecordID{}]).Shown()
	out := wire.Retentions{
		SHA256: digest, Holds: []wire.Hold{}, Records: []wire.RecordRetention{},
		ArchivesMissing: append([]wire.ArchiveID{}, found.Missing...), Complete: found.Complete,
	}
	if all != nil {
		out.RetainUntil, out.Holds = all.RetainUntil, append(out.Holds, all.Holds...)
	}
	for i := range found.Records {
		if r := &found.Records[i].Record; q.means(r) {
			out.Records = append(out.Records, recordRetention(r))
		}
	}
	return out, nil
}

// RecordRetention returns how one record of the tenant stands. What is not there
// and what is not his look the same: NotFound.
func (e *Engine) RecordRetention(ctx context.Context, tenant wire.TenantID, id wire.RecordID) (wire.RecordRetention, error) {
	missing := fault.New(fault.NotFound, "RECORD_NOT_FOUND", "id: there is no such record for this key's tenant")
	held, _, err := e.one(ctx, tenant, wire.Digest(id), missing, func(r *wire.Record) bool { return r.ID == id && r.TenantID == tenant })
	if err != nil {
		return wire.RecordRetention{}, err
	}
	return recordRetention(&held.Record), nil
}

func recordRetention(r *wire.Record) wire.RecordRetention {
	out := wire.RecordRetention{RecordID: r.ID, SHA256: r.SHA256, Kind: r.Kind, Holds: []wire.Hold{}}
	if state := r.Retention.Shown(); state != nil {
		out.RetainUntil, out.Holds = state.RetainUntil, append(out.Holds, state.Holds...)
	}
	return out
}
