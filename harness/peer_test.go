package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

func dial(t *testing.T, w *world.World) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(w.Ready().NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// A peer that knows only the original contract puts and queries with plain
// NATS: the minimal put, the bare subjects, the reply subject by correlation
// id. Its record is a receipt like any other.
func TestPeerOfTheOriginalContract(t *testing.T) {
	w := startWorld(t, world.Config{})
	nc := dial(t, w)
	digest := sum([]byte("a peer's document"))
	put := fmt.Sprintf(`{"sha256":%q,"tenantId":"acme","kind":"note","body":{"from": "a peer"}}`, digest)
	acks, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("verae.archive.put", acks.Subject, []byte(put)); err != nil {
		t.Fatal(err)
	}
	owners := map[wire.ArchiveID]bool{}
	for range 2 {
		msg, err := acks.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := wire.Decode[wire.PutAck](msg.Data)
		if err != nil || ack.Duplicate {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		owners[ack.ArchiveID] = true
	}
	if len(owners) != 2 {
		t.Errorf("acknowledged by %v", owners)
	}

	replies, err := nc.SubscribeSync("verae.archive.reply.peer-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	query := fmt.Sprintf(`{"correlationId":"peer-1","sha256":%q,"tenantId":"acme","kinds":[]}`, digest)
	if err := nc.Publish("verae.archive.query", []byte(query)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		msg, err := replies.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := wire.Decode[wire.Reply](msg.Data)
		if err != nil || !owners[reply.ArchiveID] || len(reply.Records) != 1 || string(reply.Records[0].Body) != `{"from": "a peer"}` {
			t.Errorf("%s: %v", msg.Data, err)
		}
	}
	// Silence is the answer of the archive without it, and to other tenants.
	if err := nc.Publish("verae.archive.query", []byte(strings.Replace(query, "acme", "globex", 1))); err != nil {
		t.Fatal(err)
	}
	if msg, err := replies.NextMsg(300 * time.Millisecond); err == nil {
		t.Errorf("one more word: %s", msg.Data)
	}

	job := stamp(t, w.Client("acme"), client.Submission{SHA256: digest, IncludeAttached: true})
	shownOrLater(t, w.Client("acme"), job, func(job *wire.Job) bool {
		return len(job.Receipts) == 2 && job.Receipts[1].Kind == "note" && string(job.Receipts[1].Body) == `{"from": "a peer"}` && len(job.Receipts[1].ArchiveIDs) == 2
	})
}

// Middleware submits and looks up over NATS; what it is told over jobs.events
// is what a waiter needs.
func TestMiddlewareOverNATS(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{})
	nc := dial(t, w)
	events, err := nc.SubscribeSync("verae.zapier.jobs.events")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	msg, err := nc.Request("verae.timestamp.submit", []byte(`{"tenantId":"acme","data":"hello","publicMetadata":{"n":1},"includeAttached":true}`), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := wire.Decode[wire.Accepted](msg.Data)
	if err != nil || accepted.JobID == "" || accepted.HashedFrom != "data" {
		t.Fatalf("%s: %v", msg.Data, err)
	}
	note, err := events.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	event, err := wire.Decode[wire.Event](note.Data)
	if err != nil || event.Event != wire.EventCompleted || event.SubmissionID != accepted.SubmissionID || len(event.Receipts) != 2 {
		t.Errorf("%s: %v", note.Data, err)
	}
	if msg, err = nc.Request("verae.timestamp.lookup", fmt.Appendf(nil, `{"tenantId":"acme","jobId":%q}`, accepted.JobID), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	job, err := wire.Decode[wire.Job](msg.Data)
	if err != nil || !job.Complete || len(job.Receipts) != 2 {
		t.Errorf("%s: %v", msg.Data, err)
	}
	// The poller takes a watch of an edge that knows only the original contract.
	watch := fmt.Sprintf(`{"jobId":%q,"sha256":%q,"tenantId":"globex","includeAttached":true}`, wire.NewJobID(), sum([]byte("watched")))
	if err := nc.Publish("verae.zapier.jobs.watch", []byte(watch)); err != nil {
		t.Fatal(err)
	}
	if note, err = events.NextMsg(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	if event, err = wire.Decode[wire.Event](note.Data); err != nil || event.SHA256 != sum([]byte("watched")) || event.TenantID != "globex" {
		t.Errorf("%s: %v", note.Data, err)
	}
	// Refusals are problems that name the field.
	for _, subject := range []string{"verae.timestamp.submit", "verae.timestamp.lookup"} {
		for _, body := range []string{`{"tenantId":"acme","sha256":"short"}`, `{"data":"x"}`, `null`, `{`} {
			msg, err := nc.Request(subject, []byte(body), 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var p wire.Problem
			if err := json.Unmarshal(msg.Data, &p); err != nil || p.Kind != "invalid" || p.Message == "" || msg.Header.Get(wire.HeaderProblem) == "" {
				t.Errorf("%s %s: %s", subject, body, msg.Data)
			}
		}
	}
}
