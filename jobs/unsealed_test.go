package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// keepFile sends one file that is not to be sealed, through the real splitter.
func (w *world) keepFile(ctx context.Context, c Caller, content string, p blob.Profile) (wire.Accepted, error) {
	w.t.Helper()
	if c.SubmissionID == "" {
		c.SubmissionID = wire.NewSubmissionID()
	}
	req, err := w.readFile(ctx, c, content, p)
	if err != nil {
		return wire.Accepted{}, err
	}
	return w.engine.Accept(ctx, c, req)
}

func (w *world) readFile(ctx context.Context, c Caller, content string, p blob.Profile) (*splitter.Request, error) {
	body := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n" + content + "\r\n--x--\r\n"
	return splitter.ReadFile(ctx, strings.NewReader(body), "multipart/form-data; boundary=x", splitter.FileConfig{
		Config:  splitter.Config{Uploader: w.archives, SubmissionID: c.SubmissionID, TenantID: c.TenantID},
		Profile: p,
	})
}

// TestUnsealedFileIsNotRead: its submission queues no message, and none may be
// promised.
func TestUnsealedFileIsNotRead(t *testing.T) {
	w := newWorld(t, 2, withWorker)
	c := Caller{TenantID: alice, SubmissionID: wire.NewSubmissionID()}
	req, err := w.readFile(t.Context(), c, "the file", blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	req.Files[0].OCR = true
	a, err := w.engine.Accept(t.Context(), c, req)
	if !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "text") {
		t.Errorf("Accept = %+v, %v", a, err)
	}
}

// mustKeep is keepFile for alice, of a file that must be kept.
func (w *world) mustKeep(content string) wire.Accepted {
	w.t.Helper()
	a, err := w.keepFile(w.t.Context(), Caller{TenantID: alice}, content, blob.Default)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// checkKept fails unless a file was kept once, on two archives, and nothing else
// came of it.
func (w *world) checkKept(a wire.Accepted) {
	w.t.Helper()
	records := w.archives.distinct()
	if len(records) != 1 || len(a.Parts) != 1 {
		w.t.Fatalf("%d records of %d parts", len(records), len(a.Parts))
	}
	r := records[a.Parts[0].RecordID]
	if r.Kind != wire.KindFile || r.SHA256 != a.SHA256 || r.File.SHA256 != a.SHA256 || r.TenantID != alice {
		w.t.Errorf("the record is %+v", r)
	}
	if n := w.archives.copies(a.Parts[0].RecordID); n < 2 {
		w.t.Errorf("it has %d copies", n)
	}
	if a.JobID != "" || a.StatusURL != "" {
		w.t.Errorf("it has a job: %+v", a)
	}
	if w.ledger.registers != 0 {
		w.t.Errorf("%d registrations", w.ledger.registers)
	}
	if events := w.events.bySubmission(a.SubmissionID); len(events) != 0 {
		w.t.Errorf("the events are %s", encode(w.t, events))
	}
	if n := w.archives.openUploads(); n != 0 {
		w.t.Errorf("%d uploads are left open", n)
	}
	for _, kind := range []byte{rowReservation, rowJob, rowEvent, rowUnannounced, rowOutbox, rowPending, rowByDigest} {
		if n := w.rows(kind); n != 0 {
			w.t.Errorf("%d rows of kind %c are left", n, kind)
		}
	}
	w.checkStore()
}

// checkStore has the checker read what the store holds now.
func (w *world) checkStore() {
	w.t.Helper()
	c := &checker{}
	err := w.engine.store.view(func(r pebble.Reader) error {
		c.r = r
		return c.run(w.t.Context())
	})
	if err := errors.Join(append(c.found, err)...); err != nil {
		w.t.Errorf("the store is not sound: %v", err)
	}
}

func TestUnsealedFileIsKeptAndNothingElse(t *testing.T) {
	w := newWorld(t, 3, nil)
	a := w.mustKeep("the file")
	if a.Parts[0].Copies < 1 || a.Parts[0].CID == "" || a.HashedFrom != splitter.FromFile {
		t.Errorf("the answer is %s", encode(t, a))
	}
	w.settled()
	w.checkKept(a)
	w.restart(nil)
	w.settled()
	w.checkKept(a)
}

// A file that was kept is no job of anybody's. Once its digest is sealed, by
// whomever, it is among the files.
func TestUnsealedFileShowsOnceItsDigestIsSealed(t *testing.T) {
	w := newWorld(t, 2, nil)
	first := w.mustKeep("the file")
	if _, err := w.engine.Receipts(t.Context(), alice, first.SHA256, true, nil); fault.CodeOf(err) != codeNotSealed {
		t.Errorf("before it is sealed: %v", err)
	}
	sealed, _ := w.must(bob, hashBody(first.SHA256))
	again, err := w.keepFile(t.Context(), Caller{TenantID: alice}, "the file", blob.Legacy)
	if err != nil || again.SubmissionID != first.SubmissionID { // of one chunk: one CID in both
		t.Errorf("the repeat: %s, %v", encode(t, again), err)
	}
	job, err := w.engine.Job(t.Context(), alice, sealed.JobID, View{IncludeAttached: new(true)})
	if err != nil || job.SubmissionID != "" || len(job.Files) != 1 || job.Files[0].RecordID != first.Parts[0].RecordID {
		t.Errorf("alice sees %s, %v", encode(t, job), err)
	}
	for _, tenant := range []wire.TenantID{alice, bob} {
		if _, err := w.engine.Job(t.Context(), tenant, sealed.JobID, View{SubmissionID: first.SubmissionID}); fault.CodeOf(err) != "JOB_NOT_FOUND" {
			t.Errorf("%s sees it as a job: %v", tenant, err)
		}
	}
	if job, err := w.engine.Job(t.Context(), bob, sealed.JobID, View{IncludeAttached: new(true)}); err != nil || len(job.Files) != 0 {
		t.Errorf("bob sees %s, %v", encode(t, job), err)
	}
}

// A repeat joins; what is to be sealed, or is another tenant's, does not.
func TestRepeatOfAnUnsealedFileJoins(t *testing.T) {
	w := newWorld(t, 2, nil)
	caller := Caller{TenantID: alice, IdempotencyKey: "one"}
	first, err := w.keepFile(t.Context(), caller, "the file", blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Caller{caller, {TenantID: alice}, {TenantID: alice, IdempotencyKey: "two"}} {
		again, err := w.keepFile(t.Context(), c, "the file", blob.Default)
		if err != nil || again.SubmissionID != first.SubmissionID {
			t.Errorf("%+v: submission %s, %v", c, again.SubmissionID, err)
		}
	}
	w.settled()
	w.checkKept(first)
	if _, err := w.keepFile(t.Context(), caller, "another file", blob.Default); fault.CodeOf(err) != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("the key with another file: %v", err)
	}
	if _, err := w.submit(t.Context(), caller, `{`+fileField("the file")+`}`); fault.CodeOf(err) != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("the key with the same file, to be sealed: %v", err)
	}
	sealed, _ := w.must(alice, `{`+fileField("the file")+`}`)
	foreign, err := w.keepFile(t.Context(), Caller{TenantID: bob}, "the file", blob.Default)
	if err != nil || sealed.SubmissionID == first.SubmissionID || foreign.SubmissionID == first.SubmissionID {
		t.Errorf("joined: sealed %s, foreign %s, first %s, %v", sealed.SubmissionID, foreign.SubmissionID, first.SubmissionID, err)
	}
}

// An answer means that PUT_MIN_COPIES archives have the file and its record; the
// others get it when they are back.
func TestUnsealedFileIsHealed(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.set("archive-b", func(n *node) { n.up = false })
	a := w.mustKeep("the file")
	if a.Parts[0].Copies != 1 || w.archives.copies(a.Parts[0].RecordID) != 1 {
		t.Errorf("the answer is %s", encode(t, a))
	}
	w.archives.set("archive-b", func(n *node) { n.up = true })
	w.engine.Nudge()
	w.settled()
	w.checkKept(a)
}

// A copy is made in the profile of the file, so that it has the same CID.
func TestFileIsHealedInItsProfile(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.set("archive-b", func(n *node) { n.up = false })
	content := strings.Repeat("0123456789abcdef", 20_000)
	for _, p := range []blob.Profile{blob.Default, blob.Legacy, {ChunkSize: 64 << 10, MaxLinks: 16}} {
		want, err := blob.SumReader(strings.NewReader(content), p)
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.keepFile(t.Context(), Caller{TenantID: alice}, content, p)
		if err != nil || a.Parts[0].CID != want.CID {
			t.Errorf("%+v: %s, %v, want %s", p, encode(t, a), err, want.CID)
		}
	}
	w.archives.set("archive-b", func(n *node) { n.up = true })
	w.engine.Nudge()
	w.settled()
	for id := range w.archives.distinct() {
		if n := w.archives.copies(id); n != 2 {
			t.Errorf("record %s has %d copies", id, n)
		}
	}
}

func TestUnsealedFileWithoutEnoughArchivesIsNotAnswered(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.PutMinCopies, c.PutWait = 2, 50*time.Millisecond })
	w.archives.set("archive-b", func(n *node) { n.refusePut = errDown })
	_, err := w.keepFile(t.Context(), Caller{TenantID: alice}, "the file", blob.Default)
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != codeNoArchive {
		t.Errorf("one copy of two: %v", err)
	}
	w.archives.set("archive-b", func(n *node) { n.refusePut = nil })
	w.config.PutWait = time.Minute
	w.restart(nil)
	a := w.mustKeep("the file")
	w.settled()
	w.checkKept(a)
}

// A file that the archives lost before it was kept is refused, tells nobody else,
// and may be sent again.
func TestUnsealedFileThatIsLostFailsQuietly(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.all(func(n *node) { n.forgetful = true })
	caller := Caller{TenantID: alice, IdempotencyKey: "one"}
	if _, err := w.keepFile(t.Context(), caller, "the file", blob.Default); fault.CodeOf(err) != "UPLOAD_LOST" {
		t.Errorf("it is %v", err)
	}
	if n := w.rows(rowEvent); n != 0 {
		t.Errorf("%d events", n)
	}
	w.checkStore()
	w.archives.all(func(n *node) { n.forgetful = false })
	a, err := w.keepFile(t.Context(), caller, "the file", blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.checkKept(a)
}

// What a tenant keeps unsealed can be retained, also while no archive answers.
func TestUnsealedFileCanBeRetained(t *testing.T) {
	w := newWorld(t, 2, nil)
	a := w.mustKeep("the file")
	w.settled()
	w.archives.all(func(n *node) { n.records = nil })
	out, err := w.engine.Steer(t.Context(), Steering{TenantID: alice, Kind: wire.KindRetain, SHA256: a.SHA256, Control: wire.Control{RetainUntil: in(2)}})
	if err != nil || out.Retention.RetainUntil != in(2) {
		t.Errorf("%+v, %v", out, err)
	}
	w.settled()
	w.checkStore()
}

// unsealedGaps are the places between the steps on the way of an unsealed file.
var unsealedGaps = []string{"accept.read", "accept.lookup", "accept.stored", "accept.uploads", "quiet.put", "quiet.ended", "accept.answer"}

// After a crash in any gap, and the client's retry, the file is kept once, with
// its copies; one that was acknowledged is never lost.
func TestCrashInAnyGapOfAnUnsealedFile(t *testing.T) {
	for _, gap := range unsealedGaps {
		for _, keep := range unsynced() {
			for _, archivesToo := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%v", gap, keep, archivesToo), func(t *testing.T) { crashUnsealed(t, gap, keep, archivesToo) })
			}
		}
	}
}

func crashUnsealed(t *testing.T, gap string, keep int, archivesToo bool) {
	w := newWorld(t, 3, func(c *Config) { c.PutWait = 5 * time.Second })
	c := &crasher{gap: gap, world: w, keep: keep, happy: make(chan struct{})}
	w.engine.step = c.step
	caller := Caller{TenantID: alice, IdempotencyKey: "one"}
	answered := make(chan error, 1)
	var first wire.Accepted
	go func() {
		var err error
		first, err = w.keepFile(t.Context(), caller, "the file", blob.Default)
		answered <- err
	}()
	<-c.happy
	if archivesToo {
		w.archives.all((*node).restart)
	}
	w.lose(c)
	acknowledged := <-answered == nil
	if acknowledged && !strings.HasPrefix(gap, "quiet.") {
		t.Error("a crash was acknowledged")
	}
	checkVisible(t, w)
	a, err := w.keepFile(t.Context(), caller, "the file", blob.Default)
	if fault.CodeOf(err) == "UPLOAD_LOST" && archivesToo {
		a, err = w.keepFile(t.Context(), caller, "the file", blob.Default)
	}
	if err != nil {
		t.Fatalf("the retry: %v", err)
	}
	if acknowledged && a.SubmissionID != first.SubmissionID {
		t.Errorf("submission %s was acknowledged, the retry made %s", first.SubmissionID, a.SubmissionID)
	}
	w.settled()
	if gap == "accept.read" || gap == "accept.lookup" {
		w.archives.all((*node).restart) // uploads that no submission names are swept when idle
	}
	w.checkKept(a)
}

// Every write of the job store fails once, without and with being persisted.
// Either way the retry keeps the file, once.
func TestStoreWriteFailsWhileAFileIsKept(t *testing.T) {
	boom := errors.New("injected")
	for n := range 4 {
		for _, persisted := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d persisted %v", n, persisted), func(t *testing.T) {
				w := newWorld(t, 2, func(c *Config) { c.PutWait = time.Second })
				w.failOnce(n, persisted, boom)
				caller := Caller{TenantID: alice, IdempotencyKey: "one"}
				a, err := w.keepFile(t.Context(), caller, "the file", blob.Default)
				for tries := 0; err != nil; tries++ {
					if tries == 3 {
						t.Fatalf("the retry is refused: %v", err)
					}
					a, err = w.keepFile(t.Context(), caller, "the file", blob.Default)
				}
				w.settled()
				w.checkKept(a)
			})
		}
	}
}

// The layout of an unsealed submission's row is frozen, with the profile of a file
// that is not the default.
func TestUnsealedRowLayoutIsFrozen(t *testing.T) {
	row, err := encodeRow(submission{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", Tenant: "acme", Digest: digestOf("file"), HashedFrom: splitter.FromFile,
		Placement: digestOf("place"), AttachedAt: "2026-01-02T03:04:05.000000006Z", Unsealed: true,
		Files: []file{{
			UploadID: "u", Size: 4, SHA256: digestOf("file"), CID: "bafkrei", Uploaded: []wire.ArchiveID{"archive-a"}, Committed: []wire.ArchiveID{"archive-a"},
			ChunkSize: blob.Legacy.ChunkSize, MaxLinks: blob.Legacy.MaxLinks,
		}},
		Parts:       []part{{Kind: wire.KindFile, Size: 4, SHA256: digestOf("file"), RecordID: wire.RecordID(digestOf("record")), File: 1, Acks: []wire.ArchiveID{"archive-a"}}},
		UploadsDone: true, Stored: true, Status: wire.StatusCompleted,
	})
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "unsealed.row")
	if os.Getenv("UPDATE_GOLDEN") == "true" {
		if err := os.WriteFile(golden, row, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(row, want) {
		t.Errorf("it changed:\n%q\n%q", row, want)
	}
}
