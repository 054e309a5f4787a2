package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// archiveInfo asks the aggregator about an archive. What it says is the archive's
// word of up to half a second ago.
func archiveInfo(t *testing.T, c *client.Client, id wire.ArchiveID) edge.ArchiveInfo {
	t.Helper()
	raw, err := c.Archives(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Archives []edge.ArchiveInfo }
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Archives {
		if a.ArchiveID == id {
			return a
		}
	}
	return edge.ArchiveInfo{ArchiveID: id, State: "not enrolled"}
}

// archiveState asks the aggregator how an archive is.
func archiveState(t *testing.T, c *client.Client, id wire.ArchiveID) string {
	t.Helper()
	return archiveInfo(t, c, id).State
}

// awaitDown waits until the aggregator has heard that archives are gone.
func awaitDown(t *testing.T, c *client.Client, ids ...wire.ArchiveID) {
	t.Helper()
	for _, id := range ids {
		awaitThat(t, string(id)+" is not up", func() bool { return archiveState(t, c, id) != wire.StateUp })
	}
}

// awaitThat waits until cond holds.
func awaitThat(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not: %s", what)
		}
	}
}

// An archive is stopped and an older copy of its whole directory started in its
// place: key, mark and all agree with each other, so that nothing on its disk can
// show that records are gone. The aggregator's memory does. What was lost is
// copied from the other archives, and with the right disk back all is well.
func TestOlderCopyOfAnArchiveIsFoundAndHealed(t *testing.T) {
	long(t)
	dir := t.TempDir()
	w := startWorld(t, world.Config{Dir: dir, InProcess: true, Env: []string{"WAIT_ARCHIVE_MS=1000"}})
	c := w.Client("acme")
	const sick = "archive-a"
	swap := func(change func()) {
		t.Helper()
		if err := w.StopOne(t.Context(), sick); err != nil {
			t.Fatal(err)
		}
		change()
		if err := w.Restart(t.Context(), sick); err != nil {
			t.Fatal(err)
		}
	}
	awaitUp := func() {
		t.Helper()
		if err := w.WaitUp(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
	}
	path, older, newer := filepath.Join(dir, sick), filepath.Join(dir, "older"), filepath.Join(dir, "newer")
	put := func(from, to int) (digests []wire.Digest) {
		for i := from; i < to; i++ {
			data := fmt.Appendf(nil, "content %d", i)
			stamp(t, c, client.Submission{SHA256: sum(data), PublicMetadata: fmt.Appendf(nil, `{"n":%d}`, i), Files: []client.File{bytesFile("f", data)}})
			digests = append(digests, sum(data))
		}
		return digests
	}
	put(0, 6)
	swap(func() {
		if err := os.CopyFS(older, os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
	})
	awaitUp()
	digests := put(6, 18)
	swap(func() {
		if err := os.Rename(path, newer); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(older, path); err != nil {
			t.Fatal(err)
		}
	})
	awaitThat(t, "the loss is seen", func() bool { return archiveState(t, c, sick) == "lost-records" })
	awaitJob(t, c, digests[0], func(job *wire.Job) bool {
		if job.Complete {
			t.Error("a lookup meanwhile is complete")
		}
		return job.Complete || len(job.ArchivesMissing) == 1 && job.ArchivesMissing[0] == sick
	})
	var err error
	var page client.LostPage
	awaitThat(t, "it is accounted for", func() bool {
		if page, err = c.LostRecords(t.Context(), sick, wire.RecordID{}); err != nil {
			t.Fatal(err)
		}
		return page.Accounting != nil && page.Accounting.DoneAt != ""
	})
	if page.Accounting.Absent == 0 || page.Accounting.Lost != 0 || len(page.Records) != 0 {
		t.Errorf("accounted for: %+v", page.Accounting)
	}
	awaitThat(t, "everything has two copies on the others", func() bool {
		for _, d := range digests {
			job, err := c.Receipts(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if len(job.Files) != 1 || len(job.Receipts) != 2 || len(job.Files[0].ArchiveIDs) < 2 || len(job.Receipts[1].ArchiveIDs) < 2 {
				return false
			}
		}
		return true
	})
	if state := archiveState(t, c, sick); state == wire.StateUp {
		t.Errorf("a log that lost records is %s again in the same generation", state)
	}
	if need.Rounds(0, 1) == 0 {
		retire(t, c, sick, digests)
		return // the right disk takes the time of two rounds
	}
	swap(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(newer, path); err != nil {
			t.Fatal(err)
		}
	})
	awaitUp() // the right disk is believed
	awaitJob(t, c, digests[0], func(job *wire.Job) bool { return job.Complete })
	retire(t, c, sick, digests)
	awaitThat(t, "what it had is copied to the others", func() bool {
		page, err := c.LostRecords(t.Context(), sick, wire.RecordID{})
		return err == nil && page.Accounting != nil && page.Accounting.DoneAt != "" && page.Accounting.Lost == 0
	})
}

// retire takes an archive out, which nobody waits for then.
func retire(t *testing.T, c *client.Client, id wire.ArchiveID, digests []wire.Digest) {
	t.Helper()
	if _, err := c.RetireArchive(t.Context(), id, false); fault.CodeOf(err) != "ARCHIVE_NEEDED" {
		t.Errorf("retired although records need it: %v", err)
	}
	if _, err := c.RetireArchive(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	if state := archiveState(t, c, id); state != "not enrolled" {
		t.Errorf("a retired archive is %s", state)
	}
	awaitJob(t, c, digests[0], func(job *wire.Job) bool { return job.Complete && len(job.ArchivesExpected) == 2 })
}
