package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/bridge/envelope"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// ocrNeighbour is a test double of everything beyond the outbox: the bridge that
// publishes, the queue ocr.jobs, and a worker that reads texts.
type ocrNeighbour struct {
	t     *testing.T
	world *world.World
	key   string                     // the worker's; its one scope is files
	queue chan []byte                // ocr.jobs
	seen  map[wire.EnvelopeID]string // payloads of the messages that came, by their id
}

func newNeighbour(t *testing.T, w *world.World, tenants ...wire.TenantID) *ocrNeighbour {
	t.Helper()
	return &ocrNeighbour{t: t, world: w, key: worldKey(t, w, "ocr", tenants, edge.ScopeFiles), queue: make(chan []byte, 100), seen: map[wire.EnvelopeID]string{}}
}

// worldKey makes a key in a world's key file.
func worldKey(t *testing.T, w *world.World, tenant wire.TenantID, tenants []wire.TenantID, scopes ...edge.Scope) string {
	t.Helper()
	text, _, err := edge.CreateKey(filepath.Join(w.Ready().Dir, "keys.json"), edge.KeySpec{TenantID: tenant, Tenants: tenants, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// connect is the bridge's connection to the world's NATS server.
func (n *ocrNeighbour) connect() *bus.Conn {
	n.t.Helper()
	conn, err := bus.Connect(bus.Config{URL: n.world.Ready().NATSURL, Name: "bridge"})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

func (n *ocrNeighbour) claim(conn *bus.Conn, lease time.Duration) []wire.OutboxItem {
	n.t.Helper()
	ctx, stop := context.WithTimeout(n.t.Context(), 30*time.Second)
	defer stop()
	got, err := conn.ClaimOCR(ctx, wire.OutboxClaim{Max: 10, LeaseMs: lease.Milliseconds()})
	if err != nil {
		n.t.Fatal(err)
	}
	return got.Items
}

// done reports messages as published, and returns how many left the outbox.
func (n *ocrNeighbour) done(conn *bus.Conn, items []wire.OutboxItem) int {
	n.t.Helper()
	ctx, stop := context.WithTimeout(n.t.Context(), 30*time.Second)
	defer stop()
	var report wire.OutboxDone
	for _, item := range items {
		report.IDs = append(report.IDs, item.ID)
	}
	count, err := conn.DoneOCR(ctx, report)
	if err != nil {
		n.t.Fatal(err)
	}
	return count.Done
}

// work takes the next message from the queue. At the first attempt it fetches and
// checks the file, and has a moment of weakness: it publishes the next attempt. At
// the second it returns the job with the file's bytes.
func (n *ocrNeighbour) work() (envelope.OCRJob, []byte) {
	n.t.Helper()
	for {
		raw := <-n.queue
		message, err := envelope.Parse(raw)
		if err != nil {
			n.t.Fatal(err)
		}
		if message.Exhausted() || message.CheckProperties(message.Properties()) != nil || time.Since(time.Unix(message.TS, 0)) > time.Hour {
			n.t.Errorf("the message %s", raw)
		}
		if before, again := n.seen[message.ID]; again != (message.Attempt == 2) || again && before != string(message.Payload) {
			n.t.Errorf("attempt %d of %s: %s after %q", message.Attempt, message.ID, message.Payload, before)
		}
		n.seen[message.ID] = string(message.Payload)
		job, err := message.OCRJob()
		if err != nil {
			n.t.Fatal(err)
		}
		data := n.fetch(job)
		if message.Attempt == 2 {
			return job, data
		}
		next, err := message.Next()
		if err != nil {
			n.t.Fatal(err)
		}
		n.queue <- next.Bytes()
	}
}

// fetch gets the bytes behind a job's CID and holds them against all that the job
// says of them.
func (n *ocrNeighbour) fetch(job envelope.OCRJob) []byte {
	n.t.Helper()
	data, resp := n.get(n.key, job.IPFSCID)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") != `"`+job.IPFSCID+`"` {
		n.t.Fatalf("%s: %s, ETag %s: %.200s", job.IPFSCID, resp.Status, resp.Header.Get("ETag"), data)
	}
	hasher := blob.NewHasher(blob.Default)
	if _, err := hasher.Write(data); err != nil {
		n.t.Fatal(err)
	}
	if cid := hasher.Sum().CID; cid != job.IPFSCID {
		n.t.Errorf("the bytes of %s have the CID %s", job.IPFSCID, cid)
	}
	sum := sha1.Sum(data)
	if job.SHA1 != hex.EncodeToString(sum[:]) || job.Bytes == nil || *job.Bytes != int64(len(data)) {
		n.t.Errorf("%d bytes with SHA-1 %x are not what the job says: %+v", len(data), sum, job)
	}
	return data
}

// get asks for a file, and again where it is told to: archives whose server was
// restarted hear questions before they hear that somebody wants a file.
func (n *ocrNeighbour) get(key, cid string) (data []byte, resp *http.Response) {
	n.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); ; {
		if data, resp = n.getOnce(key, cid); resp.StatusCode != http.StatusServiceUnavailable {
			return data, resp
		}
		select {
		case <-tick.C:
		case <-late:
			return data, resp
		}
	}
}

func (n *ocrNeighbour) getOnce(key, cid string) ([]byte, *http.Response) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.world.Ready().HTTPURL+"/ipfs/"+cid, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("x-api-key", key)
	resp, err := bounded.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return data, resp
}

// attach sends a text back, as the writer does with the tenant's key.
func (n *ocrNeighbour) attach(tenant wire.TenantID, subject wire.Digest, text string) {
	n.t.Helper()
	body := fmt.Sprintf(`{"sha256":%q,"attachments":[{"kind":"ocr-text","contentType":"text/plain","dataBase64":%q}]}`, subject, base64.StdEncoding.EncodeToString([]byte(text)))
	status, answer := postJSON(n.t, n.world, n.world.Client(tenant).Key, body)
	if status != http.StatusOK {
		n.t.Fatalf("attach: %d %s", status, answer)
	}
}

// postJSON submits a JSON body and waits for the job.
func postJSON(t *testing.T, w *world.World, key, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.Ready().HTTPURL+"/zapier/v1/timestamp/wait", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-api-key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := bounded.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

func ocrBody(subject wire.Digest, files ...[]byte) string {
	var list []string
	for i, data := range files {
		list = append(list, fmt.Sprintf(`{"name":"exhibit %d.pdf","dataBase64":%q,"ocr":%v}`, i, base64.StdEncoding.EncodeToString(data), i > 0))
	}
	return fmt.Sprintf(`{"sha256":%q,"files":[%s]}`, subject, strings.Join(list, ","))
}

// From the submission to the text that comes back, on real processes: the outbox
// hands each file out once, also when the aggregator is killed in between; its CID
// resolves for the worker's key and for no other; the text is a later receipt.
func TestTheTextOfAFileComesBack(t *testing.T) {
	w := startWorld(t, world.Config{})
	n := newNeighbour(t, w, "acme")
	subject := sum([]byte("the case"))
	small, large := []byte("one page"), randomBytes(2<<20+1, 7) // a single block, and a tree of them
	if status, answer := postJSON(t, w, w.Client("acme").Key, ocrBody(subject, []byte("no text wanted"), small, large)); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}

	claimed := n.claim(n.connect(), 10*time.Minute)
	if len(claimed) != 2 {
		t.Fatalf("%d messages for two files", len(claimed))
	}
	if err := w.Kill(t.Context(), world.Aggregator); err != nil {
		t.Fatal(err)
	}
	if err := w.Restart(t.Context(), world.Aggregator); err != nil {
		t.Fatal(err)
	}
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	conn := n.connect()
	again := n.claim(conn, 10*time.Minute)
	if diff := cmp.Diff(claimed, again); diff != "" {
		t.Errorf("after the kill other bytes are handed out: %s", diff)
	}
	for _, item := range again {
		n.queue <- item.Envelope
	}
	if first, second := n.done(conn, again), n.done(conn, again); first != 2 || second != 0 {
		t.Errorf("%d, then %d left the outbox", first, second)
	}

	for _, want := range [][]byte{small, large} {
		job, data := n.work()
		if !bytes.Equal(data, want) || !strings.HasPrefix(job.Filename, "exhibit ") {
			t.Errorf("%s has %d bytes, want %d", job.Filename, len(data), len(want))
		}
		if _, resp := n.get(w.Client("globex").Key, job.IPFSCID); resp.StatusCode != http.StatusNotFound {
			t.Errorf("another tenant gets %s", resp.Status)
		}
		n.attach("acme", subject, "text of "+job.Filename)
	}
	awaitJob(t, w.Client("acme"), subject, func(job *wire.Job) bool {
		texts := 0
		for i, r := range job.Receipts {
			if r.Kind == "ocr-text" && i > 0 && string(r.Body) == fmt.Sprintf("text of exhibit %d.pdf", texts+1) {
				texts++
			}
		}
		return job.Receipts[0].Kind == wire.ReceiptSeal && texts == 2 && len(job.Files) == 3
	})

	// The same attachment in another submission is read no second time.
	body := strings.Replace(ocrBody(subject, small, small), "{", `{"publicMetadata":{"again":true},`, 1)
	if status, answer := postJSON(t, w, w.Client("acme").Key, body); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	if items := n.claim(conn, time.Second); len(items) != 0 {
		t.Errorf("messages of an attachment that was read: %+v", items)
	}
}

// A tenant whose files nobody may fetch is told so, and how to change it; then the
// same request is taken.
func TestOCRNeedsSomebodyWhoMayFetch(t *testing.T) {
	w := startWorld(t, world.Config{InProcess: true})
	key := worldKey(t, w, "lonely", nil, edge.ScopeStamp)
	body := ocrBody(sum([]byte("x")), []byte("a"), []byte("b"))
	type refusal struct {
		Code, Detail string
		Errors       []edge.ProblemField
	}
	post := func() (status int, p refusal) {
		t.Helper()
		status, answer := postJSON(t, w, key, body)
		if err := json.Unmarshal(answer, &p); err != nil {
			t.Fatal(err)
		}
		return status, p
	}
	deadline := time.Now().Add(time.Minute)
	for status, p := post(); p.Code != "OCR_NO_WORKER"; status, p = post() { // the key counts within a second
		if p.Code != "KEY_UNKNOWN" || time.Now().After(deadline) {
			t.Fatalf("%d %+v", status, p)
		}
		time.Sleep(20 * time.Millisecond) // polls; nothing is timed by it
	}
	if status, p := post(); status != http.StatusUnprocessableEntity || !strings.Contains(p.Detail, "verae keys create") || len(p.Errors) != 1 || p.Errors[0].Field != "ocr" {
		t.Errorf("%d %+v", status, p)
	}
	n := newNeighbour(t, w, "lonely", "acme")
	for status, p := post(); status != http.StatusOK; status, p = post() {
		if p.Code != "OCR_NO_WORKER" || time.Now().After(deadline) {
			t.Fatalf("%d %+v", status, p)
		}
		time.Sleep(20 * time.Millisecond) // polls; nothing is timed by it
	}
	items := n.claim(n.connect(), time.Minute)
	if len(items) != 1 {
		t.Fatalf("%d messages", len(items))
	}
	n.queue <- items[0].Envelope
	if _, data := n.work(); string(data) != "b" {
		t.Errorf("the worker got %q", data)
	}
}
