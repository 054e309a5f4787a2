package jobs

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// View says which job a caller wants to see, and how.
type View struct {
	SubmissionID    wire.SubmissionID // empty: the caller's newest submission of the digest
	IncludeAttached *bool             // nil: as the submission asked
	Ended           Ended             // of a Wait that has just returned: spares asking the archives again
}

// Ended is how a submission ended, for those who waited for it. The zero value
// knows nothing.
type Ended struct {
	id    ref
	found *receipts.Gathered // what the archives said, for id's tenant; nil: not known
}

// Wait returns without error once the submission has ended, and the error of
// ctx if that passes first. It can not miss the end: it subscribes before it
// looks. Who waits from before the archives are asked for the submission has
// their answer in Ended, which is as new as his request.
func (e *Engine) Wait(ctx context.Context, tenant wire.TenantID, id wire.SubmissionID) (Ended, error) {
	r := ref{tenant, id}
	waiter, stop := e.hub.subscribe(r)
	defer stop()
	for {
		s, err := e.current(r)
		if err != nil {
			return Ended{}, err
		}
		if s.ended() {
			return Ended{r, e.hub.handed(waiter)}, nil
		}
		select {
		case <-waiter.changed:
		case <-ctx.Done():
			return Ended{}, ctx.Err()
		case <-e.ctx.Done():
			return Ended{}, errClosed
		}
	}
}

// Job returns a job as one tenant may see it. A job id that was ever given out
// resolves. Where the tenant has no submission of the digest, he sees the seal
// and what is shared with him. What does not exist and what is not his look
// the same: NotFound.
func (e *Engine) Job(ctx context.Context, tenant wire.TenantID, id wire.JobID, v View) (wire.Job, error) {
	digest, err := e.resolve(id)
	if err != nil {
		return wire.Job{}, err
	}
	s, err := e.find(tenant, digest, v.SubmissionID)
	if err != nil {
		return wire.Job{}, err
	}
	if s == nil {
		return e.foreign(ctx, tenant, digest, id, v.IncludeAttached != nil && *v.IncludeAttached)
	}
	if s.Status != wire.StatusCompleted {
		job := e.unfinished(s)
		return job, e.addSeal(ctx, s, &job)
	}
	include := s.IncludeAttached
	if v.IncludeAttached != nil {
		include = *v.IncludeAttached
	}
	found, err := e.foundFor(ctx, s, include, v.Ended)
	if err != nil {
		return wire.Job{}, err
	}
	seal, err := e.seal(ctx, digest)
	if err != nil {
		return wire.Job{}, err
	}
	view, err := e.completed(ctx, s, seal, include, found)
	if err != nil {
		return wire.Job{}, err
	}
	return e.assemble(ctx, view), nil
}

// Receipts returns what the chain and the archives know of a digest, as one
// tenant may see it; NotFound NOT_SEALED if the chain does not know it. Empty
// kinds mean all.
func (e *Engine) Receipts(ctx context.Context, tenant wire.TenantID, digest wire.Digest, includeAttached bool, kinds []wire.Kind) (wire.Job, error) {
	seal, err := e.seal(ctx, digest)
	if err != nil {
		return wire.Job{}, err
	}
	found, err := e.gatherIf(ctx, includeAttached, digest, tenant, recordKinds(kinds))
	if err != nil {
		return wire.Job{}, err
	}
	view, err := e.viewOf(ctx, tenant, digest, seal, includeAttached, found)
	if err != nil {
		return wire.Job{}, err
	}
	return e.assemble(ctx, view), nil
}

// recordKinds are the kinds of records behind kinds of receipts: a
// metadata-attach is made of two.
func recordKinds(kinds []wire.Kind) []wire.Kind {
	var list []wire.Kind
	for _, k := range kinds {
		if k == wire.ReceiptMetadataAttach {
			list = append(list, wire.KindMetadata, wire.KindPrivateMetadata)
			continue
		}
		list = append(list, k)
	}
	return list
}

// assemble puts a view together for its viewer. Private metadata that can not be
// opened is an operator's matter: the log has the reason, and the tenant gets
// all the rest.
func (e *Engine) assemble(ctx context.Context, v receipts.View) wire.Job {
	v.OpenPrivate = e.opener(ctx, v.TenantID)
	job, err := receipts.Assemble(v)
	if err != nil {
		e.cfg.Log.ErrorContext(ctx, "private metadata can not be opened", "job", job.JobID, "err", err)
	}
	return job
}

// foreign is the view of a job whose digest the tenant never submitted.
func (e *Engine) foreign(ctx context.Context, tenant wire.TenantID, digest wire.Digest, asked wire.JobID, include bool) (wire.Job, error) {
	job, err := e.Receipts(ctx, tenant, digest, include, nil)
	if fault.CodeOf(err) == codeNotSealed {
		return wire.Job{}, errJobNotFound
	}
	if err == nil && job.JobID != asked {
		job.RequestedJobID = asked
	}
	return job, err
}

const codeNotSealed = "NOT_SEALED"

var errJobNotFound = fault.New(fault.NotFound, "JOB_NOT_FOUND", "jobId: there is no such job for this key's tenant")

// seal returns what the chain has sealed for a digest.
func (e *Engine) seal(ctx context.Context, d wire.Digest) (*chain.Seal, error) {
	s, found, err := e.cfg.Ledger.Lookup(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("jobs: chain: %w", err)
	}
	if !found {
		return nil, fault.New(fault.NotFound, codeNotSealed, "sha256: %s is not sealed", d)
	}
	return &s, nil
}

// resolve returns the digest that a job id stands for.
func (e *Engine) resolve(id wire.JobID) (d wire.Digest, err error) {
	key := rowKey(rowJob, uuidBytes(string(id)))
	err = e.store.view(func(r pebble.Reader) error {
		row, ok, err := getRow(r, key)
		if err != nil {
			return err
		}
		if !ok {
			return errJobNotFound
		}
		payload, err := openRow(key, row)
		copy(d[:], payload)
		return err
	})
	return d, err
}

// find returns a tenant's submission of a digest: the named one, else the
// newest, else nil.
func (e *Engine) find(tenant wire.TenantID, digest wire.Digest, id wire.SubmissionID) (*submission, error) {
	if id != "" {
		s, err := e.current(ref{tenant, id})
		if fault.Is(err, fault.NotFound) || err == nil && (s.Digest != digest || s.quiet()) {
			return nil, errJobNotFound
		}
		return s, err
	}
	var newest []byte
	err := e.store.view(func(r pebble.Reader) (err error) {
		prefix := rowKey(rowByDigest, tenantTag(tenant), digest[:])
		newest, _, err = last(r, prefix)
		return err
	})
	if err != nil || newest == nil {
		return nil, err
	}
	return e.current(ref{tenant, wire.SubmissionID(uuidText(newest[len(newest)-16:]))})
}

func (e *Engine) gatherIf(ctx context.Context, include bool, d wire.Digest, tenant wire.TenantID, kinds []wire.Kind) (receipts.Gathered, error) {
	if !include {
		return receipts.Gathered{}, nil
	}
	return e.gather(ctx, d, tenant, kinds)
}

// foundFor returns what the archives say of a submission's digest: what they
// said when it ended, if its caller waited for that.
func (e *Engine) foundFor(ctx context.Context, s *submission, include bool, ended Ended) (receipts.Gathered, error) {
	if include && ended.found != nil && ended.id == s.ref() {
		return *ended.found, nil
	}
	return e.gatherIf(ctx, include, s.Digest, s.Tenant, nil)
}

// completed is the view of an ended submission, private metadata closed.
func (e *Engine) completed(ctx context.Context, s *submission, seal *chain.Seal, include bool, found receipts.Gathered) (receipts.View, error) {
	view, err := e.viewOf(ctx, s.Tenant, s.Digest, seal, include, found)
	if err != nil {
		return receipts.View{}, err
	}
	view.SubmissionID, view.HashedFrom = s.ID, s.HashedFrom
	view.AlreadySealed = new(s.AlreadySealed)
	if s.JobID != view.JobID {
		view.RequestedJobID = s.JobID
	}
	return view, nil
}

// viewOf is the view of a sealed digest.
func (e *Engine) viewOf(ctx context.Context, tenant wire.TenantID, digest wire.Digest, seal *chain.Seal, include bool, found receipts.Gathered) (receipts.View, error) {
	receipt, err := e.receipt(ctx, seal)
	if err != nil {
		return receipts.View{}, err
	}
	side, err := e.sideSeals(ctx, found)
	if err != nil {
		return receipts.View{}, err
	}
	return receipts.View{
		JobID: seal.JobID, TenantID: tenant, Digest: digest, Seal: receipt, SideSeals: side,
		Queried: include, Gathered: found,
	}, nil
}

// receipt is the receipt of a seal. Its certificate is the same on every call.
func (e *Engine) receipt(ctx context.Context, s *chain.Seal) (wire.Receipt, error) {
	certificate, err := e.cfg.Ledger.Certificate(ctx, *s)
	if err != nil {
		return wire.Receipt{}, fmt.Errorf("jobs: certificate: %w", err)
	}
	return wire.Receipt{
		Kind: wire.ReceiptSeal, Timestamp: wire.At(s.Time), Certificate: certificate,
		BlockIndex: new(s.BlockIndex), LeafIndex: new(s.LeafIndex), Chain: s.Origin,
	}, nil
}

// sideSeals are the seals of public metadata among the found records, by the
// digest of the metadata. Metadata that nobody had sealed has none.
func (e *Engine) sideSeals(ctx context.Context, found receipts.Gathered) (map[wire.Digest]wire.Receipt, error) {
	side := map[wire.Digest]wire.Receipt{}
	for _, held := range found.Records {
		d := held.Record.BodySHA256
		if held.Record.Kind != wire.KindMetadata || d.IsZero() {
			continue
		}
		s, ok, err := e.cfg.Ledger.Lookup(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("jobs: chain: %w", err)
		}
		if !ok {
			continue
		}
		if side[d], err = e.receipt(ctx, &s); err != nil {
			return nil, err
		}
	}
	return side, nil
}

// opener opens private metadata for its own tenant.
func (e *Engine) opener(ctx context.Context, tenant wire.TenantID) func(wire.Record) (wire.RawJSON, error) {
	return func(r wire.Record) (wire.RawJSON, error) {
		if r.TenantID != tenant {
			return nil, fault.New(fault.Denied, "NOT_YOURS", "privateMetadata: it is another tenant's")
		}
		return e.cfg.Vault.Open(ctx, vault.Context{TenantID: r.TenantID, SHA256: r.SHA256, Kind: r.Kind, SubmissionID: r.SubmissionID, Part: r.Part}, r.Body)
	}
}

// unfinished is the job of a submission that is pending or has failed.
func (e *Engine) unfinished(s *submission) wire.Job {
	job := wire.Job{
		JobID: s.shownJobID(), Status: s.Status, SHA256: s.Digest, Receipts: []wire.Receipt{}, Files: []wire.FileEntry{},
		SubmissionID: s.ID, HashedFrom: s.HashedFrom, ArchivesExpected: []wire.ArchiveID{}, ArchivesMissing: []wire.ArchiveID{},
		Reason: s.Reason, ReasonKind: s.ReasonKind, NextAttemptAt: s.NextAttempt,
	}
	if s.Sealed {
		job.AlreadySealed = new(s.AlreadySealed)
	}
	if job.JobID != s.JobID {
		job.RequestedJobID = s.JobID
	}
	return job
}

// addSeal shows the seal of a submission that is sealed but waits for archives.
func (e *Engine) addSeal(ctx context.Context, s *submission, job *wire.Job) error {
	if !s.Sealed {
		return nil
	}
	seal, err := e.seal(ctx, s.Digest)
	if err != nil {
		return err
	}
	receipt, err := e.receipt(ctx, seal)
	if err == nil {
		job.Receipts = append(job.Receipts, receipt)
	}
	return err
}
