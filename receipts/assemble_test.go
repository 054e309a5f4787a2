package receipts_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

var seal = wire.Receipt{
	Kind: wire.ReceiptSeal, Timestamp: "2026-11-30T14:02:11.123456789Z", Certificate: "c2sp.org/tlog-proof@v1\n...",
	BlockIndex: new(int64(42)), LeafIndex: new(int64(41)), Chain: "ledger.example/verae",
}

// viewOf is acme's completed view of the held records.
func viewOf(held ...receipts.Held) receipts.View {
	return receipts.View{
		JobID: "0197f3a0-5c1e-7d42-9b6a-3f1d2c4b5a69", SubmissionID: submission1, TenantID: acme, Digest: subject,
		Seal: seal, Queried: true, HashedFrom: "data", AlreadySealed: new(false),
		Gathered: receipts.Gathered{
			Records: held, Expected: three, Missing: none, Replied: 2, Complete: true, Reason: wire.ReasonAll,
		},
	}
}

func on(r wire.Record, archives ...wire.ArchiveID) receipts.Held {
	if len(archives) == 0 {
		archives = []wire.ArchiveID{"archive-a", "archive-b"}
	}
	r.Seq = 0
	return receipts.Held{Record: r, ArchiveIDs: archives}
}

func assemble(t *testing.T, v receipts.View) wire.Job {
	t.Helper()
	job, err := receipts.Assemble(v)
	if err != nil {
		t.Fatal(err)
	}
	data, err := wire.Encode(job)
	if err != nil {
		t.Fatalf("the job can not be encoded: %v", err)
	}
	if bytes.Contains(data, []byte("null")) {
		t.Errorf("null in %s", data)
	}
	if _, err := wire.Decode[wire.Job](data); err != nil {
		t.Errorf("strict readers refuse the job: %v", err)
	}
	return job
}

// sample reads one of wire's golden samples.
func sample[T any](t *testing.T, name string) T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "wire", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	v, err := wire.Decode[T](data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCompletedJobIsTheContracts assembles the contract's sample records into the
// contract's sample job, byte for byte.
func TestCompletedJobIsTheContracts(t *testing.T) {
	want := sample[wire.Job](t, "job_completed.json")
	meta := sample[wire.Record](t, "record_metadata.json")
	v := receipts.View{
		JobID: want.JobID, RequestedJobID: want.RequestedJobID, SubmissionID: want.SubmissionID,
		TenantID: acme, Digest: want.SHA256, Seal: want.Receipts[0],
		SideSeals: map[wire.Digest]wire.Receipt{meta.BodySHA256: *want.Receipts[1].PublicMetadataSeal},
		Queried:   true, HashedFrom: want.HashedFrom, AlreadySealed: want.AlreadySealed,
		Gathered: receipts.Gathered{
			Records: []receipts.Held{
				on(sample[wire.Record](t, "record_file.json")),
				on(sample[wire.Record](t, "record_attachment.json")),
				on(sample[wire.Record](t, "record_private-metadata.json")),
				on(meta),
			},
			Expected: want.ArchivesExpected, Missing: want.ArchivesMissing, Replied: 2, Complete: true, Reason: wire.ReasonAll,
		},
		OpenPrivate: func(wire.Record) (wire.RawJSON, error) { return wire.RawJSON(`{"price":1152921504606846976}`), nil },
	}
	got := assemble(t, v)
	// The sample also shows an attachment that is a file; no record is one now.
	want.Receipts = want.Receipts[:3]
	data, err := wire.Encode(got)
	if err != nil {
		t.Fatal(err)
	}
	contract, err := wire.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(contract), string(data)); diff != "" {
		t.Errorf("job (-contract +got):\n%s", diff)
	}
}

func TestFlagOffShowsOnlyTheSeal(t *testing.T) {
	v := viewOf(on(record(wire.KindMetadata, `{"a":1}`)), on(record(wire.KindFile, "a.pdf")))
	v.Queried = false
	got := assemble(t, v)
	want := wire.Job{
		JobID: v.JobID, Status: wire.StatusCompleted, SHA256: subject, Receipts: []wire.Receipt{seal}, Files: []wire.FileEntry{},
		SubmissionID: submission1, AlreadySealed: new(false), HashedFrom: "data", ArchivesExpected: none, ArchivesMissing: none,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPartialAnswersSaySo is case RC-07.
func TestPartialAnswersSaySo(t *testing.T) {
	v := viewOf()
	v.Gathered.Missing, v.Gathered.Complete, v.Gathered.Reason = []wire.ArchiveID{"archive-b"}, false, wire.ReasonDeadline
	got := assemble(t, v)
	if got.Complete || got.CompleteReason != wire.ReasonDeadline || len(got.ArchivesMissing) != 1 || len(got.ArchivesExpected) != 3 || !got.ArchivesQueried {
		t.Errorf("%+v", got)
	}
	v.Seal = wire.Receipt{}
	got = assemble(t, v)
	if got.Status != wire.StatusPending || len(got.Receipts) != 0 {
		t.Errorf("without a seal: %s with %d receipts, want pending with none", got.Status, len(got.Receipts))
	}
}

func TestRequestedJobIDIsShownWhenItDiffers(t *testing.T) {
	v := viewOf()
	v.RequestedJobID = v.JobID
	if got := assemble(t, v); got.RequestedJobID != "" {
		t.Errorf("shown: %s", got.RequestedJobID)
	}
	v.RequestedJobID = "0197e001-0b2c-7a10-8f00-1a2b3c4d5e6f"
	if got := assemble(t, v); got.RequestedJobID != v.RequestedJobID {
		t.Errorf("got %q", got.RequestedJobID)
	}
}

// TestMetadataOfOneSubmissionIsOneReceipt: which records stand together, and
// where.
func TestMetadataOfOneSubmissionIsOneReceipt(t *testing.T) {
	const early, late = wire.Time("2026-11-30T14:00:00Z"), wire.Time("2026-11-30T15:00:00Z")
	pub := record(wire.KindMetadata, `{"p":1}`, attachedAt(late))
	priv := record(wire.KindPrivateMetadata, "sealed", part(1), attachedAt(late))
	type receipt struct{ public, private wire.RecordID }
	pubs := []wire.Record{record(wire.KindMetadata, `{"p":2}`, part(2)), record(wire.KindMetadata, `{"p":0}`, part(0))}
	privs := []wire.Record{record(wire.KindPrivateMetadata, "three", part(3)), record(wire.KindPrivateMetadata, "one", part(1))}
	for _, c := range []struct {
		name string
		held []receipts.Held
		want []receipt
	}{
		{"both", []receipts.Held{on(priv), on(pub)}, []receipt{{pub.ID, priv.ID}}},
		{"public alone", []receipts.Held{on(pub)}, []receipt{{pub.ID, wire.RecordID{}}}},
		{"private alone", []receipts.Held{on(priv)}, []receipt{{priv.ID, priv.ID}}},
		{"two submissions", []receipts.Held{on(pub), on(record(wire.KindPrivateMetadata, "x", in(submission2), attachedAt(early)))},
			[]receipt{{record(wire.KindPrivateMetadata, "x", in(submission2), attachedAt(early)).ID, record(wire.KindPrivateMetadata, "x", in(submission2), attachedAt(early)).ID}, {pub.ID, wire.RecordID{}}}},
		{"no submission", []receipts.Held{on(record(wire.KindMetadata, `{}`, in(""), attachedAt(early))), on(record(wire.KindPrivateMetadata, "x", in(""), attachedAt(late)))},
			[]receipt{{record(wire.KindMetadata, `{}`, in(""), attachedAt(early)).ID, wire.RecordID{}},
				{record(wire.KindPrivateMetadata, "x", in(""), attachedAt(late)).ID, record(wire.KindPrivateMetadata, "x", in(""), attachedAt(late)).ID}}},
		{"it stands where the public one does", []receipts.Held{
			on(record(wire.KindMetadata, `{"p":1}`, attachedAt(late))), on(record(wire.KindPrivateMetadata, "x", attachedAt(early))), on(record("note", "between"))},
			[]receipt{{record("note", "between").ID, wire.RecordID{}}, {pub.ID, record(wire.KindPrivateMetadata, "x", attachedAt(early)).ID}}},
		{"a stranger's stand back", []receipts.Held{on(pubs[0]), on(pubs[1], "stranger"), on(privs[0])},
			slices.SortedFunc(slices.Values([]receipt{{pubs[0].ID, privs[0].ID}, {pubs[1].ID, wire.RecordID{}}}),
				func(a, b receipt) int { return bytes.Compare(a.public[:], b.public[:]) })},
		{"a stranger's is no sister while there is another", []receipts.Held{on(pub), on(privs[1], "stranger"), on(privs[0])},
			[]receipt{{privs[1].ID, privs[1].ID}, {pub.ID, privs[0].ID}}},
		{"several pair by part", []receipts.Held{on(pubs[0]), on(pubs[1]), on(privs[0]), on(privs[1])},
			slices.SortedFunc(slices.Values([]receipt{{pubs[1].ID, privs[1].ID}, {pubs[0].ID, privs[0].ID}}),
				func(a, b receipt) int { return bytes.Compare(a.public[:], b.public[:]) })},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []receipt
			for _, r := range assemble(t, viewOf(c.held...)).Receipts[1:] {
				got = append(got, receipt{r.RecordID, r.PrivateRecordID})
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(receipt{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// The archives of both parts are named, each once.
	got := assemble(t, viewOf(on(pub, "archive-b"), on(priv, "archive-a", "archive-b"))).Receipts[1]
	if diff := cmp.Diff([]wire.ArchiveID{"archive-a", "archive-b"}, got.ArchiveIDs); diff != "" {
		t.Errorf("archives (-want +got):\n%s", diff)
	}
}

func TestAttachmentsShowTheirContent(t *testing.T) {
	note := record("note", "hello", func(r *wire.Record) { r.ContentType = "text/plain" })
	minimal := record("note", "later", attachedAt(""), in(""), storedAt("2026-12-01T00:00:00Z"))
	got := assemble(t, viewOf(on(minimal), on(note)))
	want := []wire.Receipt{seal, {
		Kind: "note", AttachedAt: note.AttachedAt, ContentType: "text/plain", Body: []byte("hello"), BodySHA256: note.BodySHA256,
		RecordID: note.ID, SubmissionID: submission1, ArchiveIDs: []wire.ArchiveID{"archive-a", "archive-b"},
	}, {
		Kind: "note", AttachedAt: "2026-12-01T00:00:00Z", Body: []byte("later"), BodySHA256: minimal.BodySHA256,
		RecordID: minimal.ID, ArchiveIDs: []wire.ArchiveID{"archive-a", "archive-b"},
	}}
	if diff := cmp.Diff(want, got.Receipts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A kind of one's own that describes a file refers to it.
	scan := record("scan", "", func(r *wire.Record) { r.File = &wire.File{SHA256: wire.Digest{1}} })
	if r := assemble(t, viewOf(on(scan))).Receipts[1]; r.FileID != scan.ID || len(r.Body) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestFilesAreListedInOrder(t *testing.T) {
	b := record(wire.KindFile, "b", attachedAt("2026-11-30T14:00:00.2Z"))
	a := record(wire.KindFile, "a", attachedAt("2026-11-30T14:00:00.15Z"), in(""))
	got := assemble(t, viewOf(on(b, "archive-c"), on(a, "archive-b", "archive-c")))
	want := []wire.FileEntry{
		{ID: a.ID, SHA256: a.File.SHA256, ArchiveID: "archive-b", ArchiveIDs: []wire.ArchiveID{"archive-b", "archive-c"}, Name: "a", Size: 11,
			CID: a.File.CID, AttachedAt: a.AttachedAt, RecordID: a.ID},
		{ID: b.ID, SHA256: b.File.SHA256, ArchiveID: "archive-c", ArchiveIDs: []wire.ArchiveID{"archive-c"}, Name: "b", Size: 11,
			CID: b.File.CID, AttachedAt: b.AttachedAt, RecordID: b.ID, SubmissionID: submission1},
	}
	if diff := cmp.Diff(want, got.Files); diff != "" || len(got.Receipts) != 1 {
		t.Errorf("%d receipts, files (-want +got):\n%s", len(got.Receipts), diff)
	}
}

// TestPublicMetadataIsShownAsStored is case RC-05: the digest is over the stored
// bytes, numbers keep their digits and strings their bytes; what strict readers
// would refuse is left out, its digest and record stay.
func TestPublicMetadataIsShownAsStored(t *testing.T) {
	for body, shown := range map[string]bool{
		`{"n":1152921504606846976,"s":"<é&>","t":1.10}`: true,
		"{\"sep\":\"\u2028\"}":                          true,
		`{"b":1,"a":2}`:                                 true,
		`{"a":2,"b":1}`:                                 true,
		`{}`:                                            true,
		"{\"b\":\"\xff\"}":                              false,
		`{"s":"\ud800"}`:                                false,
		`{"a":1,"a":2}`:                                 false,
		`[1]`:                                           false,
		`null`:                                          false,
		`not json`:                                      false,
		`{"a":1`:                                        false,
		`{"a":1} x`:                                     false,
	} {
		r := record(wire.KindMetadata, body)
		job := assemble(t, viewOf(on(r)))
		got := job.Receipts[1]
		if got.PublicMetadataSHA256 != r.BodySHA256 || got.RecordID != r.ID {
			t.Errorf("%s: digest and record must be there: %+v", body, got)
		}
		if shown != (string(got.PublicMetadata) == body) || !shown && got.PublicMetadata != nil {
			t.Errorf("%s: shown as %q", body, got.PublicMetadata)
		}
		if data, _ := wire.Encode(job); shown && !bytes.Contains(data, []byte(body)) {
			t.Errorf("%s: encoded as %s", body, data)
		}
	}
}

func TestOnlyTheOwnerSeesWhatIsPrivate(t *testing.T) {
	pub := record(wire.KindMetadata, `{"p":1}`, shared(globex, "B"))
	proof := record(wire.KindMetadata, `{"p":2}`, in(submission2), shared(globex, "A"))
	proofSeen, _ := proof.For(globex)
	priv := record(wire.KindPrivateMetadata, "sealed", part(1), shared(globex, "C"))
	hidden := record("note", "of acme alone")
	file := record(wire.KindFile, "b", shared(globex, "B"))
	v := viewOf(on(pub), on(priv), on(hidden), on(file), on(proofSeen))
	v.TenantID = globex
	v.OpenPrivate = func(wire.Record) (wire.RawJSON, error) {
		t.Error("another tenant's private metadata was opened")
		return nil, nil
	}
	v.SideSeals = map[wire.Digest]wire.Receipt{proof.BodySHA256: seal}
	got := assemble(t, v)
	seen := map[wire.RecordID]wire.Receipt{}
	for _, r := range got.Receipts[1:] {
		seen[r.RecordID] = r
		if !r.PrivateRecordID.IsZero() || r.PrivateMetadata != nil {
			t.Errorf("shown to another tenant: %+v", r)
		}
	}
	if len(seen) != 2 || len(got.Files) != 0 {
		t.Errorf("%d receipts and %d files, want 2 and 0", len(seen), len(got.Files))
	}
	if string(seen[pub.ID].PublicMetadata) != `{"p":1}` {
		t.Errorf("shared metadata: %+v", seen[pub.ID])
	}
	if p := seen[proof.ID]; p.PublicMetadata != nil || p.PublicMetadataSHA256 != proof.BodySHA256 || p.PublicMetadataSeal == nil {
		t.Errorf("a proof: %+v", p)
	}
}

// TestControlRecordsAndForgedReceiptsNeverShow: nor does an attachment whose
// kind is the name of a receipt of ours.
func TestControlRecordsAndForgedReceiptsNeverShow(t *testing.T) {
	var held []receipts.Held
	for _, k := range []wire.Kind{wire.KindShare, wire.KindRetain, wire.KindHold, wire.KindRelease, wire.ReceiptSeal, wire.ReceiptMetadataAttach} {
		held = append(held, on(record(k, `{"forged":true}`)))
	}
	broken := record(wire.KindFile, "x")
	broken.File = nil
	if got := assemble(t, viewOf(append(held, on(broken))...)); len(got.Receipts) != 1 || len(got.Files) != 0 {
		t.Errorf("%+v", got.Receipts)
	}
}

// TestPrivateMetadataThatDoesNotOpen: a forgotten key is no error, everything
// else is reported beside a whole job.
func TestPrivateMetadataThatDoesNotOpen(t *testing.T) {
	priv, other := record(wire.KindPrivateMetadata, "sealed"), record(wire.KindPrivateMetadata, "more", in(submission2))
	boom := errors.New("disk on fire")
	for _, c := range []struct {
		name string
		open func(wire.Record) (wire.RawJSON, error)
		kind fault.Kind
		fail bool
	}{
		{"closed view", nil, 0, false},
		{"forgotten", func(wire.Record) (wire.RawJSON, error) {
			return nil, fault.New(fault.NotFound, "KEY_FORGOTTEN", "gone")
		}, 0, false},
		{"no object", func(wire.Record) (wire.RawJSON, error) { return wire.RawJSON("text"), nil }, 0, false},
		{"tampered", func(wire.Record) (wire.RawJSON, error) {
			return nil, fault.New(fault.Corrupt, "SEALED_TAMPERED", "changed")
		}, fault.Corrupt, true},
		{"unknown", func(wire.Record) (wire.RawJSON, error) { return nil, boom }, fault.Internal, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(on(priv), on(other), on(record("note", "hello")))
			v.OpenPrivate = c.open
			job, err := receipts.Assemble(v)
			if len(job.Receipts) != 4 || job.Status != wire.StatusCompleted {
				t.Errorf("the job is not whole: %+v", job)
			}
			for _, r := range job.Receipts {
				if r.PrivateMetadata != nil || r.Kind == wire.ReceiptMetadataAttach && r.PrivateRecordID.IsZero() {
					t.Errorf("%+v", r)
				}
			}
			if (err != nil) != c.fail || c.fail && fault.KindOf(err) != c.kind {
				t.Errorf("error %v, want one of kind %v: %v", err, c.kind, c.fail)
			}
			if c.fail && !(strings.Contains(err.Error(), priv.ID.String()) && strings.Contains(err.Error(), other.ID.String())) {
				t.Errorf("%v does not name both records", err)
			}
		})
	}
	// One bad record does not keep the other from being opened.
	v := viewOf(on(priv), on(other))
	v.OpenPrivate = func(r wire.Record) (wire.RawJSON, error) {
		if r.ID == priv.ID {
			return nil, boom
		}
		return wire.RawJSON(`{"ok":true}`), nil
	}
	job, err := receipts.Assemble(v)
	if !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	for _, r := range job.Receipts[1:] {
		if (r.PrivateMetadata == nil) != (r.PrivateRecordID == priv.ID) {
			t.Errorf("%+v", r)
		}
	}
}

// TestAssembleLeavesItsInputAlone: a view may be assembled again, for others.
func TestAssembleLeavesItsInputAlone(t *testing.T) {
	held := []receipts.Held{on(record("note", "b", attachedAt("2026-11-30T15:00:00Z"))), on(record("note", "a")), on(record(wire.KindFile, "f"))}
	v := viewOf(held...)
	before := viewOf(append([]receipts.Held{}, held...)...)
	first := assemble(t, v)
	if diff := cmp.Diff(before.Gathered, v.Gathered); diff != "" {
		t.Errorf("the view changed:\n%s", diff)
	}
	if diff := cmp.Diff(first, assemble(t, v)); diff != "" {
		t.Errorf("the second job differs:\n%s", diff)
	}
}
