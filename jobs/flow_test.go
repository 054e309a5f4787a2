package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

const (
	alice wire.TenantID = "alice"
	bob   wire.TenantID = "bob"
)

func digestOf(s string) wire.Digest { return sha256.Sum256([]byte(s)) }

func quote(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// hashBody is a request with a digest and any further fields.
func hashBody(d wire.Digest, fields ...string) string {
	return "{" + strings.Join(append([]string{fmt.Sprintf(`"sha256":%q`, d)}, fields...), ",") + "}"
}

func metadata(v string) string { return fmt.Sprintf(`"publicMetadata":{"v":%q}`, v) }
func fileField(s string) string {
	return fmt.Sprintf(`"files":[{"name":"f.txt","dataBase64":%q}]`, quote(s))
}

const attached = `"includeAttached":true`

func TestAlreadySealedReturnsTheOriginalJobAndSeal(t *testing.T) {
	w := newWorld(t, 3, nil)
	d := digestOf("document")
	first, before := w.must(alice, hashBody(d))
	second, after := w.must(bob, hashBody(d))
	if *first.AlreadySealed || !*second.AlreadySealed || *before.AlreadySealed || !*after.AlreadySealed {
		t.Errorf("alreadySealed: %v %v, then %v %v", *first.AlreadySealed, *before.AlreadySealed, *second.AlreadySealed, *after.AlreadySealed)
	}
	if first.JobID != second.JobID || first.SubmissionID == second.SubmissionID {
		t.Errorf("two submissions of one digest: job %s and %s, submission %s and %s", first.JobID, second.JobID, first.SubmissionID, second.SubmissionID)
	}
	if got, want := encode(t, after.Receipts), encode(t, before.Receipts); got != want {
		t.Errorf("the second seal differs:\n%s\n%s", got, want)
	}
	if w.ledger.registers != 1 {
		t.Errorf("the chain was asked to register %d times", w.ledger.registers)
	}
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := wire.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFlagOffShowsTheSealAlone(t *testing.T) {
	w := newWorld(t, 3, nil)
	d := digestOf("document")
	a, job := w.must(alice, hashBody(d, metadata("1"), fileField("file")))
	if len(job.Receipts) != 1 || job.Receipts[0].Kind != wire.ReceiptSeal || len(job.Files) != 0 || job.ArchivesQueried {
		t.Errorf("with the flag off the job shows %s", encode(t, job))
	}
	if len(a.Parts) != 2 || a.Parts[0].Copies != 2 || a.Parts[1].CID == "" {
		t.Errorf("the answer does not echo the parts: %s", encode(t, a.Parts))
	}
	on := true
	job, err := w.engine.Job(t.Context(), alice, a.JobID, View{IncludeAttached: &on})
	if err != nil {
		t.Fatal(err)
	}
	if len(job.Receipts) != 2 || len(job.Files) != 1 || !job.Complete || job.ArchiveReplies != 2 {
		t.Errorf("asked with the flag on the job shows %s", encode(t, job))
	}
}

func TestLaterAttachmentsComeInTimeOrder(t *testing.T) {
	w := newWorld(t, 3, nil)
	d := digestOf("document")
	for i := range 5 {
		w.must(alice, hashBody(d, metadata(fmt.Sprint(i))))
	}
	_, job := w.must(alice, hashBody(d, metadata("5"), attached))
	var got []string
	for _, r := range job.Receipts[1:] {
		got = append(got, string(r.PublicMetadata))
	}
	want := []string{`{"v":"0"}`, `{"v":"1"}`, `{"v":"2"}`, `{"v":"3"}`, `{"v":"4"}`, `{"v":"5"}`}
	if job.Receipts[0].Kind != wire.ReceiptSeal || !slices.Equal(got, want) {
		t.Errorf("receipts in the order %v, want the seal and %v", got, want)
	}
	if w.ledger.registers != 1 {
		t.Errorf("%d registrations for one digest", w.ledger.registers)
	}
}

func TestParallelFirstSubmissionsAreOneSeal(t *testing.T) {
	w := newWorld(t, 3, nil)
	d := digestOf("document")
	const n = 64
	jobs, accepted := make([]wire.Job, n), make([]wire.Accepted, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			tenant := []wire.TenantID{alice, bob}[i%2]
			a, err := w.submit(t.Context(), Caller{TenantID: tenant}, hashBody(d, metadata(fmt.Sprint(i)), attached))
			if err != nil {
				t.Error(err)
				return
			}
			accepted[i], jobs[i] = a, w.ended(tenant, a)
		})
	}
	wg.Wait()
	for i := range n {
		if encode(t, jobs[i].Receipts[0]) != encode(t, jobs[0].Receipts[0]) {
			t.Errorf("submission %d has another seal", i)
		}
		if _, err := w.engine.Job(t.Context(), alice, accepted[i].JobID, View{}); err != nil {
			t.Errorf("job %s, given to submission %d, does not resolve: %v", accepted[i].JobID, i, err)
		}
	}
	if got := len(w.archives.distinct()); got != n {
		t.Errorf("%d records for %d submissions", got, n)
	}
	for tenant, want := range map[wire.TenantID]int{alice: n / 2, bob: n / 2} {
		job, err := w.engine.Receipts(t.Context(), tenant, d, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(job.Receipts) - 1; got != want {
			t.Errorf("%s sees %d attachments of %d", tenant, got, want)
		}
	}
}

func TestFileIsAttachedToTheGivenDigest(t *testing.T) {
	w := newWorld(t, 3, nil)
	d := digestOf("something else")
	a, job := w.must(alice, hashBody(d, fileField("the file"), attached))
	if job.SHA256 != d || len(job.Files) != 1 || job.Files[0].SHA256 != digestOf("the file") {
		t.Fatalf("the job is %s", encode(t, job))
	}
	own, err := w.engine.Receipts(t.Context(), alice, digestOf("the file"), true, nil)
	if err != nil {
		t.Fatalf("the file's own digest is not sealed: %v", err)
	}
	if own.JobID == a.JobID || len(own.Files) != 1 {
		t.Errorf("the file's own digest has the job %s", encode(t, own))
	}
	if _, err := w.engine.Job(t.Context(), alice, own.JobID, View{}); err != nil {
		t.Errorf("the file's job id does not resolve: %v", err)
	}
	body, err := w.engine.File(t.Context(), alice, job.Files[0].ID)
	if err != nil || body.SHA256 != digestOf("the file") || len(body.ArchiveIDs) != 2 {
		t.Errorf("the file is found as %+v, %v", body, err)
	}
}

func TestNobodySeesWhatIsNotHis(t *testing.T) {
	w := newWorld(t, 3, nil)
	d := digestOf("document")
	a, job := w.must(alice, hashBody(d, metadata("alice's"), `"privateMetadata":{"secret":"alice's"}`, fileField("alice's file"), attached))
	if got := string(job.Receipts[1].PrivateMetadata); got != `{"secret":"alice's"}` {
		t.Errorf("her own private metadata reads %s", got)
	}
	on := true
	theirs, err := w.engine.Job(t.Context(), bob, a.JobID, View{IncludeAttached: &on})
	if err != nil {
		t.Fatal(err)
	}
	if text := encode(t, theirs); len(theirs.Receipts) != 1 || strings.Contains(text, "alice") || strings.Contains(text, string(a.SubmissionID)) {
		t.Errorf("another tenant sees %s", text)
	}
	if _, err := w.engine.Job(t.Context(), bob, a.JobID, View{SubmissionID: a.SubmissionID}); fault.CodeOf(err) != "JOB_NOT_FOUND" {
		t.Errorf("another tenant's submission: %v", err)
	}
	for _, id := range []wire.RecordID{job.Files[0].ID, job.Receipts[1].RecordID, job.Receipts[1].PrivateRecordID} {
		_, foreign := w.engine.Record(t.Context(), bob, id, false)
		_, absent := w.engine.Record(t.Context(), bob, wire.RecordID(digestOf("nothing")), false)
		if foreign == nil || absent == nil || foreign.Error() != absent.Error() {
			t.Errorf("record %s: foreign says %v, absent says %v", id, foreign, absent)
		}
	}
	// The link from her file to her subject stays hers, also when he seals the
	// same file himself.
	_, his := w.must(bob, fmt.Sprintf(`{"dataBase64":%q,"includeAttached":true}`, quote("alice's file")))
	if text := encode(t, his); len(his.Receipts) != 1 || len(his.Files) != 0 || strings.Contains(text, d.String()) {
		t.Errorf("a tenant who has the same file sees %s", text)
	}
	for id, r := range w.archives.distinct() {
		if r.Kind == wire.KindPrivateMetadata && strings.Contains(string(r.Body), "secret") {
			t.Errorf("record %s is in clear", id)
		}
	}
	for _, event := range w.announced(a.SubmissionID) {
		if text := encode(t, event); strings.Contains(text, "secret") {
			t.Errorf("an event carries private metadata: %s", text)
		}
	}
}

func TestRecordIsExact(t *testing.T) {
	w := newWorld(t, 2, nil)
	exact := "{ \"n\" : 1152921504606846976,\n \"s\":\"<é\u2028\" }"
	_, job := w.must(alice, hashBody(digestOf("document"), `"publicMetadata":`+exact, `"privateMetadata":`+exact, attached))
	for _, id := range []wire.RecordID{job.Receipts[1].RecordID, job.Receipts[1].PrivateRecordID} {
		body, err := w.engine.Record(t.Context(), alice, id, false)
		if err != nil || string(body.Bytes) != exact {
			t.Errorf("record %s reads %q, %v; want %q", id, body.Bytes, err, exact)
		}
	}
	sealed, err := w.engine.Record(t.Context(), alice, job.Receipts[1].PrivateRecordID, true)
	if err != nil || strings.Contains(string(sealed.Bytes), "1152921504606846976") {
		t.Errorf("the sealed record reads %q, %v", sealed.Bytes, err)
	}
}

func TestKindsOfReceiptsAndOfRecords(t *testing.T) {
	w := newWorld(t, 2, nil)
	d := digestOf("document")
	w.must(alice, hashBody(d, metadata("1"), `"privateMetadata":{"secret":1}`, fileField("file"), fmt.Sprintf(`"attachments":[{"kind":"note","dataBase64":%q}]`, quote("n"))))
	for kind, want := range map[wire.Kind][2]int{ // receipts beside the seal, files
		"": {2, 1}, wire.ReceiptMetadataAttach: {1, 0}, "note": {1, 0}, wire.KindFile: {0, 1}, wire.KindMetadata: {1, 0}, "other": {0, 0}, wire.ReceiptSeal: {0, 0},
	} {
		var kinds []wire.Kind
		if kind != "" {
			kinds = []wire.Kind{kind}
		}
		job, err := w.engine.Receipts(t.Context(), alice, d, true, kinds)
		if err != nil || len(job.Receipts)-1 != want[0] || len(job.Files) != want[1] || !job.Complete {
			t.Errorf("kinds %q: %s, %v", kind, encode(t, job), err)
		}
	}
}

func TestSealMetadataSealsItsDigestToo(t *testing.T) {
	w := newWorld(t, 2, nil)
	_, job := w.must(alice, hashBody(digestOf("document"), metadata("1"), `"sealMetadata":true`, attached))
	seal := job.Receipts[1].PublicMetadataSeal
	if seal == nil || seal.Certificate == "" || job.Receipts[1].PublicMetadataSHA256 != digestOf(`{"v":"1"}`) {
		t.Fatalf("the metadata's receipt is %s", encode(t, job.Receipts[1]))
	}
	own, err := w.engine.Receipts(t.Context(), alice, digestOf(`{"v":"1"}`), false, nil)
	if err != nil || own.Receipts[0].Certificate != seal.Certificate {
		t.Errorf("the metadata's own job: %v, %s", err, encode(t, own))
	}
}

func TestUnsupportedIsRefusedAndLeavesNothing(t *testing.T) {
	w := newWorld(t, 2, nil)
	for _, field := range []string{`"callbackUrl":"https://example.com/"`} {
		_, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), fileField("file"), field))
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "UNSUPPORTED" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := w.archives.openUploads(); n != 0 {
		t.Errorf("%d uploads are left open", n)
	}
	if n, err := w.engine.Pending(); n != 0 || err != nil || w.ledger.registers != 0 || len(w.archives.distinct()) != 0 {
		t.Errorf("refused requests left %d submissions, %d registrations, %v", n, w.ledger.registers, err)
	}
}

// A job that completes between the answer and the wait is seen at once (NA-03).
func TestWaitNeverMissesTheEnd(t *testing.T) {
	w := newWorld(t, 1, nil)
	for i := range 1000 {
		a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf(fmt.Sprint(i))))
		if err != nil {
			t.Fatal(err)
		}
		w.ended(alice, a)
	}
	w.engine.hub.mu.Lock()
	defer w.engine.hub.mu.Unlock()
	if n := len(w.engine.hub.waiters); n != 0 {
		t.Errorf("%d waiters are left behind", n)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.ledger.setDown(errors.New("down"))
	a, err := w.submit(t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.engine.Wait(ctx, alice, a.SubmissionID); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose client left: %v", err)
	}
	if _, err := w.engine.Wait(t.Context(), alice, wire.NewSubmissionID()); !fault.Is(err, fault.NotFound) {
		t.Errorf("a wait for nothing: %v", err)
	}
	if _, err := w.engine.Wait(t.Context(), bob, a.SubmissionID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a wait for another tenant's: %v", err)
	}
}

func TestSeedWatchIsAPureHash(t *testing.T) {
	w := newWorld(t, 1, nil)
	watch := wire.Watch{JobID: wire.NewJobID(), SHA256: digestOf("document"), TenantID: alice, IncludeAttached: true}
	for range 3 {
		if err := w.engine.Watch(t.Context(), watch); err != nil {
			t.Fatal(err)
		}
	}
	w.settled()
	job, err := w.engine.Job(t.Context(), alice, watch.JobID, View{})
	if err != nil || job.Status != wire.StatusCompleted || job.JobID != watch.JobID {
		t.Fatalf("the watched job is %s, %v", encode(t, job), err)
	}
	events := w.announced(job.SubmissionID)
	if len(events) != 1 || events[0].Event != wire.EventCompleted {
		t.Errorf("its events are %s", encode(t, events))
	}
	other := watch
	other.SHA256 = digestOf("another")
	other.SubmissionID = wire.NewSubmissionID()
	if err := w.engine.Watch(t.Context(), other); !fault.Is(err, fault.Conflict) {
		t.Errorf("a job id for a second digest: %v", err)
	}
}

// A watch that could never be settled is refused, not tried for ever.
func TestWatchThatCanNotBeSealedIsRefused(t *testing.T) {
	w := newWorld(t, 1, nil)
	watch := wire.Watch{JobID: "00000000-0000-0000-0000-000000000000", SHA256: digestOf("document"), TenantID: alice}
	for _, edit := range []func(*wire.Watch){
		func(*wire.Watch) {},
		func(w *wire.Watch) { w.JobID = "no uuid" },
		func(w *wire.Watch) { w.JobID, w.SubmissionID = wire.NewJobID(), "no uuid" },
		func(w *wire.Watch) { w.JobID, w.TenantID = wire.NewJobID(), "no tenant" },
		func(w *wire.Watch) { w.JobID, w.SHA256 = wire.NewJobID(), wire.Digest{} },
	} {
		bad := watch
		edit(&bad)
		if err := w.engine.Watch(t.Context(), bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("watch %+v: %v", bad, err)
		}
	}
	if n, err := w.engine.Pending(); n != 0 || err != nil {
		t.Errorf("refused watches left %d submissions, %v", n, err)
	}
}

func TestDoorTakesTheTenantFromTheBody(t *testing.T) {
	w := newWorld(t, 1, nil)
	door := Door{Engine: w.engine, Uploader: w.archives}
	answer, err := door.Submit(t.Context(), []byte(`{"tenantId":"alice","data":"hello","wait":20,"includeAttached":true}`))
	if err != nil {
		t.Fatal(err)
	}
	job, err := wire.Decode[wire.Job](answer)
	if err != nil || job.Status != wire.StatusCompleted || job.HashedFrom != "data" {
		t.Errorf("submit answers %s, %v", answer, err)
	}
	answer, err = door.Submit(t.Context(), []byte(`{"tenantId":"bob","data":"hello"}`))
	var accepted wire.Accepted
	if err != nil || json.Unmarshal(answer, &accepted) != nil || accepted.JobID != job.JobID {
		t.Errorf("submit answers %s, %v", answer, err)
	}
	for body, code := range map[string]string{
		`{"tenantId":"alice"}`: "LOOKUP_SUBJECT",
		`{"tenantId":"alice","sha256":"` + digestOf("unknown").String() + `"}`:                                                          "NOT_SEALED",
		`{"tenantId":"alice","jobId":"` + string(wire.NewJobID()) + `"}`:                                                                "JOB_NOT_FOUND",
		`{"tenantId":"bad tenant","sha256":"` + digestOf("hello").String() + `"}`:                                                       "BAD_FIELD",
		`{"tenantId":"alice","sha256":"` + digestOf("hello").String() + `","kinds":["Not a kind"]}`:                                     "BAD_FIELD",
		`{"tenantId":"alice","sha256":"` + digestOf("hello").String() + `","kinds":["a"` + strings.Repeat(`,"a"`, wire.MaxKinds) + `]}`: "BAD_FIELD",
		`null`: "BAD_FIELD",
	} {
		if _, err := door.Lookup(t.Context(), []byte(body)); err == nil || fault.CodeOf(err) != code {
			t.Errorf("lookup %s: %v, want code %q", body, err, code)
		}
	}
	answer, err = door.Lookup(t.Context(), []byte(`{"tenantId":"alice","sha256":"`+digestOf("hello").String()+`"}`))
	if err != nil || !strings.Contains(string(answer), `"archivesQueried":true`) {
		t.Errorf("lookup answers %s, %v", answer, err)
	}
}

// What was accepted is answered as accepted, also when its job can not be shown:
// an error would make the middleware send it again.
func TestDoorAnswersWhatItAccepted(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.engine.step = func(name string) error {
		if name == "settle.committed" {
			w.ledger.setDown(fault.New(fault.Transient, "CHAIN_DOWN", "the chain does not answer"))
		}
		return nil
	}
	door := Door{Engine: w.engine, Uploader: w.archives}
	answer, err := door.Submit(t.Context(), []byte(`{"tenantId":"alice","data":"hello","wait":20}`))
	var accepted wire.Accepted
	if err != nil || json.Unmarshal(answer, &accepted) != nil || accepted.SubmissionID == "" || accepted.StatusURL == "" {
		t.Errorf("submit answers %s, %v", answer, err)
	}
}
