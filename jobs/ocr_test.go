package jobs

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/bridge/envelope"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// fetchers are tenants whose files somebody may fetch.
type fetchers []wire.TenantID

func (f fetchers) FetchesFiles(t wire.TenantID) bool { return slices.Contains(f, t) }

// withWorker lets somebody fetch alice's files.
func withWorker(c *Config) { c.Fetchers = fetchers{alice} }

const ocr = `"ocr":true`

// claimOCR claims all messages that wait, as a bridge with a lease of a minute, and
// checks each against the contract.
func (w *world) claimOCR() (items []wire.OutboxItem) {
	w.t.Helper()
	got, err := w.engine.ClaimOCR(w.t.Context(), wire.OutboxClaim{Max: wire.MaxOutboxItems, LeaseMs: 60_000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, item := range got.Items {
		message, err := envelope.Parse(item.Envelope)
		if err != nil || message.ID != item.ID || message.Attempt != 1 {
			w.t.Errorf("item %s is %s: %v", item.ID, item.Envelope, err)
		}
		w.resolves(message)
	}
	return got.Items
}

// resolves insists that an archive has the file of a message, on its disk.
func (w *world) resolves(message envelope.Envelope) {
	w.t.Helper()
	job, err := message.OCRJob()
	if err != nil {
		w.t.Errorf("%s: %v", message.Bytes(), err)
		return
	}
	found := false
	w.archives.all(func(n *node) {
		for c, data := range n.files {
			sum := sha1.Sum(data)
			found = found || c.CID == job.IPFSCID && hex.EncodeToString(sum[:]) == job.SHA1 && job.Bytes != nil && int64(len(data)) == *job.Bytes
		}
	})
	recorded := false
	for _, r := range w.archives.distinct() {
		recorded = recorded || r.File != nil && r.File.CID == job.IPFSCID && job.Origin.Ref == fmt.Sprintf("verae/%s/%s", r.SubmissionID, r.ID)
	}
	if !found || !recorded {
		w.t.Errorf("a message is out before its CID resolves: file %v, record %v: %s", found, recorded, message.Bytes())
	}
}

func (w *world) doneOCR(ids ...wire.EnvelopeID) int {
	w.t.Helper()
	got, err := w.engine.DoneOCR(w.t.Context(), wire.OutboxDone{IDs: ids})
	if err != nil {
		w.t.Fatal(err)
	}
	return got.Done
}

func ids(items []wire.OutboxItem) (list []wire.EnvelopeID) {
	for _, item := range items {
		list = append(list, item.ID)
	}
	return list
}

// Each file whose text is asked for has one message, in the order of the files,
// and the others have none.
func TestOCRIsQueuedForEachFileThatAsks(t *testing.T) {
	w := newWorld(t, 2, withWorker)
	a, _ := w.must(alice, hashBody(digestOf("document"), `"files":[{"name":"a.pdf","dataBase64":"YQ=="},{"name":"b.pdf","dataBase64":"Yg==","ocr":false},{"dataBase64":"Yw=="}]`, ocr))
	items := w.claimOCR()
	var names []string
	for _, item := range items {
		message, err := envelope.Parse(item.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		job, err := message.OCRJob()
		if err != nil {
			t.Fatal(err)
		}
		if want := "verae/" + string(a.SubmissionID) + "/"; job.Origin.Domain != "manual" || !strings.HasPrefix(job.Origin.Ref, want) || job.Kind != "ocr" {
			t.Errorf("%s", item.Envelope)
		}
		names = append(names, job.Filename)
	}
	if want := []string{"a.pdf", a.Parts[2].CID}; !slices.Equal(names, want) {
		t.Errorf("messages are of %q, want %q", names, want)
	}
	if again := w.claimOCR(); len(again) != 0 {
		t.Errorf("%d messages were handed out twice", len(again))
	}
	if n := w.doneOCR(ids(items)...); n != 2 {
		t.Errorf("%d left the outbox", n)
	}
	if n := w.doneOCR(ids(items)...); n != 0 {
		t.Errorf("%d left the outbox a second time", n)
	}
}

// The same file, attached by the same tenant to the same digest, is read once:
// whatever else differs, and also when the message is long gone. Another tenant,
// digest or file is another job.
func TestSameAttachmentIsReadOnce(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.Fetchers = fetchers{alice, bob} })
	twice := `"files":[{"name":"x","dataBase64":"YQ=="},{"name":"y","dataBase64":"YQ=="}]`
	w.must(alice, hashBody(digestOf("document"), twice, ocr))
	first := w.claimOCR()
	if len(first) != 1 {
		t.Fatalf("%d messages for one file that was sent twice", len(first))
	}
	w.must(alice, hashBody(digestOf("document"), metadata("2"), twice, ocr))
	w.doneOCR(ids(first)...)
	w.must(alice, hashBody(digestOf("document"), metadata("3"), twice, ocr))
	if n := len(w.claimOCR()); n != 0 {
		t.Errorf("%d further messages for the same attachment", n)
	}
	w.must(bob, hashBody(digestOf("document"), twice, ocr))
	w.must(alice, hashBody(digestOf("another"), twice, ocr))
	w.must(alice, hashBody(digestOf("document"), fileField("b"), ocr))
	if n := len(w.claimOCR()); n != 3 {
		t.Errorf("%d messages for three other attachments", n)
	}
}

// A request for the text of a file is another request than one without.
func TestOCRIsPartOfTheFingerprint(t *testing.T) {
	w := newWorld(t, 2, withWorker)
	plain, _ := w.must(alice, hashBody(digestOf("document"), fileField("file")))
	asks, _ := w.must(alice, hashBody(digestOf("document"), fileField("file"), ocr))
	again, _ := w.must(alice, hashBody(digestOf("document"), fileField("file"), ocr))
	if plain.SubmissionID == asks.SubmissionID || asks.SubmissionID != again.SubmissionID {
		t.Errorf("submissions %s, %s, %s", plain.SubmissionID, asks.SubmissionID, again.SubmissionID)
	}
	if n := len(w.claimOCR()); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// Without anybody who could fetch the file nothing is taken; a request that was
// taken before is answered all the same.
func TestOCRWithoutAWorkerIsRefusedAndLeavesNothing(t *testing.T) {
	w := newWorld(t, 2, withWorker)
	body := hashBody(digestOf("document"), fileField("file"), ocr)
	_, err := w.submit(t.Context(), Caller{TenantID: bob}, body)
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "OCR_NO_WORKER" || fault.FieldOf(err) != "ocr" || !strings.Contains(err.Error(), "verae keys create") {
		t.Errorf("%v", err)
	}
	if n := w.archives.openUploads(); n != 0 {
		t.Errorf("%d uploads are left open", n)
	}
	if n, err := w.engine.Pending(); n != 0 || err != nil || w.ledger.registers != 0 || len(w.archives.distinct()) != 0 {
		t.Errorf("refused requests left %d submissions, %d registrations, %v", n, w.ledger.registers, err)
	}
	for _, share := range []string{`"public":true`, `"shareWith":["` + string(alice) + `"]`} {
		if _, err := w.submit(t.Context(), Caller{TenantID: bob}, hashBody(digestOf("shared"), fileField("file"), ocr, share)); err != nil {
			t.Errorf("%s, so that somebody may fetch it: %v", share, err)
		}
	}
	first, _ := w.must(alice, body)
	w.engine.cfg.Fetchers = nil
	again, err := w.submit(t.Context(), Caller{TenantID: alice}, body)
	if err != nil || again.SubmissionID != first.SubmissionID {
		t.Errorf("the repeated request: %s, %v", again.SubmissionID, err)
	}
}

// While archives are away there is no message; a submission that fails has none.
func TestOCRWaitsUntilTheFileIsStored(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { withWorker(c); c.PutWait = 10 * time.Millisecond })
	w.archives.all(func(n *node) { n.refusePut = fault.New(fault.Transient, "BUSY", "busy") })
	body := hashBody(digestOf("document"), fileField("file"), ocr)
	if _, err := w.submit(t.Context(), Caller{TenantID: alice}, body); !fault.Is(err, fault.Transient) {
		t.Fatal(err)
	}
	if n := len(w.claimOCR()); n != 0 {
		t.Errorf("%d messages of a file that is on no archive", n)
	}
	w.archives.all(func(n *node) { n.refusePut = nil })
	w.engine.Nudge()
	w.settled()
	if n := len(w.claimOCR()); n != 1 {
		t.Errorf("%d messages", n)
	}
	w.archives.all(func(n *node) { n.forgetful = true })
	lost := hashBody(digestOf("lost"), fileField("lost"), ocr)
	if _, err := w.submit(t.Context(), Caller{TenantID: alice}, lost); fault.CodeOf(err) != "UPLOAD_LOST" && fault.CodeOf(err) != codeNoArchive {
		t.Errorf("%v", err)
	}
	w.settled()
	if n := len(w.claimOCR()); n != 0 {
		t.Errorf("%d messages of a file that was lost", n)
	}
	w.archives.all(func(n *node) { n.forgetful = false })
	w.must(alice, lost)
	if n := len(w.claimOCR()); n != 1 {
		t.Errorf("%d messages of the file that was sent again", n)
	}
}

// outboxOf is an engine that has nothing but messages in its store.
func outboxOf(t *testing.T, fs vfs.FS, create bool, messages int) *Engine {
	t.Helper()
	e := &Engine{cfg: Config{}.withDefaults(), store: memStore(t, fs, create), metrics: newMetrics(), ocr: ocrOutbox{leased: map[wire.EnvelopeID]time.Time{}}}
	err := e.store.update(t.Context(), func(tx *tx) error {
		for i := range messages {
			s := &submission{ID: wire.NewSubmissionID(), Tenant: alice, Digest: digestOf("document"), Files: []file{{
				OCR: true, SHA256: digestOf(fmt.Sprint(i)), CID: "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
			}}}
			if n, err := tx.queueOCR(s, time.Now()); err != nil || n != 1 {
				return fmt.Errorf("queued %d: %w", n, err)
			}
		}
		return nil
	})
	if err == nil {
		err = e.countOCR()
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A claim hands out the oldest that nobody has; what is not done comes again, byte
// for byte, at the end of its lease and not before; what is done never does.
func TestLeasesOfOCRMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := outboxOf(t, vfs.NewMem(), true, 5)
		defer closeStore(t, e.store)
		claim := func(most int, lease time.Duration) []wire.OutboxItem {
			t.Helper()
			got, err := e.ClaimOCR(t.Context(), wire.OutboxClaim{Max: most, LeaseMs: lease.Milliseconds()})
			if err != nil {
				t.Fatal(err)
			}
			return got.Items
		}
		first := claim(2, 10*time.Second)
		second := claim(100, 30*time.Second)
		if len(first) != 2 || len(second) != 3 || len(claim(100, time.Second)) != 0 {
			t.Fatalf("claimed %d and %d of 5", len(first), len(second))
		}
		if all := ids(slices.Concat(first, second)); !slices.IsSorted(all) {
			t.Errorf("not in order: %v", all)
		}
		time.Sleep(10*time.Second - 1)
		if n := len(claim(100, time.Second)); n != 0 {
			t.Errorf("%d came before their lease ended", n)
		}
		time.Sleep(time.Nanosecond)
		if diff := cmp.Diff(first, claim(100, 5*time.Second)); diff != "" {
			t.Errorf("what comes again differs: %s", diff)
		}
		if got, err := e.DoneOCR(t.Context(), wire.OutboxDone{IDs: append(ids(first[:1]), ids(first[:1])...)}); err != nil || got.Done != 1 {
			t.Errorf("done: %+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		// Late is better than never: the lease has ended, and it was published.
		if got, err := e.DoneOCR(t.Context(), wire.OutboxDone{IDs: ids(second)}); err != nil || got.Done != 3 {
			t.Errorf("done late: %+v, %v", got, err)
		}
		if diff := cmp.Diff(first[1:], claim(100, time.Second)); diff != "" {
			t.Errorf("left: %s", diff)
		}
		if n := e.ocr.waiting.Load(); n != 1 {
			t.Errorf("%d wait", n)
		}
	})
}

func TestOldestOCRMessageTellsItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := outboxOf(t, vfs.NewMem(), true, 0)
		defer closeStore(t, e.store)
		if got := e.oldestOCR(); got != 0 {
			t.Errorf("an empty outbox is %v s old", got)
		}
	})
	e := outboxOf(t, vfs.NewMem(), true, 1)
	defer closeStore(t, e.store)
	e.cfg.Now = func() time.Time { return time.Now().Add(time.Hour) }
	if got := e.oldestOCR(); got < 3600 || got > 3660 {
		t.Errorf("the oldest is %v s old", got)
	}
}

func TestClaimedOCRMessagesAreBounded(t *testing.T) {
	e := outboxOf(t, vfs.NewMem(), true, maxLeased+1)
	defer closeStore(t, e.store)
	total := 0
	for range maxLeased/wire.MaxOutboxItems + 2 {
		got, err := e.ClaimOCR(t.Context(), wire.OutboxClaim{Max: wire.MaxOutboxItems, LeaseMs: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		total += len(got.Items)
	}
	if total != maxLeased {
		t.Errorf("%d are handed out at a time, want %d", total, maxLeased)
	}
	for _, bad := range []wire.OutboxClaim{{}, {Max: 1}, {Max: wire.MaxOutboxItems + 1, LeaseMs: 1000}} {
		if _, err := e.ClaimOCR(t.Context(), bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := e.DoneOCR(t.Context(), wire.OutboxDone{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("done of nothing: %v", err)
	}
}

// A message whose row is damaged stays, and holds up no other.
func TestDamagedOCRMessageHoldsUpNobody(t *testing.T) {
	e := outboxOf(t, vfs.NewMem(), true, 2)
	defer closeStore(t, e.store)
	var first []byte
	err := e.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{rowOCRWaiting}, func(key, _ []byte) (bool, error) { first = key; return false, nil })
	})
	if err == nil {
		err = e.store.update(t.Context(), func(tx *tx) error { tx.set(first, []byte{1, 2, 3}); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 10, LeaseMs: 1000})
	if err != nil || len(got.Items) != 1 || bytes.Equal(ocrWaitingKey(got.Items[0].ID), first) {
		t.Errorf("%+v, %v", got, err)
	}
	id := wire.EnvelopeID(uuidText(first[1:]))
	if _, err := e.DoneOCR(t.Context(), wire.OutboxDone{IDs: []wire.EnvelopeID{id}}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("done of a damaged one: %v", err)
	}
}

// After a power loss what was claimed comes again, byte for byte, and what was
// done stays done.
func TestCrashAroundClaimAndDone(t *testing.T) {
	for _, keep := range unsynced() {
		fs := vfs.NewCrashableMem()
		e := outboxOf(t, fs, true, 3)
		claimed, err := e.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 10, LeaseMs: 600_000})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.DoneOCR(t.Context(), wire.OutboxDone{IDs: ids(claimed.Items[1:2])}); err != nil || got.Done != 1 {
			t.Fatalf("done: %+v, %v", got, err)
		}
		left := (&world{fs: fs}).crash(keep)
		closeStore(t, e.store)
		again := outboxOf(t, left, false, 0)
		got, err := again.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 10, LeaseMs: 1000})
		if want := []wire.OutboxItem{claimed.Items[0], claimed.Items[2]}; err != nil || cmp.Diff(want, got.Items) != "" {
			t.Errorf("%s, %v", cmp.Diff(want, got.Items), err)
		}
		if n := again.ocr.waiting.Load(); n != 2 {
			t.Errorf("%d wait", n)
		}
		closeStore(t, again.store)
	}
}

// Every write of the store fails once on the way of a message, without and with
// being persisted: there is one message all the same, and it ends once.
func TestStoreWriteFailsOnTheWayOfAMessage(t *testing.T) {
	for n := range 6 {
		for _, persisted := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d persisted %v", n, persisted), func(t *testing.T) {
				w := newWorld(t, 2, func(c *Config) { withWorker(c); c.PutWait = time.Second })
				w.failOnce(n, persisted, errors.New("injected"))
				body := hashBody(digestOf("document"), fileField("the file"), ocr)
				caller := Caller{TenantID: alice, IdempotencyKey: "one"}
				a, err := w.submit(t.Context(), caller, body)
				for tries := 0; err != nil; tries++ {
					if tries == 3 {
						t.Fatalf("the retry is refused: %v", err)
					}
					a, err = w.submit(t.Context(), caller, body)
				}
				w.ended(alice, a)
				w.settled()
				w.onceRead(persisted)
			})
		}
	}
}

// onceRead insists that exactly one message waits, and publishes it while the store
// fails once more.
func (w *world) onceRead(persisted bool) {
	w.t.Helper()
	items := w.claimOCR()
	if len(items) != 1 {
		w.t.Fatalf("%d messages", len(items))
	}
	w.failOnce(0, persisted, errors.New("injected"))
	if _, err := w.engine.DoneOCR(w.t.Context(), wire.OutboxDone{IDs: ids(items)}); err == nil {
		w.t.Error("a write that failed is reported as done")
	}
	want := 1
	if persisted {
		want = 0
	}
	if n := w.doneOCR(ids(items)...); n != want {
		w.t.Errorf("%d left the outbox at the second try, want %d", n, want)
	}
	w.must(alice, hashBody(digestOf("document"), metadata("later"), fileField("the file"), ocr))
	if n := len(w.claimOCR()); n != 0 {
		w.t.Errorf("%d messages of the same attachment", n)
	}
}

// What leaves a submission in the middle of its way leaves no message, or one.
func TestCrashInAnyGapOfAMessage(t *testing.T) {
	for _, gap := range gaps {
		for _, keep := range unsynced() {
			t.Run(fmt.Sprintf("%s/%d", gap, keep), func(t *testing.T) {
				w := newWorld(t, 2, func(c *Config) { withWorker(c); c.PutWait = 5 * time.Second })
				c := &crasher{gap: gap, world: w, keep: keep, happy: make(chan struct{})}
				w.engine.step = c.step
				body := hashBody(digestOf("document"), fileField("the file"), ocr)
				caller := Caller{TenantID: alice, IdempotencyKey: "one"}
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					_, _ = w.submit(t.Context(), caller, body) // what it says is of the process without power
				}()
				w.lose(c)
				<-answered
				w.claimOCR() // whatever is out already resolves
				retry, err := w.submit(t.Context(), caller, body)
				if err != nil {
					t.Fatalf("the retry: %v", err)
				}
				w.ended(alice, retry)
				w.settled()
				w.engine.ocr.release(allWaiting(t, w.engine)) // as if the leases had ended
				w.onceRead(false)
			})
		}
	}
}

// allWaiting are the ids of all messages that wait.
func allWaiting(t *testing.T, e *Engine) (list []wire.EnvelopeID) {
	t.Helper()
	err := e.store.view(func(r pebble.Reader) error {
		return waitingOCR(r, func(id wire.EnvelopeID, _ []byte) bool { list = append(list, id); return true })
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Many bridges that claim, publish and die at random publish every message, and
// nobody has one that another holds.
func TestManyBridgesShareTheOutbox(t *testing.T) {
	n := need.Rounds(300, 3000)
	e := outboxOf(t, vfs.NewMem(), true, n)
	defer closeStore(t, e.store)
	done := make(chan int)
	for i := range 4 {
		go func() {
			total := 0
			defer func() { done <- total }()
			for {
				got, err := e.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 1 + i*7, LeaseMs: 600_000})
				if err != nil || len(got.Items) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				count, err := e.DoneOCR(t.Context(), wire.OutboxDone{IDs: ids(got.Items)})
				if err != nil || count.Done != len(got.Items) {
					t.Errorf("%d of %d: another had them too: %v", count.Done, len(got.Items), err)
				}
				total += count.Done
			}
		}()
	}
	total := 0
	for range 4 {
		total += <-done
	}
	if total != n || e.ocr.waiting.Load() != 0 {
		t.Errorf("%d of %d were published, %d wait", total, n, e.ocr.waiting.Load())
	}
}

func TestOCRRowLayoutIsFrozen(t *testing.T) {
	job := ocrJob{
		JobID: "ocr_verae_1ad8e650a3306fdb97ff39d0d306d3fa", Tenant: "acme", Submission: "0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a4b",
		File: wire.RecordID(digestOf("record")), Envelope: "0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70",
		QueuedAt: "2026-11-30T14:02:11.123456789Z", DoneAt: "2026-11-30T14:02:12.000000000Z",
	}
	row, err := encodeRow(job)
	if err != nil {
		t.Fatal(err)
	}
	message, err := os.ReadFile("../bridge/envelope/testdata/ocr_job.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][]byte{"ocr-job.row": row, "ocr-waiting.row": frameRow(bytes.TrimSpace(message))} {
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") == "true" {
			if err := os.WriteFile(golden, row, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(row, want) {
			t.Errorf("%s changed, %v:\n%q\n%q", name, err, row, want)
		}
	}
	if back, err := decodeRow[ocrJob](nil, row); err != nil || back != job {
		t.Errorf("the frozen row reads %+v, %v", back, err)
	}
	if key := ocrJobKey(job.JobID); hex.EncodeToString(key[1:]) != strings.TrimPrefix(job.JobID, "ocr_verae_") || key[0] != 'g' {
		t.Errorf("the key is %x", key)
	}
	if key := ocrWaitingKey(job.Envelope); string(job.Envelope) != uuidText(key[1:]) || key[0] != 'q' {
		t.Errorf("the key is %x", key)
	}
}
