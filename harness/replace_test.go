package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// replaced is how many submissions the lost archive is replaced for.
const replaced = 40

// The runbook for an archive that was lost for good, on real processes: a new one
// under another id, `archived reconcile` on the others, one of which is killed
// meanwhile, and the lost one retired. Then every answer is complete, and every
// record and file is on two archives.
func TestALostArchiveIsReplaced(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{})
	acme := w.Client("acme")
	digests := make([]wire.Digest, replaced)
	for i := range digests {
		digests[i] = sum(fmt.Append(nil, "document ", i))
		s := client.Submission{SHA256: digests[i], PublicMetadata: fmt.Appendf(nil, `{"n":%d}`, i)}
		if i%4 == 0 {
			s.Files = []client.File{bytesFile("scan", randomBytes(400_000, uint64(i)))}
		}
		stamp(t, acme, s)
	}
	for _, d := range digests {
		awaitCopies(t, acme, d, "")
	}

	if err := w.Kill(t.Context(), "archive-c"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Lose("archive-c"); err != nil {
		t.Fatal(err)
	}
	if err := w.Restart(t.Context(), "archive-d"); err != nil {
		t.Fatal(err)
	}
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		// It follows the archive over its restart, or never reached it.
		said, code, err := w.Command(t.Context(), "archive-a", "reconcile")
		if err != nil || code != serve.ExitOK && code != serve.ExitUnreachable {
			t.Errorf("reconcile of a killed archive: code %d, %v\n%s", code, err, said)
		}
	})
	if err := w.Kill(t.Context(), "archive-a"); err != nil {
		t.Fatal(err)
	}
	if err := w.Restart(t.Context(), "archive-a"); err != nil {
		t.Fatal(err)
	}
	following.Wait()
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"archive-a", "archive-b"} {
		if said := reconcile(t, w, name); !strings.Contains(said, "0 failed") {
			t.Fatalf("reconcile of %s: %s", name, said)
		}
	}
	if _, err := acme.RetireArchive(t.Context(), "archive-c", false); err != nil {
		t.Errorf("no record needs the lost archive: %v", err)
	}
	for _, d := range digests {
		awaitCopies(t, acme, d, "archive-c")
	}
}

// awaitCopies waits until a digest's answer is complete and all that is attached
// is on two archives, none of them gone.
func awaitCopies(t *testing.T, c *client.Client, d wire.Digest, gone wire.ArchiveID) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		job, err := c.Receipts(t.Context(), d)
		if err == nil && job.Complete && onTwo(&job, gone) {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s is still not complete and on two archives: %+v, %v", d, job, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func onTwo(job *wire.Job, gone wire.ArchiveID) bool {
	held := [][]wire.ArchiveID{}
	for _, r := range job.Receipts[1:] {
		held = append(held, r.ArchiveIDs)
	}
	for _, f := range job.Files {
		held = append(held, f.ArchiveIDs)
	}
	for _, ids := range held {
		if len(ids) != 2 || ids[0] == gone || ids[1] == gone {
			return false
		}
	}
	return len(held) > 0
}
