package jobs

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// gaps are the places between the steps of Accept and of settle. Those of heal
// and fail are not on every submission's way and have tests of their own.
var gaps = []string{
	"accept.read", "accept.lookup", "accept.stored", "accept.uploads", "accept.put", "accept.answer",
	"settle.registered", "settle.gathered", "settle.committed",
}

// crasher is a step hook that loses power at one gap.
type crasher struct {
	gap   string
	world *world
	keep  int // percent of unsynced data that survives

	mu    sync.Mutex
	left  *vfs.MemFS // what the power loss left; nil until it came
	happy chan struct{}
}

func (c *crasher) step(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil && name == c.gap {
		c.left = c.world.crash(c.keep)
		close(c.happy)
	}
	if c.left != nil {
		return errCrash // nothing more is done by a process without power
	}
	return nil
}

// After a crash in any gap, and the client's retry, there is one record of
// each part, one seal and one event; nothing that was acknowledged is lost, and
// no record is there without its submission. Where the archives lost their
// open uploads with the power, the files are lost loudly and sent again.
func TestCrashInAnyGap(t *testing.T) {
	bodies := map[string]string{
		"hash":     hashBody(digestOf("document"), attached),
		"metadata": hashBody(digestOf("document"), metadata("1"), `"privateMetadata":{"secret":1}`, attached),
		"files":    hashBody(digestOf("document"), metadata("1"), fileField("the file"), attached),
	}
	for _, gap := range gaps {
		for kind, body := range bodies {
			if gap == "accept.uploads" && kind != "files" || gap == "accept.put" && kind == "hash" {
				continue // has no such step
			}
			for _, keep := range unsynced() {
				for _, archivesToo := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%d/%v", gap, kind, keep, archivesToo), func(t *testing.T) {
						crashAndRetry(t, gap, body, keep, archivesToo)
					})
				}
			}
		}
	}
}

// unsynced lists how much of what was not synced survives a power loss, in
// percent.
func unsynced() []int {
	if testing.Short() {
		return []int{0}
	}
	return []int{0, 100}
}

func crashAndRetry(t *testing.T, gap, body string, keep int, archivesToo bool) {
	w := newWorld(t, 3, func(c *Config) { c.PutWait = 5 * time.Second })
	c := &crasher{gap: gap, world: w, keep: keep, happy: make(chan struct{})}
	w.engine.step = c.step
	caller := Caller{TenantID: alice, IdempotencyKey: "one"}
	answered := make(chan error, 1)
	var first wire.Accepted
	go func() {
		var err error
		first, err = w.submit(t.Context(), caller, body)
		answered <- err
	}()
	select {
	case <-c.happy:
	case err := <-answered:
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.happy: // the gap is behind the answer
		case <-time.After(time.Minute):
			t.Fatalf("the gap %s was never reached", gap)
		}
		answered <- nil
	case <-time.After(time.Minute):
		t.Fatalf("the gap %s was never reached", gap)
	}
	w.archives.deliver(nil)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	acknowledged := <-answered == nil

	w.fs = c.left
	if archivesToo {
		w.archives.all((*node).restart)
	}
	w.open(nil)
	checkVisible(t, w)
	retry, err := w.submit(t.Context(), caller, body)
	if fault.CodeOf(err) == "UPLOAD_LOST" {
		if !archivesToo {
			t.Fatalf("a file was lost although the archives kept it: %v", err)
		}
		retry, err = w.submit(t.Context(), caller, body)
	}
	if err != nil {
		t.Fatalf("the retry: %v", err)
	}
	if acknowledged && retry.SubmissionID != first.SubmissionID {
		t.Errorf("submission %s was acknowledged, the retry made %s", first.SubmissionID, retry.SubmissionID)
	}
	job := w.ended(alice, retry)
	if job.Status != wire.StatusCompleted || !job.Complete {
		t.Errorf("the job is %s", encode(t, job))
	}
	w.settled()
	if gap == "accept.read" || gap == "accept.lookup" {
		w.archives.all((*node).restart) // uploads that no submission names are swept when idle
	}
	checkOnce(t, w, retry, job)
}

// lose runs the work of an engine until the power is lost at c's gap, and opens
// a new one on what is left.
func (w *world) lose(c *crasher) {
	w.t.Helper()
	select {
	case <-c.happy:
	case <-time.After(time.Minute):
		w.t.Fatalf("the gap %s was never reached", c.gap)
	}
	if err := w.engine.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.fs = c.left
	w.open(nil)
}

// A crash after the missing copies were made and before that is known repeats
// them: archives say "duplicate", and nothing is there twice.
func TestCrashInHeal(t *testing.T) {
	for kind, fields := range map[string]string{"metadata": metadata("1"), "file": fileField("the file")} {
		for _, keep := range unsynced() {
			t.Run(fmt.Sprintf("%s/%d", kind, keep), func(t *testing.T) {
				w := newWorld(t, 2, nil)
				c := &crasher{gap: "heal.placed", world: w, keep: keep, happy: make(chan struct{})}
				w.engine.step = c.step
				w.archives.set("archive-b", func(n *node) { n.up = false })
				a, _ := w.must(alice, hashBody(digestOf("document"), fields))
				w.announced(a.SubmissionID)
				w.archives.set("archive-b", func(n *node) { n.up = true })
				w.engine.Nudge()
				w.lose(c)
				w.settled()
				checkOnce(t, w, a, w.ended(alice, a))
			})
		}
	}
}

// A crash after a failed submission was closed and before anybody was told: its
// event is announced by the next process, once, and its key is free.
func TestCrashInFail(t *testing.T) {
	for _, keep := range unsynced() {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			w := newWorld(t, 2, nil)
			c := &crasher{gap: "fail.committed", world: w, keep: keep, happy: make(chan struct{})}
			w.engine.step = c.step
			w.archives.all(func(n *node) { n.forgetful = true })
			caller := Caller{TenantID: alice, IdempotencyKey: "one", SubmissionID: wire.NewSubmissionID()}
			body := hashBody(digestOf("document"), fileField("the file"), attached)
			answered := make(chan error, 1)
			go func() {
				_, err := w.submit(t.Context(), caller, body)
				answered <- err
			}()
			w.lose(c)
			if err := <-answered; err == nil {
				t.Error("a submission that failed was accepted")
			}
			if events := w.announced(caller.SubmissionID); len(events) != 1 || events[0].Event != wire.EventFailed {
				t.Errorf("the events of the failed one are %s", encode(t, events))
			}
			w.archives.all(func(n *node) { n.forgetful = false })
			failed := caller.SubmissionID
			caller.SubmissionID = ""
			a, err := w.submit(t.Context(), caller, body)
			if err != nil || a.SubmissionID == failed {
				t.Fatalf("the retry: %s, %v", a.SubmissionID, err)
			}
			job := w.ended(alice, a)
			w.settled()
			checkOnce(t, w, a, job)
		})
	}
}

// checkVisible: no record without a submission that knows it.
func checkVisible(t *testing.T, w *world) {
	t.Helper()
	for id, r := range w.archives.distinct() {
		s, err := w.engine.current(ref{r.TenantID, r.SubmissionID})
		if err != nil {
			t.Errorf("record %s is visible, its submission is not: %v", id, err)
			continue
		}
		known := false
		for _, p := range s.Parts {
			known = known || p.RecordID == id
		}
		if !known || !s.UploadsDone {
			t.Errorf("record %s is visible too early: known %v, uploads done %v", id, known, s.UploadsDone)
		}
	}
}

// checkOnce: every part once, on two archives, one seal, one event.
func checkOnce(t *testing.T, w *world, a wire.Accepted, job wire.Job) {
	t.Helper()
	records := w.archives.distinct()
	if len(records) != len(a.Parts) {
		t.Errorf("%d records for %d parts", len(records), len(a.Parts))
	}
	for _, p := range a.Parts {
		if n := w.archives.copies(p.RecordID); n < 2 {
			t.Errorf("part %s has %d copies", p.Kind, n)
		}
	}
	if events := w.announced(a.SubmissionID); len(events) != 1 || events[0].Event != wire.EventCompleted {
		t.Errorf("the events are %s", encode(t, events))
	}
	if w.ledger.registers > 2 { // the subject with its side digests; once more after a crash
		t.Errorf("%d registrations", w.ledger.registers)
	}
	if job.AlreadySealed == nil || *job.AlreadySealed && job.JobID == "" {
		t.Errorf("alreadySealed is %v", job.AlreadySealed)
	}
	if n := w.archives.openUploads(); n != 0 {
		t.Errorf("%d uploads are left open", n)
	}
}

// Every write of the job store fails once, without and with being persisted.
// The request is refused or taken; either way the retry ends it once.
func TestStoreWriteFails(t *testing.T) {
	var boom = errors.New("injected")
	for n := range 6 {
		for _, persisted := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d persisted %v", n, persisted), func(t *testing.T) {
				w := newWorld(t, 2, func(c *Config) { c.PutWait = time.Second })
				w.failOnce(n, persisted, boom)
				body := hashBody(digestOf("document"), metadata("1"), fileField("the file"), attached)
				caller := Caller{TenantID: alice, IdempotencyKey: "one"}
				a, err := w.submit(t.Context(), caller, body)
				for tries := 0; err != nil; tries++ {
					if tries == 3 {
						t.Fatalf("the retry is refused: %v", err)
					}
					a, err = w.submit(t.Context(), caller, body)
				}
				job := w.ended(alice, a)
				w.settled()
				checkOnce(t, w, a, job)
			})
		}
	}
}
