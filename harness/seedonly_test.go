package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// seedArchive is an archive that knows the original contract and nothing else: it
// keeps the puts it hears, answers hits after a tenant check, and is silent
// otherwise. It is slow: it answers after every other archive has.
type seedArchive struct {
	t  *testing.T
	nc *nats.Conn

	mu      sync.Mutex // guards the fields below
	records map[string][]json.RawMessage
	heard   map[string]map[string]bool // by correlation id: who answered
	named   map[string]int             // and how many are asked to, which only the test looks at
	hits    map[string][]byte          // answers that are held back
	hold    bool                       // answers are held back until release
}

const (
	seedArchiveID = "seed-archive"
	ours          = 3 // archives of a world
)

// startSeedArchive starts one that listens when this returns.
func startSeedArchive(t *testing.T, w *world.World) *seedArchive {
	t.Helper()
	a := &seedArchive{t: t, nc: dial(t, w), records: map[string][]json.RawMessage{}, heard: map[string]map[string]bool{}, named: map[string]int{}, hits: map[string][]byte{}}
	for subject, handle := range map[string]nats.MsgHandler{
		"verae.archive.put": a.put, "verae.archive.query": a.query, "verae.archive.reply.*": a.reply,
	} {
		if _, err := a.nc.Subscribe(subject, handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return a
}

// leave ends its connection and returns when the server knows.
func (a *seedArchive) leave() {
	closed := make(chan struct{})
	a.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if err := a.nc.Drain(); err != nil {
		a.t.Error(err)
	}
	<-closed
}

func (a *seedArchive) put(m *nats.Msg) {
	var p struct{ SHA256 string }
	if json.Unmarshal(m.Data, &p) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records[p.SHA256] = append(a.records[p.SHA256], bytes.Clone(m.Data)) // verbatim, without an id
}

func (a *seedArchive) query(m *nats.Msg) {
	var q struct{ CorrelationID, SHA256, TenantID string }
	if err := json.Unmarshal(m.Data, &q); err != nil {
		a.t.Errorf("a query: %v", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var hits []json.RawMessage
	for _, r := range a.records[q.SHA256] {
		var owner struct{ TenantID string }
		if json.Unmarshal(r, &owner) == nil && owner.TenantID == q.TenantID {
			hits = append(hits, r)
		}
	}
	if len(hits) == 0 {
		return
	}
	answer, err := json.Marshal(map[string]any{"archiveId": seedArchiveID, "sha256": q.SHA256, "records": hits})
	if err != nil {
		a.t.Error(err)
	}
	a.named[q.CorrelationID] = len(strings.FieldsFunc(m.Header.Get(wire.HeaderExpect), func(r rune) bool { return r == ',' }))
	a.hits[q.CorrelationID] = answer
	a.answer(q.CorrelationID)
}

func (a *seedArchive) reply(m *nats.Msg) {
	var r struct{ ArchiveID string }
	if json.Unmarshal(m.Data, &r) != nil || r.ArchiveID == "" {
		return
	}
	id := strings.TrimPrefix(m.Subject, "verae.archive.reply.")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard[id] == nil {
		a.heard[id] = map[string]bool{}
	}
	a.heard[id][r.ArchiveID] = true
	a.answer(id)
}

// answer lets an answer go once all others have said all. mu is held.
func (a *seedArchive) answer(id string) {
	if a.hold || a.hits[id] == nil || len(a.heard[id]) < a.named[id] {
		return
	}
	if err := a.nc.Publish("verae.archive.reply."+id, a.hits[id]); err != nil {
		a.t.Error(err)
	}
	delete(a.hits, id)
}

// release lets all answers go that were held back.
func (a *seedArchive) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold = false
	for id := range a.hits {
		a.answer(id)
	}
}

// seedJob is a completed job as the original contract has it, and what we added
// about its being complete.
type seedJob struct {
	Event                                 string // of an event
	JobID, RequestedJobID, Status, SHA256 string
	Receipts                              []struct{ Kind string }
	ArchivesQueried                       bool
	ArchiveReplies                        int

	Complete         bool
	CompleteReason   string
	ArchivesExpected []string
	ArchivesMissing  []string
}

// over HTTP: what Zapier's side of the original contract sends.
func seedOverHTTP(t *testing.T, w *world.World, digest wire.Digest) (job seedJob) {
	t.Helper()
	ready := w.Ready()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ready.HTTPURL+"/zapier/v1/timestamp/wait",
		strings.NewReader(fmt.Sprintf(`{"sha256":%q,"includeAttached":true}`, digest)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-api-key", ready.APIKeys["acme"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := bounded.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &job)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	return job
}

// over NATS: an edge that publishes the watch and waits for the event, which is
// in the channel.
func seedOverNATS(t *testing.T, nc *nats.Conn, digest wire.Digest) <-chan seedJob {
	t.Helper()
	id, found := string(wire.NewJobID()), make(chan seedJob, 1)
	events, err := nc.Subscribe("verae.zapier.jobs.events", func(m *nats.Msg) {
		var job seedJob
		if json.Unmarshal(m.Data, &job) == nil && (job.JobID == id || job.RequestedJobID == id) {
			select {
			case found <- job:
			default: // an event may be told again
			}
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err == nil {
		err = nc.Publish("verae.zapier.jobs.watch", fmt.Appendf(nil, `{"jobId":%q,"sha256":%q,"tenantId":"acme","includeAttached":true}`, id, digest))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Unsubscribe() })
	return found
}

// TestSeedOnlyPeers is the table of what UNLISTED_ARCHIVES means to peers that
// know only the original contract: an archive, and clients over HTTP and NATS. An
// answer with the archive's record was not given before all others had answered,
// for it answers after them; one that says "all" was given then, and one that says
// "deadline" after the whole wait (receipts.TestLaw6UnlistedArchives has the times).
// Mirrors, and questions to the named alone, change nothing of that.
func TestSeedOnlyPeers(t *testing.T) {
	type answer struct {
		Receipts string
		Replies  int
		Complete bool
		Reason   string
	}
	own := answer{"seal metadata-attach", 2, true, wire.ReasonAll}
	waited := answer{"seal metadata-attach", 2, false, wire.ReasonDeadline}
	found := answer{"seal metadata-attach note", 3, false, wire.ReasonDeadline}
	for _, c := range []struct {
		unlisted, mirrors, mode       string
		absent, ignorant, knows, left answer
	}{
		{"census", "on", "auto", own, waited, found, own},
		{"census", "off", "auto", own, waited, found, own},
		{"census", "on", "directed", own, waited, found, own},
		{"wait", "on", "directed", waited, waited, found, waited},
		{"none", "on", "auto", own, own, own, own},
		{"none", "on", "directed", own, own, own, own},
		{"none", "off", "directed", own, own, own, own},
	} {
		t.Run(c.unlisted+", mirrors "+c.mirrors+", "+c.mode, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			w := startWorld(t, world.Config{InProcess: true, Env: []string{
				"UNLISTED_ARCHIVES=" + c.unlisted, "MIRRORS=" + c.mirrors, "QUERY_MODE=" + c.mode, "WAIT_ARCHIVE_MS=600", "PUT_MIN_COPIES=2"}})
			if c.mirrors == "on" {
				waitMirrors(t, w)
			}
			digest := sum([]byte("a document of the original contract"))
			stamp(t, w.Client("acme"), client.Submission{SHA256: digest, PublicMetadata: []byte(`{"n":1}`)})
			edge := dial(t, w)
			check := func(when string, want answer) {
				t.Helper()
				told := seedOverNATS(t, edge, digest)
				jobs := map[string]seedJob{"HTTP": seedOverHTTP(t, w, digest)}
				select {
				case jobs["NATS"] = <-told:
				case <-time.After(time.Minute):
					t.Fatal("no event")
				}
				for by, job := range jobs {
					var kinds []string
					for _, r := range job.Receipts {
						kinds = append(kinds, r.Kind)
					}
					got := answer{strings.Join(kinds, " "), job.ArchiveReplies, job.Complete, job.CompleteReason}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s, over %s (-want +got):\n%s", when, by, diff)
					}
					if job.Status != "completed" || job.SHA256 != digest.String() || !job.ArchivesQueried || len(job.ArchivesExpected) != ours || len(job.ArchivesMissing) != 0 {
						t.Errorf("%s, over %s: %+v", when, by, job)
					}
				}
			}
			check("no such archive", c.absent)
			a := startSeedArchive(t, w)
			check("one without a record", c.ignorant)
			a.put(&nats.Msg{Data: fmt.Appendf(nil, `{"sha256":%q,"tenantId":"globex","kind":"note","body":{"of":"another tenant"}}`, digest)})
			a.put(&nats.Msg{Data: fmt.Appendf(nil, `{"sha256":%q,"tenantId":"acme","kind":"note","body":{"from": "a seed-only peer"}}`, digest)})
			check("one with a record", c.knows)
			a.leave()
			check("it left", c.left)
		})
	}
}

// What an archive that knows only the original contract answers after the deadline
// is told to who listens, in one more event.
func TestLateReplyOfASeedOnlyArchive(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{InProcess: true, Env: []string{"WAIT_ARCHIVE_MS=300", "LATE_MS=3000"}})
	digest := sum([]byte("a document that a slow archive knows"))
	a := startSeedArchive(t, w)
	a.put(&nats.Msg{Data: fmt.Appendf(nil, `{"sha256":%q,"tenantId":"acme","kind":"note","body":{"late":true}}`, digest)})
	a.mu.Lock()
	a.hold = true
	a.mu.Unlock()
	nc := dial(t, w)
	events, err := nc.SubscribeSync("verae.zapier.jobs.events")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	if job := seedOverHTTP(t, w, digest); len(job.Receipts) != 1 || job.CompleteReason != wire.ReasonDeadline {
		t.Errorf("at the deadline: %+v", job)
	}
	a.release()
	for _, want := range []struct {
		event    string
		receipts int
	}{{wire.EventCompleted, 1}, {wire.EventUpdated, 2}} {
		msg, err := events.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var job seedJob
		if err := json.Unmarshal(msg.Data, &job); err != nil || job.Event != want.event || len(job.Receipts) != want.receipts || job.Complete {
			t.Errorf("%v: %s", err, msg.Data)
		}
	}
}
