package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestOneArchiveDownIsNamed(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.archives.set("archive-b", func(n *node) { n.up = false })
	a, job := w.must(alice, hashBody(digestOf("document"), metadata("1"), fileField("file"), attached))
	if job.Complete || job.CompleteReason != wire.ReasonDeadline || len(job.ArchivesMissing) != 1 || job.ArchivesMissing[0] != "archive-b" {
		t.Errorf("the job is %s", encode(t, job))
	}
	for _, p := range a.Parts {
		if p.Copies != 2 {
			t.Errorf("part %s has %d copies with two archives up", p.Kind, p.Copies)
		}
	}
}

func TestSecondCopyAppearsWhenAnArchiveReturns(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.archives.set("archive-a", func(n *node) { n.up = false })
	w.archives.set("archive-c", func(n *node) { n.up = false })
	a, job := w.must(alice, hashBody(digestOf("document"), metadata("1"), fileField("file"), attached))
	if job.Complete || len(job.ArchivesMissing) != 2 || len(job.Files) != 1 {
		t.Errorf("with one archive the job is %s", encode(t, job))
	}
	for _, p := range a.Parts {
		if n := w.archives.copies(p.RecordID); n != 1 {
			t.Errorf("%d copies with one archive", n)
		}
	}
	w.archives.set("archive-c", func(n *node) { n.up = true; w.archives.version++ })
	w.engine.Nudge()
	w.settled()
	for _, p := range a.Parts {
		if n := w.archives.copies(p.RecordID); n != 2 {
			t.Errorf("part %s has %d copies after an archive returned", p.Kind, n)
		}
	}
	if len(w.archives.distinct()) != 2 {
		t.Errorf("healing made records: %d", len(w.archives.distinct()))
	}
}

// The rules for a shortage of archives: with files nothing is recorded or
// sealed; metadata alone waits while its digest is sealed; a hash is as always.
func TestNoArchive(t *testing.T) {
	down := func(t *testing.T) *world {
		w := newWorld(t, 3, nil)
		w.archives.all(func(n *node) { n.up = false })
		return w
	}
	t.Run("files", func(t *testing.T) {
		w := down(t)
		_, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), fileField("file")))
		if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "NO_ARCHIVE" || fault.RetryAfter(err) < time.Second {
			t.Errorf("files without archives: %v", err)
		}
		if n, err := w.engine.Pending(); n != 0 || err != nil || w.ledger.registers != 0 {
			t.Errorf("left behind: %d submissions, %d seals, %v", n, w.ledger.registers, err)
		}
	})
	t.Run("metadata", func(t *testing.T) {
		w := down(t)
		a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), metadata("1"), attached))
		if err != nil || a.Status != wire.StatusPending || a.Reason == "" || a.NextAttemptAt == "" {
			t.Fatalf("metadata without archives: %s, %v", encode(t, a), err)
		}
		job, err := w.engine.Job(t.Context(), alice, a.JobID, View{SubmissionID: a.SubmissionID})
		if err != nil || job.Status != wire.StatusPending || len(job.Receipts) != 1 || job.Receipts[0].Certificate == "" {
			t.Errorf("its job is %s, %v", encode(t, job), err)
		}
		w.archives.all(func(n *node) { n.up = true })
		w.engine.Nudge()
		job = w.ended(alice, a)
		if job.Status != wire.StatusCompleted || len(job.Receipts) != 2 || !job.Complete || job.Reason != "" {
			t.Errorf("after they returned its job is %s", encode(t, job))
		}
	})
	t.Run("hash", func(t *testing.T) {
		w := down(t)
		_, job := w.must(alice, hashBody(digestOf("document"), attached))
		if job.Complete || job.CompleteReason != wire.ReasonNoArchives || len(job.ArchivesMissing) != 3 || len(job.Receipts) != 1 {
			t.Errorf("a hash without archives: %s", encode(t, job))
		}
	})
}

// An archive that fails puts is passed over for the next one.
func TestNextArchiveTakesThePlaceOfOneThatFails(t *testing.T) {
	for _, refusal := range []error{errDown, fault.New(fault.Transient, "DISK_FULL", "full"), context.DeadlineExceeded} {
		w := newWorld(t, 3, nil)
		first := w.archives.Rank(digestOf("document"))[0]
		w.archives.set(first, func(n *node) { n.refuse = refusal })
		a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
		if n := w.archives.copies(a.Parts[0].RecordID); n != 2 {
			t.Errorf("%v at the first of three archives: %d copies", refusal, n)
		}
	}
}

// Law 11: what an archive or the chain says against an accepted submission does
// not blame its sender, nor is it shown.
func TestLaw11RefusalAfterAcceptIsNotTheSendersFault(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Invalid, fault.Denied, fault.NotFound, fault.Conflict, fault.Internal} {
		refusal := fault.New(kind, "SECRET_CODE", "archive-a: words for an operator").InField("record")
		for name, refuse := range map[string]func(*world){
			"put":    func(w *world) { w.archives.all(func(n *node) { n.refuse = refusal }) },
			"commit": func(w *world) { w.archives.all(func(n *node) { n.refuseCommit = refusal }) },
			"chain":  func(w *world) { w.ledger.setDown(refusal) },
			"both": func(w *world) {
				w.archives.all(func(n *node) { n.up = false })
				w.ledger.setDown(refusal)
			},
		} {
			t.Run(kind.String()+"/"+name, func(t *testing.T) {
				w := newWorld(t, 2, func(c *Config) { c.PutWait = 100 * time.Millisecond })
				refuse(w)
				fields := metadata("1")
				if name == "commit" {
					fields = fileField("file")
				}
				c := Caller{TenantID: alice, SubmissionID: wire.NewSubmissionID()}
				if _, err := w.submit(t.Context(), c, hashBody(digestOf("document"), fields)); err != nil && !fault.Is(err, fault.Transient) {
					t.Fatal(err)
				}
				s := w.reasoned(ref{alice, c.SubmissionID})
				job := w.engine.unfinished(s)
				blames := job.ReasonKind != "internal" && job.ReasonKind != "transient"
				if blames || strings.Contains(job.Reason, "operator") {
					t.Errorf("the job says %s: %q", job.ReasonKind, job.Reason)
				}
			})
		}
	}
}

// reasoned waits until a submission says why it waits or failed.
func (w *world) reasoned(id ref) *submission {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		s, err := w.engine.current(id)
		if err != nil {
			w.t.Fatal(err)
		}
		if s.Reason != "" {
			return s
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the submission never says why it waits")
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
}

// Files whose archives take the bytes but not the record keep their submission
// open for a matching retry.
func TestFilesNotStoredInTimeStayOpen(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.PutWait = 300 * time.Millisecond })
	w.archives.all(func(n *node) { n.refuse = errDown })
	body := hashBody(digestOf("document"), fileField("file"), attached)
	_, err := w.submit(t.Context(), Caller{TenantID: alice}, body)
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "NO_ARCHIVE" {
		t.Fatalf("files that are not stored in time: %v", err)
	}
	w.archives.all(func(n *node) { n.refuse = nil })
	_, job := w.must(alice, body)
	if job.Status != wire.StatusCompleted || len(job.Files) != 1 {
		t.Errorf("the retry's job is %s", encode(t, job))
	}
	w.settled()
	if n := len(w.archives.distinct()); n != 1 || w.archives.openUploads() != 0 {
		t.Errorf("%d records and %d open uploads after the retry", n, w.archives.openUploads())
	}
	if got := w.announced(job.SubmissionID); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
}

func TestChainOutageKeepsTheJobPending(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.ledger.setDown(fault.New(fault.Transient, "CHAIN_DOWN", "the chain does not answer"))
	a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), metadata("1"), attached))
	if err != nil || a.AlreadySealed != nil || a.Status != wire.StatusPending {
		t.Fatalf("with the chain down the answer is %s, %v", encode(t, a), err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		job, err := w.engine.Job(t.Context(), alice, a.JobID, View{SubmissionID: a.SubmissionID})
		if err != nil {
			t.Fatal(err)
		}
		if job.Reason != "" {
			if job.Status != wire.StatusPending || job.ReasonKind != "transient" || job.NextAttemptAt == "" {
				t.Errorf("the pending job is %s", encode(t, job))
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the job never says why it waits")
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
	w.ledger.setDown(nil)
	if job := w.ended(alice, a); job.Status != wire.StatusCompleted || len(job.Receipts) != 2 {
		t.Errorf("after the chain returned the job is %s", encode(t, job))
	}
}

func TestChainThatKnowsAnOlderJobIsBelieved(t *testing.T) {
	w := newWorld(t, 1, nil)
	d := digestOf("document")
	// The chain can not be asked at Accept, and knows the digest from elsewhere.
	older := wire.NewJobID()
	if _, err := w.ledger.Ledger.Register(t.Context(), entries(&submission{Digest: d, JobID: older, ID: wire.NewSubmissionID()})); err != nil {
		t.Fatal(err)
	}
	w.ledger.setDown(fault.New(fault.Transient, "CHAIN_DOWN", "the chain does not answer"))
	a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(d))
	if err != nil || a.JobID == older {
		t.Fatalf("%s, %v", encode(t, a), err)
	}
	w.ledger.setDown(nil)
	job := w.ended(alice, a)
	if job.JobID != older || job.RequestedJobID != a.JobID || !*job.AlreadySealed {
		t.Errorf("the job is %s", encode(t, job))
	}
	for _, id := range []wire.JobID{older, a.JobID} {
		if got, err := w.engine.Job(t.Context(), alice, id, View{}); err != nil || got.JobID != older {
			t.Errorf("job %s resolves to %s, %v", id, got.JobID, err)
		}
	}
	for _, event := range w.announced(a.SubmissionID) {
		if event.RequestedJobID != a.JobID {
			t.Errorf("the event does not name the job that was asked for: %s", encode(t, event))
		}
	}
}

func TestManySubmissionsAtOnce(t *testing.T) {
	w := newWorld(t, 3, nil)
	const n = 200
	accepted := make([]wire.Accepted, n)
	for i := range n {
		a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf(fmt.Sprint(i%20)), metadata(fmt.Sprint(i))))
		if err != nil {
			t.Fatal(err)
		}
		accepted[i] = a
	}
	for _, a := range accepted {
		w.ended(alice, a)
	}
	w.settled()
	if got := len(w.archives.distinct()); got != n {
		t.Errorf("%d records for %d submissions", got, n)
	}
}

// A ledger that has stopped, or was found to be rolled back, may have sealed what
// it does not find. Nobody is told that there is no seal.
func TestLookupOnAStoppedLedgerIsNoDenial(t *testing.T) {
	w := newWorld(t, 1, nil)
	a, _ := w.must(alice, hashBody(digestOf("document")))
	for _, code := range []string{"LEDGER_STOPPED", "LEDGER_UNWITNESSED"} {
		w.ledger.setDown(fault.New(fault.Transient, code, "it seals no more"))
		_, byDigest := w.engine.Receipts(t.Context(), alice, digestOf("unknown"), false, nil)
		_, foreign := w.engine.Job(t.Context(), bob, a.JobID, View{})
		for name, err := range map[string]error{"by digest": byDigest, "by another's job": foreign} {
			if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != code {
				t.Errorf("%s, %s: %v", code, name, err)
			}
		}
		w.ledger.setDown(nil)
	}
}
