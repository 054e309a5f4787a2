package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// waitMirrors waits until the aggregator relies on its mirrors of all archives.
func waitMirrors(t testing.TB, w *world.World) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for {
		raw, err := w.Client("acme").Archives(t.Context())
		var list struct {
			Archives []struct {
				Mirror struct{ State, Reason string }
			}
		}
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		trusted := 0
		for _, a := range list.Archives {
			if a.Mirror.State == "trusted" {
				trusted++
			}
		}
		if trusted == ours {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("mirrors: %s", raw)
		}
	}
}

// TestMirrorsSpareQuestions: what nobody has for the caller is answered without a
// question, and complete, whatever others have there; and a question names those
// that have something, as soon as they have acknowledged it.
func TestMirrorsSpareQuestions(t *testing.T) {
	t.Parallel()
	w := startWorld(t, world.Config{InProcess: true, Env: []string{"UNLISTED_ARCHIVES=none", "PUT_MIN_COPIES=2"}})
	waitMirrors(t, w)
	nc := dial(t, w)
	heard := make(chan *nats.Msg, 1<<12)
	for _, subject := range []string{wire.SubjectQuery, wire.SubjectCtlPrefix + "*"} {
		if _, err := nc.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for i := range rounds {
		text := []byte{'d', byte(i)}
		stamp(t, w.Client("acme"), client.Submission{Data: text, PublicMetadata: []byte(`{"n":1}`)})
		look := func(tenant wire.TenantID, digest wire.Digest) wire.Job {
			job, err := w.Client(tenant).Receipts(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			if !job.Complete || job.CompleteReason != wire.ReasonAll || len(job.ArchivesExpected) != ours || len(job.ArchivesMissing) != 0 {
				t.Errorf("%s: %+v", tenant, job)
			}
			return job
		}
		if job := look("globex", sum(text)); len(job.Receipts) != 1 {
			t.Errorf("globex sees %+v", job)
		}
		if job := look("acme", sum(text)); len(job.Receipts) != 2 {
			t.Errorf("acme sees %+v", job)
		}
	}
	if err := nc.Flush(); err != nil { // after all that was published on the way here
		t.Fatal(err)
	}
	of, named := map[wire.TenantID]int{}, 0
	questions := map[wire.CorrelationID]bool{} // one may be put to each that is named
	for len(heard) > 0 {
		msg := <-heard
		direct := msg.Header.Get(wire.HeaderOp) == wire.OpDirect
		if !direct && msg.Subject != wire.SubjectQuery {
			continue // an order of another sort
		}
		q, err := wire.Decode[wire.Query](msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if !questions[q.CorrelationID] {
			questions[q.CorrelationID] = true
			of[q.TenantID]++
		}
		switch {
		case q.TenantID != "acme":
		case direct:
			named++
		default:
			named += len(strings.Split(msg.Header.Get(wire.HeaderExpect), ","))
		}
	}
	// A filter says perhaps to one of 1,000, one question of 1,000 is a sample, and a
	// mirror may be without a lease for a moment.
	const chance = rounds / 2
	if of["acme"] != rounds || of["globex"] > chance || named < 2*rounds || named > 2*rounds+chance {
		t.Errorf("questions: %v; %d named", of, named)
	}
}

// An archive that is gone is missing, and no lookup waits for it: neither where it
// is asked with all others, nor alone.
func TestNobodyWaitsForAnArchiveThatIsGone(t *testing.T) {
	for _, mode := range []string{"broadcast", "directed"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			// A lookup that waited would not come back while this test runs.
			w := startWorld(t, world.Config{InProcess: true, Env: []string{"QUERY_MODE=" + mode, "WAIT_ARCHIVE_MS=3600000", "PUT_MIN_COPIES=2"}})
			acme := w.Client("acme")
			data := []byte("a document")
			stamp(t, acme, client.Submission{Data: data, PublicMetadata: []byte(`{"n":1}`)})
			if err := w.StopOne(t.Context(), "archive-b"); err != nil {
				t.Fatal(err)
			}
			awaitThat(t, "archive-b is silent", func() bool { return archiveState(t, acme, "archive-b") == "silent" })
			for _, digest := range []wire.Digest{sum(data), sealed(t, acme, "what nobody has")} {
				job, err := acme.Receipts(t.Context(), digest)
				if err != nil || job.Complete || job.CompleteReason != wire.ReasonDeadline || !slices.Equal(job.ArchivesMissing, []wire.ArchiveID{"archive-b"}) || len(job.ArchivesExpected) != ours {
					t.Errorf("%+v, %v", job, err)
				}
			}
		})
	}
}

// sealed seals the digest of a text, and stores nothing.
func sealed(t *testing.T, c *client.Client, text string) wire.Digest {
	t.Helper()
	d := sum([]byte(text))
	stamp(t, c, client.Submission{SHA256: d})
	return d
}
