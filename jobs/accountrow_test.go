package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestAccountRowLayoutIsFrozen(t *testing.T) {
	id := wire.RecordID(digestOf("record"))
	rows := map[string]any{
		"account.row": account{
			Archive: "archive-a", ID: "2026-01-02T03:04:05.000000006Z", Boot: "boot-1", After: []byte{1, 2, 3},
			Submissions: 256, Records: 40, Absent: 3, Lost: 1, Undecided: 2, StartedAt: "2026-01-02T03:04:06.000000000Z", DoneAt: "2026-01-02T03:05:06.000000000Z",
		},
		"lost.row": LostRecord{
			RecordID: id, Kind: wire.KindMetadata, TenantID: "acme", SubmissionID: "01890a5d-ac96-774b-bcce-b302099a8057",
			SHA256: digestOf("document"), FoundAt: "2026-01-02T03:04:05.000000006Z",
		},
		"reopened.row": submission{
			ID: "01890a5d-ac96-774b-bcce-b302099a8057", Tenant: "acme", Digest: digestOf("document"), Status: wire.StatusCompleted, Stored: true, Reopened: true,
			Parts: []part{{Kind: wire.KindMetadata, Size: 2, SHA256: digestOf("{}"), RecordID: id, Lost: "archive-a"}},
		},
	}
	for name, v := range rows {
		row, err := encodeRow(v)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") == "true" {
			if err := os.WriteFile(golden, row, 0o644); err != nil {
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

// The commit of a page of accounting fails, without and with being persisted. The
// next process goes on: what is absent counts once, nothing is lost that has a
// copy, and everything gets its copies again.
func TestAccountWriteFails(t *testing.T) {
	boom := errors.New("injected")
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted %v", persisted), func(t *testing.T) {
			w, b := newBooks(t, 3)
			a, _ := w.must(alice, everything)
			w.settled()
			sick := w.holders(alice, a)[0]
			b.forget(sick, any1)
			b.set(sick, func(n *node) { n.refuse = fault.New(fault.Transient, "LOST", "no puts") })
			w.failing(persisted, boom, func() bool { return true })
			l := Loss{Archive: sick, ID: "1", Boot: "1"}
			if err := w.engine.account(t.Context(), l); !errors.Is(err, boom) {
				t.Fatalf("got %v", err)
			}
			if _, said := b.whole["1"]; said {
				t.Error("told that it is accounted for")
			}
			if err := w.engine.Close(); err != nil {
				t.Fatal(err)
			}
			w.open(nil)
			if err := w.engine.account(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			w.engine.Nudge()
			w.settled()
			_, _, acc, err := w.engine.LostRecords(sick, wire.RecordID{})
			if n := uint64(len(a.Parts)); err != nil || acc.Absent != n || acc.Records != n || acc.Lost != 0 || b.whole["1"] {
				t.Errorf("%+v, whole %v: %v", acc, b.whole["1"], err)
			}
			for _, p := range a.Parts {
				if n := b.copies(p.RecordID); n != 2 {
					t.Errorf("%s has %d copies", p.Kind, n)
				}
			}
		})
	}
}
