package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// lock is one case: a tenant with a digest of the case's own, over HTTP.
type lock struct {
	t      *testing.T
	w      *world.World
	c      *client.Client
	digest wire.Digest
}

var all wire.RecordID // the zero id: every record under the digest

// begun is what dates are counted from: one moment, so that they are equal.
var begun = time.Now().UTC().Truncate(time.Second)

// years is the instant that many years from then.
func years(n int) time.Time { return begun.AddDate(n, 0, 0) }

// attach adds a record about the case's digest and returns its id.
func (l *lock) attach(n int) wire.RecordID {
	l.t.Helper()
	job := stamp(l.t, l.c, client.Submission{SHA256: l.digest, PublicMetadata: fmt.Appendf(nil, `{"n":%d}`, n), IncludeAttached: true})
	var id wire.RecordID
	shownOrLater(l.t, l.c, job, func(job *wire.Job) bool {
		for _, r := range job.Receipts {
			if string(r.PublicMetadata) == fmt.Sprintf(`{"n":%d}`, n) {
				id = r.RecordID
			}
		}
		return !id.IsZero()
	})
	return id
}

// file stores a file whose digest is the case's, and returns its record.
func (l *lock) file(data string) wire.FileEntry {
	l.t.Helper()
	l.digest = sum([]byte(data))
	job := stamp(l.t, l.c, client.Submission{Files: []client.File{bytesFile("file1", []byte(data))}, IncludeAttached: true})
	return shownOrLater(l.t, l.c, job, func(job *wire.Job) bool { return len(job.Files) == 1 }).Files[0]
}

func (l *lock) target(id wire.RecordID) client.Target {
	return client.Target{SHA256: l.digest, RecordID: id}
}

// retain retains one record, or with a zero id all.
func (l *lock) retain(id wire.RecordID, until time.Time) wire.Steered {
	l.t.Helper()
	out, err := l.c.Retain(l.t.Context(), l.target(id), until, "")
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *lock) hold(name string) {
	l.t.Helper()
	if _, err := l.c.Hold(l.t.Context(), l.target(wire.RecordID{}), name, ""); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lock) release(name string) {
	l.t.Helper()
	if _, err := l.c.Release(l.t.Context(), l.target(wire.RecordID{}), name, ""); err != nil {
		l.t.Fatal(err)
	}
}

// shorter tries to shorten and insists on the refusal.
func (l *lock) shorter(id wire.RecordID, until time.Time) {
	l.t.Helper()
	if _, err := l.c.Retain(l.t.Context(), l.target(id), until, ""); fault.CodeOf(err) != "RETENTION_SHORTER" {
		l.t.Errorf("shortened to %s: %v", until, err)
	}
}

// state is how all under the digest stands, and one record of it, by an answer
// that is complete.
func (l *lock) state(id wire.RecordID) (all wire.Retentions, one wire.RecordRetention) {
	l.t.Helper()
	awaitThat(l.t, "the answer is complete", func() bool {
		var err error
		if all, err = l.c.Retentions(l.t.Context(), l.digest); err != nil && !fault.Is(err, fault.Transient) {
			l.t.Fatal(err)
		}
		return err == nil && all.Complete
	})
	at := slices.IndexFunc(all.Records, func(r wire.RecordRetention) bool { return r.RecordID == id })
	if at < 0 {
		return all, wire.RecordRetention{}
	}
	return all, all.Records[at]
}

// until insists on the date of a record.
func (l *lock) until(id wire.RecordID, want time.Time) {
	l.t.Helper()
	if _, r := l.state(id); r.RetainUntil != wire.At(want) {
		l.t.Errorf("record %s is retained until %q, want %s", id, r.RetainUntil, want)
	}
}

// http sends a request as it stands and returns the status and the code of the
// problem, if there is one.
func (l *lock) http(method, path, body string, headers ...string) (status int, code string) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, l.w.Ready().HTTPURL+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", l.w.Ready().APIKeys["acme"])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := bounded.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	var problem struct{ Code string }
	if resp.StatusCode >= 400 {
		if err := json.Unmarshal(answer, &problem); err != nil {
			l.t.Fatalf("%s: %v", answer, err)
		}
	}
	return resp.StatusCode, problem.Code
}

// refused sends a request that must be refused so.
func (l *lock) refused(status int, code, method, path, body string, headers ...string) {
	l.t.Helper()
	if s, c := l.http(method, path, body, headers...); s != status || c != code {
		l.t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, s, c, status, code)
	}
}

// body is the JSON of a request about the digest with more members.
func (l *lock) body(more string) string {
	return fmt.Sprintf(`{"sha256":%q%s}`, l.digest, more)
}

// never tries to delete a record, and insists that it is still there.
func (l *lock) never(id wire.RecordID, headers ...string) {
	l.t.Helper()
	l.refused(405, "METHOD_NOT_ALLOWED", "DELETE", "/zapier/v1/records/"+id.String(), "", headers...)
	if s, code := l.http("GET", "/zapier/v1/records/"+id.String(), ""); s != 200 {
		l.t.Errorf("record %s: %d %s", id, s, code)
	}
}

// neverFile is never for a file.
func (l *lock) neverFile(f wire.FileEntry) {
	l.t.Helper()
	l.refused(405, "METHOD_NOT_ALLOWED", "DELETE", "/zapier/v1/files/"+f.ID.String(), "")
	l.refused(405, "METHOD_NOT_ALLOWED", "DELETE", "/ipfs/"+f.CID, "")
	body, size, err := l.c.File(l.t.Context(), f.CID)
	if err != nil {
		l.t.Fatal(err)
	}
	defer body.Close()
	if data, err := io.ReadAll(body); err != nil || int64(len(data)) != size || sum(data) != l.digest {
		l.t.Errorf("the file came back as %d bytes: %v", len(data), err)
	}
}

// An archive that was away hides nothing while it is, and has it all when it is
// back: asked alone, it answers the same state.
func TestRetentionReachesAnArchiveThatWasAway(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=500"}})
	l := &lock{t: t, w: w, c: w.Client("acme"), digest: sum([]byte("away"))}
	l.attach(1)
	var away wire.ArchiveID
	awaitJob(t, l.c, l.digest, func(job *wire.Job) bool {
		if len(job.Receipts) == 2 && len(job.Receipts[1].ArchiveIDs) == 2 {
			away = job.Receipts[1].ArchiveIDs[0]
		}
		return away != ""
	})
	if err := w.Kill(t.Context(), string(away)); err != nil {
		t.Fatal(err)
	}
	out := l.retain(all, years(1))
	l.hold("a")
	l.hold("b")
	l.release("a")
	if out.Archives != 3 || out.Copies > 2 {
		t.Errorf("with %s away: %+v", away, out)
	}
	if err := w.Restart(t.Context(), string(away)); err != nil {
		t.Fatal(err)
	}
	nc := dial(t, w)
	deadline := time.Now().Add(time.Minute)
	for {
		state := stateAt(t, nc, away, l.digest)
		if shown := state.Shown(); shown.Until() == wire.At(years(1)) && len(shown.Holds) == 1 && shown.Holds[0].Name == "b" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s shows %+v", away, state)
		}
		time.Sleep(50 * time.Millisecond) // polls; nothing is timed by it
	}
}

// stateAt asks one archive for the state of the only record under a digest; nil
// if it has none, or does not answer now.
func stateAt(t *testing.T, nc *nats.Conn, id wire.ArchiveID, digest wire.Digest) *wire.Retention {
	t.Helper()
	correlation := string(wire.NewCorrelationID())
	replies, err := nc.SubscribeSync("verae.archive.reply." + correlation)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := replies.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}()
	if err := nc.Publish("verae.archive.query", fmt.Appendf(nil, `{"correlationId":%q,"sha256":%q,"tenantId":"acme","kinds":[]}`, correlation, digest)); err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := replies.NextMsg(time.Second)
		if err != nil {
			return nil
		}
		reply, err := wire.Decode[wire.Reply](msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if reply.ArchiveID == id && len(reply.Records) == 1 {
			return reply.Records[0].Retention
		}
	}
}
