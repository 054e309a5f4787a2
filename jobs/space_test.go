package jobs

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Without room no submission is begun, and nothing is left of the request; what
// was accepted goes on, repeated requests are answered, and so are lookups.
func TestWithoutRoomNothingNewIsTaken(t *testing.T) {
	var full atomic.Bool
	w := newWorld(t, 2, func(c *Config) {
		c.Room = func() error {
			if full.Load() {
				return errors.New("the disk of /secret/path is full")
			}
			return nil
		}
	})
	const tenant, body = "acme", `{"data":"one","publicMetadata":{"a":1}}`
	first, _ := w.must(tenant, body)

	full.Store(true)
	for _, refused := range []string{
		`{"data":"two"}`,
		`{"data":"three","publicMetadata":{"a":1},"files":[{"name":"a","dataBase64":"aGVsbG8="}]}`,
	} {
		_, err := w.submit(t.Context(), Caller{TenantID: tenant}, refused)
		if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "DISK_FULL" || fault.RetryAfter(err) == 0 || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", refused, err)
		}
	}
	watch := wire.Watch{JobID: wire.NewJobID(), SHA256: wire.Digest{1}, TenantID: tenant}
	if err := w.engine.Watch(t.Context(), watch); fault.CodeOf(err) != "DISK_FULL" {
		t.Errorf("a watch that begins a submission: %v", err)
	}
	again, err := w.submit(t.Context(), Caller{TenantID: tenant}, body)
	if err != nil || again.SubmissionID != first.SubmissionID {
		t.Errorf("a repeated request: %+v, %v", again, err)
	}
	if job := w.ended(tenant, first); job.Status != wire.StatusCompleted {
		t.Errorf("a lookup: %+v", job)
	}
	if n, err := w.engine.Pending(); err != nil || n != 0 {
		t.Errorf("%d submissions are under way, %v", n, err)
	}
	w.archives.all(func(n *node) {
		if len(n.uploads) > 0 {
			t.Errorf("%d uploads are left open", len(n.uploads))
		}
	})

	full.Store(false)
	w.must(tenant, `{"data":"two"}`)
}
