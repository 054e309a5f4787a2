package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// Purposes of keyed digests; see Vault.MAC.
const (
	purposeFingerprint = "fingerprint"
	purposeIdempotency = "idempotency"
)

// draft is a submission before step 3.
type draft struct {
	submission
	puts    [][]byte    // the bytes of every Put, in the order of parts; its roster version is set when it is sent
	content wire.Digest // keyed digest of the request's content
	unread  error       // why the text of its files can not be asked for; a repeated request does not ask again
	entered bool        // the idempotency key is marked as in flight by this request
}

// draft turns a request into what step 3 makes durable. Nothing is stored yet,
// but an idempotency key is marked as in flight: see leave.
func (e *Engine) draft(ctx context.Context, c Caller, req *splitter.Request) (*draft, error) {
	if err := supported(req); err != nil {
		return nil, err
	}
	now := e.cfg.Now()
	d := &draft{submission: submission{
		ID: c.SubmissionID, Tenant: c.TenantID, Digest: req.Subject, HashedFrom: req.HashedFrom,
		Placement: req.Placement, AttachedAt: wire.At(now), IncludeAttached: req.IncludeAttached, Status: wire.StatusPending,
		Unsealed: req.Unsealed,
	}}
	for _, f := range req.Files {
		d.Files = append(d.Files, fileOf(&f))
	}
	if req.SealMetadata && req.PublicMetadata != nil {
		d.MetadataDigest = sha256.Sum256(req.PublicMetadata)
	}
	if err := e.splitInto(ctx, d, req); err != nil {
		return nil, err
	}
	d.unread = e.fetchable(d, req)
	d.UploadsDone = len(d.Files) == 0
	d.Stored, d.Copied = len(d.Parts) == 0, len(d.Parts) == 0
	if err := e.identify(d, c, req); err != nil {
		return nil, err
	}
	return d, e.enter(d)
}

// fileOf is what is kept of a file of a request.
func fileOf(f *splitter.File) file {
	kept := file{UploadID: f.UploadID, Size: f.Size, SHA256: f.SHA256, CID: f.CID, Uploaded: f.Archives}
	if f.Profile != blob.Default {
		kept.ChunkSize, kept.MaxLinks = f.Profile.ChunkSize, f.Profile.MaxLinks
	}
	if f.OCR {
		kept.OCR, kept.SHA1 = true, hex.EncodeToString(f.SHA1[:])
	}
	return kept
}

// supported refuses what a later version will do, rather than accept it and do
// nothing.
func supported(req *splitter.Request) error {
	switch {
	case req.Unsealed && len(req.Files) == 0:
		return errors.New("jobs: an unsealed request without a file")
	case req.Unsealed && slices.ContainsFunc(req.Files, func(f splitter.File) bool { return f.OCR }):
		return errors.New("jobs: an unsealed request for the text of a file: messages are queued by what ends a job")
	case req.CallbackURL != "":
		return fault.New(fault.Invalid, "UNSUPPORTED", "callbackUrl: callbacks are not delivered by this version: leave it out and ask statusUrl").InField("callbackUrl")
	}
	return nil
}

// splitInto adds the records of the request to the draft.
func (e *Engine) splitInto(ctx context.Context, d *draft, req *splitter.Request) error {
	seal := func(n int, kind wire.Kind, plaintext []byte) ([]byte, error) {
		return e.cfg.Vault.Seal(ctx, vault.Context{TenantID: d.Tenant, SHA256: d.Digest, Kind: kind, SubmissionID: d.ID, Part: n}, plaintext)
	}
	records, err := splitter.Split(req, splitter.Stamp{SubmissionID: d.ID, TenantID: d.Tenant, AttachedAt: d.AttachedAt}, seal)
	if err != nil {
		return fmt.Errorf("jobs: split: %w", err)
	}
	files := 0
	for i := range records {
		r := records[i]
		p := part{Kind: r.Kind, RecordID: r.ID(), Size: int64(len(r.Body)), SHA256: r.BodySHA256()}
		if r.Kind == wire.KindFile {
			files++
			p.File, p.Name, p.Size, p.SHA256 = files, r.File.Name, r.File.Size, r.File.SHA256
		}
		bytes, err := wire.Encode(wire.Put{PutID: wire.NewPutID(), Record: r})
		if err != nil {
			return fmt.Errorf("jobs: encode put: %w", err)
		}
		d.Parts, d.puts = append(d.Parts, p), append(d.puts, bytes)
	}
	if files != len(d.Files) {
		return fmt.Errorf("jobs: split: %d file records for %d files", files, len(d.Files))
	}
	return nil
}

// identify computes what makes the request recognisable when it comes again. A
// hash alone is never recognised by its content: it makes no record, so a
// second one is harmless and its sender wants a submission of his own.
func (e *Engine) identify(d *draft, c Caller, req *splitter.Request) error {
	mac, err := e.cfg.Vault.MAC(d.Tenant, purposeFingerprint, req.Canonical())
	if err != nil {
		return fmt.Errorf("jobs: fingerprint: %w", err)
	}
	d.content = mac
	if len(d.Parts) > 0 && e.cfg.ResubmitWindow > 0 {
		d.Fingerprint = d.content
	}
	if c.IdempotencyKey == "" {
		return nil
	}
	if mac, err = e.cfg.Vault.MAC(d.Tenant, purposeIdempotency, []byte(c.IdempotencyKey)); err != nil {
		return fmt.Errorf("jobs: idempotency key: %w", err)
	}
	d.Idempotency = mac
	return nil
}

// askChain asks what the chain knows of a digest, for at most LookupWait. asked
// is false when the chain could not say.
func (e *Engine) askChain(ctx context.Context, d wire.Digest) (seal *chain.Seal, asked bool) {
	ctx, stop := context.WithTimeout(ctx, e.cfg.LookupWait)
	defer stop()
	s, found, err := e.cfg.Ledger.Lookup(ctx, d)
	switch {
	case err != nil:
		e.cfg.Log.WarnContext(ctx, "the chain could not be asked; the job's id is settled later", "sha256", d, "err", err)
		return nil, false
	case !found:
		return nil, true
	}
	return &s, true
}

// enter marks an idempotency key as being worked on, until leave. A second
// request with the key is told so; one with other content is told that first.
func (e *Engine) enter(d *draft) error {
	if d.Idempotency.IsZero() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	content, busy := e.inFlight[d.Idempotency]
	switch {
	case !busy:
		e.inFlight[d.Idempotency], d.entered = d.content, true
		return nil
	case content != d.content:
		return errKeyReused
	}
	return errInFlight
}

func (e *Engine) leave(d *draft) {
	if !d.entered {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.inFlight, d.Idempotency)
}

var (
	errKeyReused = fault.New(fault.Invalid, "IDEMPOTENCY_KEY_REUSED", "Idempotency-Key: it was used for a request with other content: use a new key for a new request").InField("Idempotency-Key")
	errInFlight  = fault.New(fault.Conflict, "IDEMPOTENCY_IN_FLIGHT", "Idempotency-Key: the first request with this key is still being worked on: ask again in a moment").InField("Idempotency-Key").After(time.Second)
)

// join answers a request that repeats an earlier one.
func (e *Engine) join(ctx context.Context, s *submission, includeAttached bool) (wire.Accepted, error) {
	if !s.Stored {
		e.kick(s.ref()) // its sender is waiting: do not let it sit out a delay
	}
	s, err := e.awaitStored(ctx, s.ref())
	if err != nil {
		return wire.Accepted{}, err
	}
	return s.accepted(includeAttached), nil
}

// awaitStored waits until a submission is stored, for at most PutWait, and
// returns its state. Files that are not stored by then are an error; metadata
// goes on as pending.
func (e *Engine) awaitStored(ctx context.Context, id ref) (*submission, error) {
	waiter, stop := e.hub.subscribe(id)
	defer stop()
	timeout := time.NewTimer(e.cfg.PutWait)
	defer timeout.Stop()
	for waiting := true; waiting; {
		s, err := e.current(id)
		switch {
		case err != nil:
			return nil, err
		case s.Status == wire.StatusFailed:
			return nil, s.failure()
		case s.Stored || s.ended():
			return s, nil
		case len(s.Files) == 0 && s.ReasonCode == codeNoArchive:
			return s, nil
		}
		select {
		case <-waiter.changed:
		case <-timeout.C:
			waiting = false
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.ctx.Done():
			return nil, errClosed
		}
	}
	s, err := e.current(id)
	switch {
	case err == nil && s.Status == wire.StatusFailed:
		return nil, s.failure()
	case err != nil || s.Stored || s.ended() || len(s.Files) == 0:
		return s, err
	}
	return nil, fault.New(fault.Transient, codeNoArchive,
		"the files of submission %s are not yet on enough archives; it stays open: send the same request again to see it through", id.submission).After(retryAfter)
}

// codeNoArchive says that too few archives take records now.
const codeNoArchive = "NO_ARCHIVE"

// retryAfter is what a sender is told to wait when archives are missing.
const retryAfter = 5 * time.Second

var errClosed = fault.New(fault.Transient, "CLOSING", "jobs: the aggregator is stopping: ask again").After(time.Second)
