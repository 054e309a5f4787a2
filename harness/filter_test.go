package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
)

// The archives of a world share one filter key, which is made once, and an archive
// that was stopped in order leaves a snapshot of its filter for its next start.
func TestArchivesShareAFilterKey(t *testing.T) {
	long(t)
	dir := t.TempDir()
	w := startWorld(t, world.Config{Dir: dir, InProcess: true})
	key, err := os.ReadFile(filepath.Join(dir, "filter.key"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "filter.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
	stamp(t, w.Client("acme"), client.Submission{Data: []byte("data"), PublicMetadata: []byte(`{"a":1}`)})
	snapshots := 0
	for _, name := range w.Names()[1:] {
		if err := w.StopOne(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		records := filepath.Join(dir, name, "records")
		if _, err := os.Stat(filepath.Join(records, "filter.key")); !os.IsNotExist(err) {
			t.Errorf("%s has a key of its own: %v", name, err)
		}
		_, keys := os.Stat(filepath.Join(records, "filters", "keys", "snapshot"))
		_, views := os.Stat(filepath.Join(records, "filters", "views", "snapshot"))
		if keys == nil && views == nil {
			snapshots++
		}
		if _, err := os.Stat(filepath.Join(records, "leases")); !os.IsNotExist(err) {
			t.Errorf("%s was stopped in order and left leases out: %v", name, err)
		}
		if err := w.Restart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if snapshots != 2 { // the copies of the one record
		t.Errorf("%d archives left a snapshot, want 2", snapshots)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "filter.key")); err != nil || string(again) != string(key) {
		t.Errorf("the key has changed: %v", err)
	}
}
