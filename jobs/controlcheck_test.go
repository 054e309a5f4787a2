package jobs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// A job store with control records is sound, and the check finds each row of
// theirs that is gone or changed.
func TestCheckFindsEveryDamagedControlRow(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, _ := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	for _, c := range steered {
		w.steer(c.q)
	}
	w.steer(about(wire.KindHold, wire.Control{RecordID: a.Parts[0].RecordID}))
	w.settled()
	w.archives.set("archive-b", func(n *node) { n.up = false })
	w.steer(about(wire.KindHold, wire.Control{Name: "waits"}))
	b, err := pebblex.NewBackup(w.fs, "backup", "aggregator", "x", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Backup(t.Context(), b, "jobs"); err != nil {
		t.Fatal(err)
	}
	report, found := checkCopy(t, w.fs, "backup/jobs", w.ledger, nil)
	if len(found) > 0 || report.Submissions != 6 || report.Unfinished != 1 {
		t.Fatalf("%+v, %v", report, found)
	}
	type entry struct{ key, row []byte }
	var all []entry
	if err := w.engine.store.view(func(r pebble.Reader) error {
		return scan(r, nil, func(key, row []byte) (bool, error) {
			all = append(all, entry{key, row})
			return true, nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	tried := map[byte]int{}
	for _, e := range all {
		if bytes.IndexByte([]byte{rowSteering, rowControl, rowOutbox, rowPending}, e.key[0]) < 0 {
			continue
		}
		tried[e.key[0]]++
		damage(t, w, "removed", e.key, func(db *pebble.DB) error { return db.Delete(e.key, pebble.Sync) })
		if len(e.row) > 0 {
			bad := bytes.Clone(e.row)
			bad[len(bad)/2] ^= 1
			damage(t, w, "changed", e.key, func(db *pebble.DB) error { return db.Set(e.key, bad, pebble.Sync) })
		}
	}
	if tried[rowSteering] != 2 || tried[rowControl] != 5 || tried[rowOutbox] != 5 || tried[rowPending] != 1 {
		t.Errorf("rows that were tried: %v", tried)
	}
}

// The layout of the rows of decisions is frozen, as that of a submission is.
func TestControlRowLayoutIsFrozen(t *testing.T) {
	one, id := wire.RecordID(digestOf("record")), wire.SubmissionID("01890a5d-ac96-774b-bcce-b302099a8057")
	rows := map[string]any{
		"steering.row": steering{
			State: &wire.Retention{RetainUntil: "2036-11-30T00:00:00.000000000Z", Holds: []wire.Hold{
				{Name: "", RecordID: one, DecidedAt: "2026-01-02T03:04:05.000000006Z", ControlID: wire.RecordID{1}, Released: true},
				{Name: "case 17", RecordID: one, Reason: "Smith v. Acme", DecidedAt: "2026-01-02T03:04:05.000000007Z", ControlID: wire.RecordID{2}},
			}},
			Retain: id, Holds: map[string]wire.SubmissionID{"": id, "case 17": id},
		},
		"control.row": submission{
			ID: id, Tenant: "acme", Digest: digestOf("document"), Placement: digestOf("document"), AttachedAt: "2026-01-02T03:04:05.000000006Z",
			Control: wire.KindHold, Parts: []part{{Kind: wire.KindHold, Size: 2, SHA256: digestOf("{}"), RecordID: one, Acks: []wire.ArchiveID{"archive-a"}}},
			UploadsDone: true, Stored: true, Copied: true, Status: wire.StatusCompleted,
		},
		"roster-seen.row": rosterSeen{Version: 7},
	}
	for name, v := range rows {
		row, err := encodeRow(v)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") == "true" {
			if err := os.WriteFile(golden, row, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(row, want) {
			t.Errorf("%s changed:\n%q\n%q", name, row, want)
		}
	}
}
