package jobs

import (
	"context"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// saying is a Gatherer that says one thing.
type saying struct{ found receipts.Gathered }

func (s *saying) Gather(context.Context, wire.Digest, wire.TenantID, []wire.Kind) (receipts.Gathered, error) {
	return s.found, nil
}

// What may be on an archive that was not heard is never denied, and what was
// found is given, whoever else is silent.
func TestSilentArchivesDenyNothing(t *testing.T) {
	says := &saying{}
	w := newWorld(t, 1, func(c *Config) { c.Gatherer = says })
	record := wire.Record{
		ID: wire.RecordID{7}, Kind: wire.KindFile, TenantID: alice,
		File: &wire.File{CID: "bafkreib", Size: 4, SHA256: digestOf("file")},
	}
	held := []receipts.Held{{Record: record, ArchiveIDs: []wire.ArchiveID{"a-stranger", "archive-a", "stranger"}}} // bytes are had from the enrolled one
	other := record
	other.ID, other.File = wire.RecordID{8}, &wire.File{CID: "bafkreic"}
	two, one := []wire.ArchiveID{"archive-a", "archive-b"}, []wire.ArchiveID{"archive-b"}
	theirs := []receipts.Held{{Record: record, ArchiveIDs: []wire.ArchiveID{"archive-a"}}}
	forged := record
	forged.ID, forged.File = wire.RecordID{9}, &wire.File{CID: record.File.CID, Size: 5, SHA256: digestOf("forged")}
	behind := append([]receipts.Held{{Record: forged, ArchiveIDs: []wire.ArchiveID{"stranger"}}}, theirs...)
	const none, silent = "NOT_FOUND", "ARCHIVES_MISSING"
	for name, tc := range map[string]struct {
		found receipts.Gathered
		want  string // code; none stands for that of the question
		heard bool   // no other archive can have the file
	}{
		"all heard":             {receipts.Gathered{Expected: two, Complete: true}, none, false},
		"one is silent":         {receipts.Gathered{Expected: two, Missing: one, Reason: wire.ReasonDeadline}, silent, false},
		"all are silent":        {receipts.Gathered{Expected: two, Missing: two, Reason: wire.ReasonDeadline}, silent, false},
		"only another, silence": {receipts.Gathered{Records: []receipts.Held{{Record: other}}, Expected: two, Missing: one, Reason: wire.ReasonDeadline}, silent, false},
		"only another, heard":   {receipts.Gathered{Records: []receipts.Held{{Record: other}}, Expected: two, Complete: true}, none, false},
		"lost, all heard":       {receipts.Gathered{Expected: two, Reason: wire.ReasonLost}, "RECORD_LOST", false},
		"lost, one is silent":   {receipts.Gathered{Expected: two, Missing: one, Reason: wire.ReasonLost}, silent, false},
		"unlisted, all heard":   {receipts.Gathered{Expected: two, Reason: wire.ReasonDeadline}, none, false},
		"unlisted, one silent":  {receipts.Gathered{Expected: two, Missing: one, Reason: wire.ReasonDeadline}, silent, false},
		"found, one is silent":  {receipts.Gathered{Records: held, Expected: two, Missing: one, Reason: wire.ReasonDeadline}, "", false},
		"found, all heard":      {receipts.Gathered{Records: theirs, Expected: two, Complete: true}, "", true},
		"found, one has losses": {receipts.Gathered{Records: theirs, Expected: two, Missing: one, Reason: wire.ReasonLost}, "", false},
		"found with a stranger": {receipts.Gathered{Records: held, Expected: two, Reason: wire.ReasonDeadline}, "", false},
		"found, and a forgery":  {receipts.Gathered{Records: behind, Expected: two, Reason: wire.ReasonDeadline}, "", true},
		"found, may be others":  {receipts.Gathered{Records: theirs, Expected: two, Reason: wire.ReasonDeadline}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			says.found = tc.found
			_, byID := w.engine.File(t.Context(), alice, record.ID)
			f, byCID := w.engine.FileByCID(t.Context(), alice, record.File.CID, digestOf("root"))
			for missing, err := range map[string]error{"FILE_NOT_FOUND": byID, "CID_NOT_FOUND": byCID} {
				want := tc.want
				if want == none {
					want = missing
				}
				if fault.CodeOf(err) != want || want == silent && (!fault.Is(err, fault.Transient) || fault.RetryAfter(err) == 0) {
					t.Errorf("%v, want %s", err, want)
				}
			}
			if f.AllHeard != tc.heard {
				t.Errorf("all that may have it were heard: %t", f.AllHeard)
			}
			if tc.want == "" && (f.SHA256 != record.File.SHA256 || len(f.ArchiveIDs) != 1) {
				t.Errorf("found %+v", f)
			}
		})
	}
}
