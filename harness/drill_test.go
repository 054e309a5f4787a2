package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// drill is a world under load, some of whose receipts are remembered.
type drill struct {
	t      *testing.T
	w      *world.World
	kept   map[wire.Digest][]byte // receipts as they were given out
	number int                    // of documents
}

// The drill of an operator: an archive dies under load and its disk is gone; it
// is restored elsewhere from a backup that was taken under load, is admitted as a
// new generation, and what it acknowledged after the backup comes back from the
// others. Then the aggregator dies, and is restored from its disk. Every receipt
// is the one that was given out before.
func TestDrillRestoreUnderLoad(t *testing.T) {
	long(t)
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=1500", "LEASE_MS=500"}})
	d := &drill{t: t, w: w, kept: map[wire.Digest][]byte{}}
	load, stopLoad := context.WithCancel(t.Context())
	defer stopLoad()
	var clients sync.WaitGroup
	all := make([][]acceptedPart, need.Rounds(2, killClients))
	for i := range all {
		clients.Go(func() { all[i] = submitUntil(load, t, w, i, func() {}) })
	}
	for round := range need.Rounds(1, 4) {
		d.archive(fmt.Sprintf("archive-%c", 'a'+round%3), round/3+2)
	}
	stopLoad()
	clients.Wait()
	d.aggregator()
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	d.seal(1) // the archives have cosigned what was restored
	d.same()
	d.killed("archive-c")
	checkAccepted(t, w, all)
	for _, id := range w.Names()[1:] {
		if err := w.StopOne(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// archive loses an archive and restores it as a generation.
func (d *drill) archive(name string, generation int) {
	t, w := d.t, d.w
	d.seal(5)
	backup := filepath.Join(t.TempDir(), "backup")
	d.command(0, name, "backup", "--to", backup)
	d.seal(5) // what only the others have when it is back
	if err := w.Kill(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Lose(name); err != nil {
		t.Fatal(err)
	}
	d.seal(2) // the rest serves on
	said := d.command(0, name, "restore", "--from", backup)
	accept := fmt.Sprintf("verae archives accept %s/g%d", name, generation)
	if !strings.Contains(said, accept) {
		t.Errorf("the restore does not say %q: %s", accept, said)
	}
	if err := w.Restart(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	d.await(name, "unaccepted")
	if _, err := w.Client("acme").AcceptArchive(t.Context(), wire.ArchiveID(name), generation, ""); err != nil {
		t.Fatal(err)
	}
	d.await(name, wire.StateUp)
	for _, id := range w.Names()[1:] {
		reconcile(t, w, id)
	}
}

// aggregator loses the aggregator: an older backup would fork the ledger and is
// refused; the disk of the one that was killed is copied whole, and restored.
func (d *drill) aggregator() {
	t, w := d.t, d.w
	older, dir := filepath.Join(t.TempDir(), "older"), t.TempDir()
	d.command(0, world.Aggregator, "backup", "--to", older)
	d.seal(3)
	if err := w.Kill(t.Context(), world.Aggregator); err != nil {
		t.Fatal(err)
	}
	backup, vault := filepath.Join(dir, "backup"), filepath.Join(dir, "vault")
	d.command(0, world.Aggregator, "backup", "--to", backup, "--vault-to", vault)
	lost, err := w.Lose(world.Aggregator)
	if err != nil {
		t.Fatal(err)
	}
	guard := filepath.Join(lost, "ledger", "ledger.checkpoint")
	if said := d.command(65, world.Aggregator, "restore", "--from", older, "--vault-from", vault, "--guard", guard); !strings.Contains(said, "forks") {
		t.Errorf("an older ledger: %s", said)
	}
	d.command(0, world.Aggregator, "restore", "--from", backup, "--vault-from", vault, "--guard", guard)
	d.command(0, world.Aggregator, "check")
	if err := w.Restart(t.Context(), world.Aggregator); err != nil {
		t.Fatal(err)
	}
}

// killed kills commands that make and restore backups: what they leave is never
// taken for whole.
func (d *drill) killed(name string) {
	dir := d.t.TempDir()
	good := filepath.Join(dir, "good")
	d.command(0, name, "backup", "--to", good)
	for round := range need.Rounds(1, 10) {
		after := time.Duration(rand.IntN(400)) * time.Millisecond // the moment is random, nothing is measured by it
		cut, target := filepath.Join(dir, fmt.Sprint("cut", round)), filepath.Join(dir, fmt.Sprint("restored", round))
		d.until(after, name, "backup", "--to", cut)
		code := 65
		if _, err := os.Stat(filepath.Join(cut, "manifest.json")); err == nil {
			code = 0 // it was faster
		}
		d.command(code, name, "restore", "--offline", "--from", cut, "--data-dir", filepath.Join(dir, fmt.Sprint("from cut", round)))
		d.until(after, name, "restore", "--offline", "--from", good, "--data-dir", target)
		if _, err := os.Stat(target); err != nil {
			d.command(0, name, "restore", "--offline", "--from", good, "--data-dir", target)
		}
		d.command(0, name, "check", "--data-dir", target)
	}
}

// until runs a command and kills it after a while.
func (d *drill) until(after time.Duration, name string, args ...string) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), after)
	defer stop()
	if said, code, err := d.w.Command(ctx, name, args...); err == nil && code > 0 {
		d.t.Errorf("%s %q ended by itself with code %d: %s", name, args, code, said)
	}
}

func (d *drill) command(code int, name string, args ...string) string {
	d.t.Helper()
	said, got, err := d.w.Command(d.t.Context(), name, args...)
	if err != nil || got != code {
		d.t.Fatalf("%s %q ended with code %d, not %d: %v\n%s", name, args, got, code, err, said)
	}
	return said
}

// reconcile has an archive look for missing copies until none is missing: an
// archive may be too busy for some.
func reconcile(t *testing.T, w *world.World, name string) (said string) {
	t.Helper()
	for try := 0; ; try++ {
		said, code, err := w.Command(t.Context(), name, "reconcile")
		if err != nil {
			t.Fatal(err)
		}
		if code == 0 {
			return said
		}
		if try == 5 {
			t.Fatalf("%s does not reconcile: code %d: %s", name, code, said)
		}
	}
}

// seal has n documents sealed, each with metadata, and keeps the receipts.
func (d *drill) seal(n int) {
	d.t.Helper()
	c := d.w.Client("acme")
	for range n {
		d.number++
		digest := sum(fmt.Append(nil, "drill ", d.number))
		stamp(d.t, c, client.Submission{SHA256: digest, PublicMetadata: fmt.Appendf(nil, `{"drill":%d}`, d.number)})
		awaitJob(d.t, c, digest, func(job *wire.Job) bool {
			if len(job.Receipts) == 2 {
				d.kept[digest] = lastingReceipts(d.t, *job)
			}
			return len(job.Receipts) == 2
		})
	}
}

// lastingReceipts are receipts but for what grows: who holds a copy, and who has
// cosigned.
func lastingReceipts(t *testing.T, job wire.Job) []byte {
	t.Helper()
	for i := range job.Receipts {
		job.Receipts[i].ArchiveIDs, job.Receipts[i].Cosignatures = nil, nil
	}
	data, err := wire.Encode(job.Receipts)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// same fails unless every receipt is as it was, and complete.
func (d *drill) same() {
	d.t.Helper()
	for digest, want := range d.kept {
		var shown wire.Job
		awaitJob(d.t, d.w.Client("acme"), digest, func(job *wire.Job) bool { shown = *job; return job.Complete })
		if got := lastingReceipts(d.t, shown); !bytes.Equal(got, want) {
			d.t.Errorf("%s: the receipts are\n%s\nthey were\n%s", digest, got, want)
		}
	}
}

// await waits until an archive is in a state.
func (d *drill) await(name, state string) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), time.Minute)
	defer stop()
	for {
		raw, err := d.w.Client("acme").Archives(ctx)
		var list struct{ Archives []edge.ArchiveInfo }
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		for _, a := range list.Archives {
			if string(a.ArchiveID) == name && a.State == state {
				return
			}
		}
		select {
		case <-ctx.Done():
			d.t.Fatalf("%s is not %s: %s, %v", name, state, raw, err)
		case <-time.After(20 * time.Millisecond): // polls; nothing is timed by it
		}
	}
}
