package jobs

import (
	"context"
	"slices"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Caller is who submits, and how.
type Caller struct {
	TenantID wire.TenantID
	// SubmissionID is made by the door before it reads the request, because
	// files may be placed by it.
	SubmissionID wire.SubmissionID
	// IdempotencyKey is the sender's own name of the request; empty means none.
	IdempotencyKey string
}

// Accept takes a request that was read and checked in full. Its steps:
//
//	(1) the request is read: file bytes are with archives, as open uploads
//	(2) the chain is asked, briefly, whether it knows the digest
//	(3) one commit makes the submission durable, with the bytes of every put
//	(4) the uploads are committed and the records put, from that copy alone
//	(5) enough acknowledgements: the watch is published, the caller answered
//
// Accept owns the request's uploads: they are aborted unless step 3 took them.
// A request whose content or idempotency key is known joins the first
// submission and gets its answer. Files need PUT_MIN_COPIES archives, or the
// error is Transient and names the submission, which stays open; metadata
// without enough archives is accepted as pending; a hash alone needs none.
//
// An unsealed request goes the same way, but the chain is not asked, no watch
// is published, and nothing is settled: it has ended once its file and record
// are acknowledged by PUT_MIN_COPIES archives, and the answer names no job.
func (e *Engine) Accept(ctx context.Context, c Caller, req *splitter.Request) (wire.Accepted, error) {
	draft, err := e.draft(ctx, c, req)
	if err != nil {
		return wire.Accepted{}, e.refuse(req, err)
	}
	defer e.leave(draft)
	if err := e.at("accept.read"); err != nil {
		return wire.Accepted{}, err
	}
	var known *chain.Seal
	var asked bool
	if !draft.Unsealed {
		known, asked = e.askChain(ctx, draft.Digest) // (2)
	}
	if err := e.at("accept.lookup"); err != nil {
		return wire.Accepted{}, err
	}
	stored, joined, err := e.keep(ctx, draft, known) // (3)
	if err != nil {
		return wire.Accepted{}, e.refuse(req, err)
	}
	if joined {
		req.Abort()
		return e.join(ctx, stored, req.IncludeAttached)
	}
	if err := e.at("accept.stored"); err != nil {
		return wire.Accepted{}, err
	}
	stored, err = e.awaitStored(ctx, stored.ref()) // (4), (5)
	if err != nil {
		return wire.Accepted{}, err
	}
	if err := e.at("accept.answer"); err != nil {
		return wire.Accepted{}, err
	}
	answer := stored.accepted(req.IncludeAttached)
	if asked && answer.AlreadySealed == nil {
		answer.AlreadySealed = new(known != nil && known.SubmissionID != stored.ID)
	}
	return answer, nil
}

// settle ends a submission whose records are stored. It is idempotent: every
// step may be repeated, and only the commit of the last one that gets there
// ends the submission. Its steps:
//
//	(1) the subject and its side digests are registered in one batch
//	(2) the archives are asked, if the sender wants to know
//	(3) one commit ends the submission and stores the bytes of its event
//	(4) the event is announced; a redelivery announces the same bytes
//
// What archives answer after the deadline of step 2 is told behind it; see follow.
func (e *Engine) settle(ctx context.Context, s *submission) error {
	seals, err := chain.SealOnce(ctx, e.cfg.Ledger, entries(s)) // (1)
	if err != nil {
		return err
	}
	if err := e.at("settle.registered"); err != nil {
		return err
	}
	var found receipts.Gathered
	var waiters []*waiter  // whose requests are older than the question to the archives
	if s.IncludeAttached { // (2)
		waiters = e.hub.present(s.ref())
		var late receipts.Late
		if found, late, err = e.gatherLate(ctx, s); err != nil {
			return err
		}
		defer func() { e.follow(s, &seals[0], late) }()
	}
	if err := e.at("settle.gathered"); err != nil {
		return err
	}
	if err := e.finish(ctx, s, seals, found); err != nil { // (3)
		return err
	}
	if err := e.at("settle.committed"); err != nil {
		return err
	}
	e.hub.hand(waiters, &found)
	e.publish(s)
	e.announce(eventKey(s.ref(), 0)) // (4)
	return nil
}

// entries are what a submission asks the chain to seal: its subject first,
// then every digest of a file, and of its metadata when asked for. A digest
// that has two roles is one entry.
func entries(s *submission) []chain.Entry {
	list := []chain.Entry{{Digest: s.Digest, JobID: s.JobID, SubmissionID: s.ID}}
	add := func(e chain.Entry) {
		at := slices.IndexFunc(list, func(have chain.Entry) bool { return have.Digest == e.Digest })
		switch {
		case at < 0:
			list = append(list, e)
		case list[at].FileID.IsZero():
			list[at].FileID = e.FileID
		}
	}
	for i, f := range s.Files {
		add(chain.Entry{Digest: f.SHA256, JobID: f.JobID, SubmissionID: s.ID, FileID: s.fileRecord(i)})
	}
	if !s.MetadataDigest.IsZero() {
		add(chain.Entry{Digest: s.MetadataDigest, JobID: s.MetadataJobID, SubmissionID: s.ID})
	}
	return list
}

// refuse gives up a request that was not taken.
func (e *Engine) refuse(req *splitter.Request, err error) error {
	req.Abort()
	return err
}

// errCrash is what a test's step hook returns to stop the work as a crash
// would: nothing may be tidied up behind it.
var errCrash = fault.New(fault.Internal, "CRASH", "jobs: stopped between two steps")
