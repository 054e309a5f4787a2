package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Door is the entrance for middleware that speaks JSON over a message bus: the
// same requests and answers as over HTTP, with the tenant in the body. Whoever
// may send is trusted with every tenant; the bus's permissions decide who may.
type Door struct {
	Engine   *Engine
	Limits   splitter.Limits
	Uploader splitter.Uploader
	MaxWait  time.Duration // upper bound of a request's wait; 0 means 25 s
}

// defaultMaxWait is the bound of a request's wait, as at the HTTP edge.
const defaultMaxWait = 25 * time.Second

// Submit takes a submission and returns the Accepted answer, or with `wait`
// (whole seconds) the job if it ends in time. Once the submission is taken no
// answer is an error, whatever keeps its job from being shown.
func (d Door) Submit(ctx context.Context, body []byte) ([]byte, error) {
	id := wire.NewSubmissionID()
	req, err := splitter.ReadJSON(ctx, bytes.NewReader(body), splitter.Config{
		Limits: d.Limits, Uploader: d.Uploader, SubmissionID: id, WantTenant: true,
	})
	if err != nil {
		return nil, err
	}
	caller := Caller{TenantID: req.TenantID, SubmissionID: id, IdempotencyKey: req.IdempotencyKey}
	accepted, err := d.Engine.Accept(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	if wait := min(req.Wait, d.maxWait()); wait > 0 {
		job, err := d.await(ctx, req, accepted, wait)
		if err == nil {
			return wire.Encode(job)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			d.Engine.cfg.Log.WarnContext(ctx, "a job can not be shown now", "submission", accepted.SubmissionID, "err", err)
		}
	}
	return wire.Encode(accepted)
}

func (d Door) maxWait() time.Duration {
	if d.MaxWait > 0 {
		return d.MaxWait
	}
	return defaultMaxWait
}

// await waits for the job of an accepted request.
func (d Door) await(ctx context.Context, req *splitter.Request, a wire.Accepted, wait time.Duration) (wire.Job, error) {
	waiting, stop := context.WithTimeout(ctx, wait)
	defer stop()
	ended, err := d.Engine.Wait(waiting, req.TenantID, a.SubmissionID)
	if err != nil {
		return wire.Job{}, err
	}
	return d.Engine.Job(ctx, req.TenantID, a.JobID, View{SubmissionID: a.SubmissionID, IncludeAttached: &req.IncludeAttached, Ended: ended})
}

// lookup is the body of a lookup: a digest, or a job.
type lookup struct {
	TenantID        wire.TenantID     `json:"tenantId"`
	SHA256          wire.Digest       `json:"sha256"`
	JobID           wire.JobID        `json:"jobId"`
	SubmissionID    wire.SubmissionID `json:"submissionId"`
	IncludeAttached *bool             `json:"includeAttached"`
	Kinds           []wire.Kind       `json:"kinds"`
}

// Lookup returns the receipts of a digest (includeAttached is true unless
// given), or a job.
func (d Door) Lookup(ctx context.Context, body []byte) ([]byte, error) {
	q, err := wire.Decode[lookup](body)
	if err != nil {
		return nil, badField(err)
	}
	if q.TenantID, err = wire.ParseTenantID(string(q.TenantID)); err != nil {
		return nil, badField(fmt.Errorf("tenantId: %w", err))
	}
	if err := checkKinds(q.Kinds); err != nil {
		return nil, err
	}
	var job wire.Job
	switch {
	case q.SHA256.IsZero() == (q.JobID == ""):
		return nil, fault.New(fault.Invalid, "LOOKUP_SUBJECT", "sha256: give either sha256 or jobId").InField("sha256")
	case q.JobID != "":
		job, err = d.Engine.Job(ctx, q.TenantID, q.JobID, View{SubmissionID: q.SubmissionID, IncludeAttached: q.IncludeAttached})
	default:
		job, err = d.Engine.Receipts(ctx, q.TenantID, q.SHA256, q.IncludeAttached == nil || *q.IncludeAttached, q.Kinds)
	}
	if err != nil {
		return nil, err
	}
	return wire.Encode(job)
}

// checkKinds refuses kinds that no record can have, and more of them than a
// query takes.
func checkKinds(kinds []wire.Kind) error {
	if len(kinds) > wire.MaxKinds {
		return badField(&wire.Error{Field: "kinds", Offset: -1, Msg: fmt.Sprintf("%d are named; a query takes %d", len(kinds), wire.MaxKinds)})
	}
	for _, k := range kinds {
		if _, err := wire.ParseKind(string(k)); err != nil {
			return badField(fmt.Errorf("kinds: %w", err))
		}
	}
	return nil
}

// badField is the refusal of a field that does not parse.
func badField(err error) error {
	refusal := fault.New(fault.Invalid, "BAD_FIELD", "%w", err)
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return refusal.InField(e.Field)
	}
	return refusal
}
