package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// startWorld starts a world of processes and ends it with the test.
func startWorld(t *testing.T, cfg world.Config) *world.World {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Env = append(cfg.Env, "NATS_URL=") // also where the developer has one
	w, err := world.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// bounded sends the requests of tests, none of which takes long: a server that hangs
// fails the test that found it, and not the whole run.
var bounded = &http.Client{Timeout: time.Minute}

func sum(data []byte) wire.Digest { return sha256.Sum256(data) }

// stamp submits and insists on a finished job.
func stamp(t *testing.T, c *client.Client, s client.Submission) *wire.Job {
	t.Helper()
	outcome, err := c.Stamp(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Job == nil || outcome.Job.Status != wire.StatusCompleted {
		t.Fatalf("the job did not end: %+v", outcome.Accepted)
	}
	return outcome.Job
}

func bytesFile(name string, data []byte) client.File {
	return client.File{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// The flow of the original contract, on real processes: a job id in a 202, the
// wait, the original job and seal for who comes later, attachments in time
// order, nothing but the seal with the flag off, bytes back by CID.
func TestTheWholePathOnRealProcesses(t *testing.T) {
	w := startWorld(t, world.Config{})
	acme, globex := w.Client("acme"), w.Client("globex")
	data := randomBytes(3<<20+12345, 1)
	digest := sum(data)

	accepted, err := acme.Submit(t.Context(), client.Submission{SHA256: digest})
	if err != nil {
		t.Fatal(err)
	}
	waited, err := acme.Job(t.Context(), accepted, true)
	if err != nil || waited.Job == nil || waited.Job.JobID != accepted.JobID {
		t.Fatalf("waiting for the job: %+v, %v", waited, err)
	}
	seal := waited.Job.Receipts[0]

	first := stamp(t, acme, client.Submission{SHA256: digest, PublicMetadata: []byte(`{"n":1}`), PrivateMetadata: []byte(`{"secret":1}`)})
	second := stamp(t, acme, client.Submission{SHA256: digest, PublicMetadata: []byte(`{"n":2}`), Files: []client.File{bytesFile("scan 1.pdf", data)}, IncludeAttached: true})
	if len(first.Receipts) != 1 || len(first.Files) != 0 || first.ArchivesQueried {
		t.Errorf("with the flag off: %+v", first)
	}
	for _, job := range []*wire.Job{first, second} {
		if job.JobID != accepted.JobID || !*job.AlreadySealed || job.Receipts[0].Certificate != seal.Certificate {
			t.Errorf("job %s has another seal than job %s", job.JobID, accepted.JobID)
		}
	}
	if len(second.Receipts) != 3 || string(second.Receipts[1].PublicMetadata) != `{"n":1}` || string(second.Receipts[2].PublicMetadata) != `{"n":2}` {
		t.Errorf("receipts: %+v", second.Receipts)
	}
	if string(second.Receipts[1].PrivateMetadata) != `{"secret":1}` || len(second.Files) != 1 {
		t.Errorf("the job: %+v", second)
	}

	body, size, err := acme.File(t.Context(), second.Files[0].CID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	back, err := io.ReadAll(body)
	if err != nil || size != int64(len(data)) || sum(back) != digest {
		t.Errorf("the file came back as %d bytes of %d, %v", len(back), len(data), err)
	}
	if _, _, err := globex.File(t.Context(), second.Files[0].CID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another tenant gets the file: %v", err)
	}
	theirs, err := globex.Receipts(t.Context(), digest)
	if err != nil || len(theirs.Receipts) != 1 || len(theirs.Files) != 0 || theirs.Receipts[0].Certificate != seal.Certificate {
		t.Errorf("another tenant sees %+v, %v", theirs, err)
	}
	// Placement puts two copies on three archives: one has nothing. A submission
	// ends with the first copy.
	awaitJob(t, acme, digest, func(job *wire.Job) bool {
		has := map[wire.ArchiveID]bool{}
		for _, r := range job.Receipts[1:] {
			for _, id := range r.ArchiveIDs {
				has[id] = true
			}
		}
		return job.Complete && len(has) == 2 && len(job.ArchivesExpected) == 3 && job.ArchiveReplies == 2
	})
	awaitCosigned(t, w)
}

func TestOneArchiveStoppedIsNamedAlsoAfterARestart(t *testing.T) {
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=300"}})
	acme := w.Client("acme")
	if err := w.StopOne(t.Context(), "archive-b"); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		job := stamp(t, acme, client.Submission{Data: fmt.Append(nil, "document ", i), PublicMetadata: []byte(`{"n":1}`), IncludeAttached: true})
		shownOrLater(t, acme, job, func(job *wire.Job) bool {
			return !job.Complete && job.CompleteReason == wire.ReasonDeadline && len(job.ArchivesMissing) == 1 && job.ArchivesMissing[0] == "archive-b" && len(job.Receipts) == 2
		})
		if i == 0 {
			if err := w.Restart(t.Context(), world.Aggregator); err != nil {
				t.Fatal(err)
			}
			if err := w.WaitUp(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Restart(t.Context(), "archive-b"); err != nil {
		t.Fatal(err)
	}
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	job := stamp(t, acme, client.Submission{Data: []byte("document 0"), IncludeAttached: true})
	shownOrLater(t, acme, job, func(job *wire.Job) bool { return job.Complete && len(job.Receipts) == 2 })
}

func TestSecondCopyAppearsOnRealProcesses(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=300"}})
	acme := w.Client("acme")
	for _, id := range []string{"archive-a", "archive-c"} {
		if err := w.StopOne(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	data := randomBytes(1<<20+1, 2)
	awaitDown(t, acme, "archive-a", "archive-c")
	job := stamp(t, acme, client.Submission{PublicMetadata: []byte(`{"n":1}`), Files: []client.File{bytesFile("f", data)}, IncludeAttached: true})
	job = shownOrLater(t, acme, job, func(job *wire.Job) bool {
		return !job.Complete && len(job.ArchivesMissing) == 2 && len(job.Files) == 1 && len(job.Files[0].ArchiveIDs) == 1
	})
	if err := w.Restart(t.Context(), "archive-c"); err != nil {
		t.Fatal(err)
	}
	awaitJob(t, acme, sum(data), func(j *wire.Job) bool {
		return len(j.Files) == 1 && len(j.Files[0].ArchiveIDs) == 2 && len(j.Receipts) == 2 && len(j.Receipts[1].ArchiveIDs) == 2
	})
	// The copy stands alone.
	if err := w.StopOne(t.Context(), "archive-b"); err != nil {
		t.Fatal(err)
	}
	body, _, err := acme.File(t.Context(), job.Files[0].CID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if back, err := io.ReadAll(body); err != nil || sum(back) != sum(data) {
		t.Errorf("the healed copy reads %d bytes, %v", len(back), err)
	}
}

// shownOrLater waits until what a finished job shows satisfies ok, or what is
// shown of its digest later does: in the time that archives have to answer, a busy
// machine may not have run one that is there.
func shownOrLater(t *testing.T, c *client.Client, job *wire.Job, ok func(*wire.Job) bool) *wire.Job {
	t.Helper()
	if !ok(job) {
		awaitJob(t, c, job.SHA256, func(later *wire.Job) bool { job = later; return ok(later) })
	}
	return job
}

// awaitJob looks a digest up until what it shows satisfies ok.
func awaitJob(t *testing.T, c *client.Client, d wire.Digest, ok func(*wire.Job) bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for {
		job, err := c.Receipts(ctx, d)
		if err == nil && ok(&job) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it never came: %+v, %v", job, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestNoArchiveOnRealProcesses(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=300"}})
	acme := w.Client("acme")
	for _, id := range []string{"archive-a", "archive-b", "archive-c"} {
		if err := w.StopOne(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	awaitDown(t, acme, "archive-a", "archive-b", "archive-c")
	_, err := acme.Stamp(t.Context(), client.Submission{Files: []client.File{bytesFile("f", []byte("file"))}})
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "NO_ARCHIVE" || fault.RetryAfter(err) < time.Second {
		t.Errorf("files: %v", err)
	}
	if _, err := acme.Receipts(t.Context(), sum([]byte("file"))); fault.CodeOf(err) != "NOT_SEALED" {
		t.Errorf("the refused file: %v", err)
	}
	accepted, err := acme.Submit(t.Context(), client.Submission{Data: []byte("metadata"), PublicMetadata: []byte(`{"n":1}`), IncludeAttached: true})
	if err != nil || accepted.Status != wire.StatusPending || accepted.Reason == "" {
		t.Errorf("metadata: %+v, %v", accepted, err)
	}
	job := stamp(t, acme, client.Submission{Data: []byte("hash"), IncludeAttached: true})
	if job.Complete || job.CompleteReason != wire.ReasonNoArchives {
		t.Errorf("a hash: %+v", job)
	}
	if err := w.Restart(t.Context(), "archive-a"); err != nil {
		t.Fatal(err)
	}
	waited, err := acme.Job(t.Context(), accepted, true)
	if err != nil || waited.Job == nil || waited.Job.Status != wire.StatusCompleted {
		t.Fatalf("the metadata after an archive returned: %+v, %v", waited.Job, err)
	}
	shownOrLater(t, acme, waited.Job, func(job *wire.Job) bool { return len(job.Receipts) == 2 })
}

// A refused or broken request leaves nothing sealed, stored, or on disk.
func TestRefusedRequestsLeaveNothing(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{})
	acme := w.Client("acme")
	data := randomBytes(2<<20, 3)
	wrong := sum([]byte("another"))
	ready := w.Ready()
	for name, s := range map[string]client.Submission{
		"several files, no subject": {Files: []client.File{bytesFile("a", data), bytesFile("b", data)}},
		"disagreeing digest":        {SHA256: wrong, Data: data[:10], Files: []client.File{bytesFile("a", data)}},
		"metadata that is no JSON":  {PublicMetadata: []byte(`{"a":`), Files: []client.File{bytesFile("a", data)}},
		"a file that breaks off":    {Files: []client.File{brokenFile(data)}},
	} {
		if _, err := acme.Stamp(t.Context(), s); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, d := range []wire.Digest{sum(data), wrong, sum(data[:10])} {
		if _, err := acme.Receipts(t.Context(), d); fault.CodeOf(err) != "NOT_SEALED" {
			t.Errorf("%s after refusals: %v", d, err)
		}
	}
	awaitEmpty(t, ready)
}

// brokenFile fails in the middle, and with it the request.
func brokenFile(data []byte) client.File {
	return client.File{Name: "broken", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(data), failing{})), nil
	}}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// awaitEmpty waits until no archive has a file or an upload.
func awaitEmpty(t *testing.T, r world.Ready) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var left []string
		for _, a := range r.Archives {
			for _, sub := range []string{"files/tmp", "files/files"} {
				err := filepath.WalkDir(filepath.Join(a.Dir, sub), func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.Type().IsRegular() {
						left = append(left, path)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left on disk: %v", left)
		}
		time.Sleep(20 * time.Millisecond) // polls; nothing is timed by it
	}
}

func TestRestartContinuesWithTheSameKeysAndData(t *testing.T) {
	dir := t.TempDir()
	for _, inProcess := range []bool{false, true, false} {
		w, err := world.Start(t.Context(), world.Config{Dir: dir, InProcess: inProcess})
		if err != nil {
			t.Fatal(err)
		}
		job := stamp(t, w.Client("acme"), client.Submission{Data: []byte("document"), PublicMetadata: []byte(`{"n":1}`), IncludeAttached: true})
		if *job.Receipts[0].LeafIndex != 0 {
			t.Errorf("in process %v: %+v", inProcess, job)
		}
		shownOrLater(t, w.Client("acme"), job, func(job *wire.Job) bool { return len(job.Receipts) == 2 })
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
		stop()
		if resp, err := http.Get(w.Ready().HTTPURL + "/livez"); err == nil {
			resp.Body.Close()
			t.Error("the aggregator still answers after the stop")
		}
	}
}

func randomBytes(n int, seed uint64) []byte {
	var key [32]byte
	copy(key[:], fmt.Sprint(seed))
	data := make([]byte, n)
	if _, err := io.ReadFull(rand.NewChaCha8(key), data); err != nil {
		panic(err)
	}
	return data
}

func TestGreetNamesWhatToPaste(t *testing.T) {
	var out strings.Builder
	r := world.Ready{HTTPURL: "http://127.0.0.1:1", APIKeys: map[wire.TenantID]string{"acme": "key-a", "globex": "key-b"}}
	if err := greet(&out, r, time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"curl -sS http://127.0.0.1:1/zapier/v1/timestamp/wait", "x-api-key: key-a", "key-b", sum([]byte("hello archive")).String()} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the greeting lacks %q:\n%s", want, out.String())
		}
	}
}

// The harness's own addresses and the programs' settings come from the
// environment like those of every program.
func TestSettingsReachThePrograms(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: []string{"MAX_FILES=1", "HTTP_ADDR=127.0.0.1:1"}}) // where the world listens is its own to say
	_, err := w.Client("acme").Stamp(t.Context(), client.Submission{
		SHA256: sum([]byte("subject")), Files: []client.File{bytesFile("a", []byte("a")), bytesFile("b", []byte("b"))},
	})
	if fault.CodeOf(err) != "TOO_LARGE" || !strings.Contains(err.Error(), "MAX_FILES") {
		t.Errorf("two files where one is allowed: %v", err)
	}
}
