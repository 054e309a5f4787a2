package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/tlogx"
)

// awaitCosigned waits until every archive of a world has cosigned a checkpoint
// of the ledger, under the key that it is enrolled with.
func awaitCosigned(t *testing.T, w *world.World) {
	t.Helper()
	dir := filepath.Join(w.Ready().Dir, world.Aggregator)
	data, err := os.ReadFile(filepath.Join(dir, "roster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var roster struct {
		Archives []struct {
			ID  string `json:"id"`
			Key []byte `json:"key"`
		} `json:"archives"`
	}
	if err := json.Unmarshal(data, &roster); err != nil || len(roster.Archives) != 3 {
		t.Fatalf("the roster: %+v, %v", roster, err)
	}
	for {
		signed, missing := []byte(nil), "the file"
		if signed, err = os.ReadFile(filepath.Join(dir, "cosigned")); err == nil {
			missing = ""
			for _, a := range roster.Archives {
				v, err := tlogx.NewCosignatureVerifier(a.ID, a.Key)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tlogx.OpenCosignature(signed, v); err != nil {
					missing = a.ID
				}
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-time.After(time.Until(deadline(t))):
			t.Fatalf("the cosignature of %s is missing: %v\n%s", missing, err, signed)
		}
	}
}

// deadline leaves a test the time to say what it waited for.
func deadline(t *testing.T) time.Time {
	d, ok := t.Deadline()
	if !ok {
		return time.Now().Add(time.Hour)
	}
	return d.Add(-5 * time.Second)
}
