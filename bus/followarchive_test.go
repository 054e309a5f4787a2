package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// mirroredFleet is a fleet whose archives share a filter key, with an aggregator
// that mirrors them.
func mirroredFleet(t testing.TB, lease time.Duration, ids ...wire.ArchiveID) (*fleet, *watcher) {
	t.Helper()
	f := startFleet(t)
	key := filepath.Join(t.TempDir(), "filter.key")
	if err := os.WriteFile(key, []byte(archive.NewFilterKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		f.addWith(t, id, func(c *archive.Config) { c.FilterKeyFile, c.Lease = key, lease })
	}
	secret, err := archive.ReadFilterKey(key)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{conn: f.roster.conn, roster: f.roster}
	if w.archives, err = NewArchives(w.conn, f.roster, patient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.archives.Close() })
	if w.mirrors, err = Follow(w.conn, f.roster, MirrorConfig{Secret: secret}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.mirrors.Close() })
	return f, w
}

// Of a real archive a mirror denies what nobody put, to whoever may not see it, and
// nothing that was acknowledged.
func TestAnArchiveIsMirrored(t *testing.T) {
	f, w := mirroredFleet(t, time.Minute, "archive-a", "archive-b")
	w.trusts(t, "archive-a")
	w.trusts(t, "archive-b")
	both := []wire.ArchiveID{"archive-a", "archive-b"}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := range 25 {
				subject := fmt.Sprint(k, "/", i)
				if n := len(w.mirrors.Silent(tenantA, digestOf(subject), both)); n != 2 {
					t.Logf("%s: %d of 2 are silent before it is there", subject, n)
				}
				ack, err := w.archives.Put(t.Context(), "archive-a", note(subject, "body"))
				if err != nil {
					t.Error(err)
					return
				}
				silent := w.mirrors.Silent(tenantA, digestOf(subject), both)
				if len(silent) != 1 || silent[0].ID != "archive-b" {
					t.Errorf("%s, acknowledged as %d: silent are %+v", subject, ack.Seq, silent)
				}
				if n := len(w.mirrors.Silent(tenantB, digestOf(subject), both)); n != 2 {
					t.Logf("%s: %d of 2 are silent for a stranger", subject, n)
				}
			}
		})
	}
	wg.Wait()
	if s := f.depots[0].node.Feed().Stats(); s.Holders != 1 || s.RanOut != 0 || s.Sent == 0 {
		t.Errorf("%+v", s)
	}
}

// An archive that was stopped in order takes records at once when it comes back: its
// leases were given back. One that crashed waits for as long as a lease is.
func TestAnArchiveThatCrashedWaitsForItsLeases(t *testing.T) {
	const lease = time.Second
	f, w := mirroredFleet(t, lease, "archive-a")
	d := f.depots[0]
	w.trusts(t, "archive-a")
	if _, err := w.archives.Put(t.Context(), "archive-a", note("x", "")); err != nil {
		t.Fatal(err)
	}
	d.stop(t)
	f.start(t, d)
	if _, err := w.archives.Put(t.Context(), "archive-a", note("y", "")); err != nil {
		t.Errorf("after a stop in order: %v", err)
	}
	w.trusts(t, "archive-a")

	leases := filepath.Join(d.dir, "records", "leases")
	text, err := os.ReadFile(leases)
	if err != nil {
		t.Fatal(err)
	}
	d.stop(t)
	if err := os.WriteFile(leases, text, 0o600); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	began := time.Now()
	f.start(t, d)
	_, err = w.archives.Put(t.Context(), "archive-a", note("z", ""))
	if err != nil || time.Since(began) < lease { // a machine may take so long to start it
		wantFault(t, err, fault.Transient, "GRACE")
	}
	eventually(t, "it takes records again", func() bool {
		_, err = w.archives.Put(t.Context(), "archive-a", note("z", ""))
		return err == nil
	})
	w.trusts(t, "archive-a")
	if w.silent("archive-a", "z") {
		t.Error("what was acknowledged after the crash is denied")
	}
}
