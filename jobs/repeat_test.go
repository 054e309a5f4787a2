package jobs

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestEqualContentJoinsTheFirstSubmission(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, 2, func(cfg *Config) { cfg.Now, cfg.ResubmitWindow = c.Now, time.Hour })
	base := hashBody(digestOf("document"), metadata("1"), fileField("file"))
	first, _ := w.must(alice, base)
	for name, tc := range map[string]struct {
		tenant wire.TenantID
		body   string
		joins  bool
	}{
		"the same":                {alice, base, true},
		"another includeAttached": {alice, hashBody(digestOf("document"), metadata("1"), fileField("file"), attached), true},
		"another tenant":          {bob, base, false},
		"other metadata":          {alice, hashBody(digestOf("document"), metadata("2"), fileField("file")), false},
		"another file":            {alice, hashBody(digestOf("document"), metadata("1"), fileField("other")), false},
		"another subject":         {alice, hashBody(digestOf("other"), metadata("1"), fileField("file")), false},
		"a share":                 {alice, hashBody(digestOf("document"), metadata("1"), fileField("file"), `"public":true`), false},
		"sealed metadata":         {alice, hashBody(digestOf("document"), metadata("1"), fileField("file"), `"sealMetadata":true`), false},
	} {
		a, _ := w.must(tc.tenant, tc.body)
		if joined := a.SubmissionID == first.SubmissionID; joined != tc.joins {
			t.Errorf("%s: joined %v", name, joined)
		}
	}
	c.add(time.Hour + time.Second)
	if a, _ := w.must(alice, base); a.SubmissionID == first.SubmissionID {
		t.Error("joined after the window had passed")
	}
	if n := w.archives.openUploads(); n != 0 {
		t.Errorf("%d uploads of joining requests are left open", n)
	}
}

func TestParallelEqualRequestsMakeOneRecord(t *testing.T) {
	w := newWorld(t, 2, nil)
	body := hashBody(digestOf("document"), metadata("1"), fileField("file"))
	var wg sync.WaitGroup
	ids := make([]wire.SubmissionID, 32)
	for i := range ids {
		wg.Go(func() {
			a, err := w.submit(t.Context(), Caller{TenantID: alice}, body)
			if err != nil {
				t.Error(err)
			}
			ids[i] = a.SubmissionID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("submissions %s and %s", id, ids[0])
		}
	}
	if n := len(w.archives.distinct()); n != 2 || w.archives.openUploads() != 0 {
		t.Errorf("%d records and %d open uploads; want 2 and 0", n, w.archives.openUploads())
	}
}

func TestHashesAreNotDeduplicatedByContent(t *testing.T) {
	w := newWorld(t, 1, nil)
	a, _ := w.must(alice, hashBody(digestOf("document")))
	b, _ := w.must(alice, hashBody(digestOf("document")))
	if a.SubmissionID == b.SubmissionID {
		t.Error("two pure hashes became one submission")
	}
}

func TestWindowOffMakesEveryRequestANewOne(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.ResubmitWindow = -1 })
	body := hashBody(digestOf("document"), metadata("1"))
	a, _ := w.must(alice, body)
	b, _ := w.must(alice, body)
	if a.SubmissionID == b.SubmissionID || len(w.archives.distinct()) != 2 {
		t.Errorf("submissions %s and %s, %d records", a.SubmissionID, b.SubmissionID, len(w.archives.distinct()))
	}
}

func TestIdempotencyKey(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, 1, func(cfg *Config) { cfg.Now, cfg.IdempotencyTTL, cfg.ResubmitWindow = c.Now, 24*time.Hour, time.Hour })
	send := func(tenant wire.TenantID, key, body string) (wire.Accepted, error) {
		return w.submit(t.Context(), Caller{TenantID: tenant, IdempotencyKey: key}, body)
	}
	first, err := send(alice, "key", hashBody(digestOf("document")))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := send(alice, "key", hashBody(digestOf("document"))); err != nil || again.SubmissionID != first.SubmissionID {
		t.Errorf("the same key and content: %s, %v", again.SubmissionID, err)
	}
	if _, err := send(alice, "key", hashBody(digestOf("other"))); !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("the same key, other content: %v", err)
	}
	if other, err := send(bob, "key", hashBody(digestOf("other"))); err != nil || other.SubmissionID == first.SubmissionID {
		t.Errorf("another tenant's key: %s, %v", other.SubmissionID, err)
	}
	if other, err := send(alice, "another", hashBody(digestOf("document"))); err != nil || other.SubmissionID == first.SubmissionID {
		t.Errorf("another key: %s, %v", other.SubmissionID, err)
	}
	// A key that comes with known content names the submission it joined.
	body := hashBody(digestOf("document"), metadata("1"))
	unnamed, _ := w.must(alice, body)
	named, err := send(alice, "named", body)
	if err != nil || named.SubmissionID != unnamed.SubmissionID {
		t.Errorf("a new key for known content: %s, %v", named.SubmissionID, err)
	}
	c.add(2 * time.Hour) // the window is over, the key is not
	if again, err := send(alice, "named", body); err != nil || again.SubmissionID != unnamed.SubmissionID {
		t.Errorf("the key after the window: %s, %v", again.SubmissionID, err)
	}
	c.add(25 * time.Hour)
	for more := true; more; {
		if more, err = w.engine.expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if fresh, err := send(alice, "key", hashBody(digestOf("other"))); err != nil || fresh.SubmissionID == first.SubmissionID {
		t.Errorf("the key after its time: %s, %v", fresh.SubmissionID, err)
	}
}

// A second request with a key whose first is still being worked on is told so,
// and one with other content is told that first.
func TestIdempotencyKeyInFlight(t *testing.T) {
	w := newWorld(t, 1, nil)
	hold, entered := make(chan struct{}), make(chan struct{})
	w.engine.step = func(name string) error {
		if name == "accept.lookup" {
			close(entered)
			<-hold
		}
		return nil
	}
	done := make(chan error)
	go func() {
		_, err := w.submit(t.Context(), Caller{TenantID: alice, IdempotencyKey: "key"}, hashBody(digestOf("document")))
		done <- err
	}()
	<-entered
	if _, err := w.submit(t.Context(), Caller{TenantID: alice, IdempotencyKey: "key"}, hashBody(digestOf("document"))); fault.CodeOf(err) != "IDEMPOTENCY_IN_FLIGHT" {
		t.Errorf("the same content in flight: %v", err)
	}
	if _, err := w.submit(t.Context(), Caller{TenantID: alice, IdempotencyKey: "key"}, hashBody(digestOf("other"))); fault.CodeOf(err) != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("other content in flight: %v", err)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A submission that is closed as failed gives its key and its content free in
// the same commit, so that the sender's retry is a new one.
func TestFailedSubmissionReleasesItsKeys(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.all(func(n *node) { n.forgetful = true })
	caller := Caller{TenantID: alice, IdempotencyKey: "key"}
	body := hashBody(digestOf("document"), metadata("1"), fileField("file"))
	caller.SubmissionID = wire.NewSubmissionID()
	_, err := w.submit(t.Context(), caller, body)
	if fault.CodeOf(err) != "UPLOAD_LOST" || !fault.Is(err, fault.Transient) {
		t.Fatalf("a lost upload: %v", err)
	}
	if _, sealed, err := w.ledger.Lookup(t.Context(), digestOf("document")); sealed || err != nil || len(w.archives.distinct()) != 0 {
		t.Errorf("a lost upload left a seal (%v, %v) or %d records", sealed, err, len(w.archives.distinct()))
	}
	if events := w.announced(caller.SubmissionID); len(events) != 1 || events[0].Event != wire.EventFailed || events[0].ReasonKind != "transient" {
		t.Errorf("its events are %s", encode(t, events))
	}
	w.archives.all(func(n *node) { n.forgetful = false })
	failed := caller.SubmissionID
	caller.SubmissionID = ""
	a, err := w.submit(t.Context(), caller, body)
	if err != nil || a.SubmissionID == failed {
		t.Fatalf("the retry: %s, %v", a.SubmissionID, err)
	}
	if job := w.ended(alice, a); job.Status != wire.StatusCompleted {
		t.Errorf("the retry's job is %s", encode(t, job))
	}
}

// A key that joined a submission by its content does not lead to it for ever
// when that fails.
func TestKeyThatJoinedAFailedSubmissionIsFree(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.PutWait = 300 * time.Millisecond })
	w.archives.all(func(n *node) { n.refuseCommit = errDown })
	body := hashBody(digestOf("document"), fileField("file"))
	first, joined := Caller{TenantID: alice}, Caller{TenantID: alice, IdempotencyKey: "key"}
	for _, caller := range []Caller{first, joined} {
		if _, err := w.submit(t.Context(), caller, body); fault.CodeOf(err) != codeNoArchive {
			t.Fatalf("files that can not be committed: %v", err)
		}
	}
	w.archives.all(func(n *node) { n.refuseCommit = nil; n.restart() })
	w.engine.Nudge()
	w.settled()
	a, err := w.submit(t.Context(), joined, body)
	if err != nil {
		t.Fatalf("the retry with the key that joined: %v", err)
	}
	if job := w.ended(alice, a); job.Status != wire.StatusCompleted {
		t.Errorf("the retry's job is %s", encode(t, job))
	}
	if again, err := w.submit(t.Context(), joined, body); err != nil || again.SubmissionID != a.SubmissionID {
		t.Errorf("the key names %s after the retry made %s: %v", again.SubmissionID, a.SubmissionID, err)
	}
}

// A key is forgotten in the end also when IDEMPOTENCY_TTL was raised after it
// came.
func TestKeyExpiresAfterALongerTTL(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, 1, func(cfg *Config) { cfg.Now, cfg.IdempotencyTTL = c.Now, time.Hour })
	if _, err := w.submit(t.Context(), Caller{TenantID: alice, IdempotencyKey: "key"}, hashBody(digestOf("document"))); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.engine.cfg.IdempotencyTTL = 24 * time.Hour
	for _, keys := range []int{1, 0} {
		c.add(12*time.Hour + time.Second)
		for more := true; more; {
			var err error
			if more, err = w.engine.expire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, prefix := range []byte{rowIdempotency, rowExpiry} {
			if n := w.rows(prefix); n != keys {
				t.Errorf("%d rows under %q, want %d", n, prefix, keys)
			}
		}
	}
}

// rows counts the rows under a prefix.
func (w *world) rows(prefix byte) (n int) {
	w.t.Helper()
	if err := w.engine.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{prefix}, func(_, _ []byte) (bool, error) {
			n++
			return true, nil
		})
	}); err != nil {
		w.t.Fatal(err)
	}
	return n
}
