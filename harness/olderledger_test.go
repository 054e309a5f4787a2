package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// An older copy of the aggregator's whole directory, fork guard included, is
// started in its place. Only the archives know of more seals. No leaf number is
// given out again, and nobody is told that a seal is not there; with the right
// directory back all is as it was.
func TestOlderCopyOfAnAggregatorSealsNothing(t *testing.T) {
	long(t)
	dir := t.TempDir()
	w := startWorld(t, world.Config{Dir: dir})
	c := w.Client("acme")
	path, older, newer := filepath.Join(dir, world.Aggregator), filepath.Join(dir, "older"), filepath.Join(dir, "newer")
	swap := func(change func() error) {
		t.Helper()
		if err := w.StopOne(t.Context(), world.Aggregator); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := w.Restart(t.Context(), world.Aggregator); err != nil {
			t.Fatal(err)
		}
	}
	digest := func(n int) wire.Digest { return sum(fmt.Append(nil, n)) }
	seal := func(n int) { stamp(t, c, client.Submission{SHA256: digest(n)}) }
	seal(1)
	awaitCosigned(t, w)
	swap(func() error { return copyPrivately(older, path) })
	seal(2)
	awaitThat(t, "the second seal is witnessed", func() bool {
		signed, err := os.ReadFile(filepath.Join(path, "cosigned"))
		lines := strings.Split(string(signed), "\n") // origin, size, root, nothing, signatures
		return err == nil && len(lines) > 8 && lines[1] == "2"
	})
	swap(func() error {
		if err := os.Rename(path, newer); err != nil {
			return err
		}
		return os.Rename(older, path)
	})

	a, err := c.Submit(t.Context(), client.Submission{SHA256: digest(3)})
	if err != nil {
		t.Fatal(err)
	}
	var got client.Outcome
	awaitThat(t, "the job says why it waits", func() bool {
		got, err = c.Job(t.Context(), a, false)
		return err != nil || got.Job == nil || got.Job.Reason != "" || got.Job.Status != wire.StatusPending
	})
	if err != nil || got.Job == nil || got.Job.Status != wire.StatusPending || len(got.Job.Receipts) > 0 {
		t.Errorf("a submission to an older ledger: %+v, %v", got.Job, err)
	}
	if _, err := c.Receipts(t.Context(), digest(2)); !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "LEDGER_STOPPED" {
		t.Errorf("a seal that the older ledger does not have: %v", err)
	}
	if _, err := c.Receipts(t.Context(), digest(1)); err != nil {
		t.Errorf("a seal that it has: %v", err)
	}

	swap(func() error {
		if err := os.Rename(path, older); err != nil {
			return err
		}
		return os.Rename(newer, path)
	})
	if _, err := c.Receipts(t.Context(), digest(2)); err != nil {
		t.Error(err)
	}
	seal(3)
}

// copyPrivately copies a directory for its owner only, as its keys must be.
func copyPrivately(to, from string) error {
	return errors.Join(os.CopyFS(to, os.DirFS(from)), filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Chmod(path, 0o600)
	}))
}
