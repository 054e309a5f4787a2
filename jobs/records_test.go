package jobs

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// saying is a Gatherer that says one thing.
type saying struct {
	found receipts.Gathered
	soon  []bool // for each question for a file or block, whether silent archives were to be waited for
}

func (s *saying) Gather(context.Context, wire.Digest, wire.TenantID, []wire.Kind) (receipts.Gathered, error) {
	return s.found, nil
}

func (s *saying) GatherFiles(_ context.Context, _ wire.Digest, _ wire.TenantID, enough func(*wire.Record) bool) (receipts.Gathered, error) {
	s.soon = append(s.soon, enough != nil)
	return s.found, nil
}

func (s *saying) GatherBlock(_ context.Context, _ wire.Digest, _ wire.TenantID, soon bool) (receipts.Gathered, error) {
	s.soon = append(s.soon, soon)
	return s.found, nil
}

// Silent archives are not waited for at first; who got no bytes from the others can
// have all of them asked.
func TestSilentArchivesAreAskedAgain(t *testing.T) {
	says := &saying{}
	w := newWorld(t, 2, func(c *Config) { c.Gatherer = says })
	both := []wire.ArchiveID{"archive-a", "archive-b"}
	held := func(ids ...wire.ArchiveID) []receipts.Held {
		return []receipts.Held{{ArchiveIDs: ids, Record: wire.Record{ID: wire.RecordID{7}, Kind: wire.KindFile, TenantID: alice, File: &wire.File{CID: "bafkreib"}}}}
	}
	says.found = receipts.Gathered{Records: held("archive-a"), Expected: both, Missing: both[1:], Reason: wire.ReasonDeadline}
	f, err := w.engine.FileByCID(t.Context(), alice, "bafkreib", digestOf("root"))
	if err != nil || f.Again == nil || f.AllHeard {
		t.Fatalf("%+v, %v", f, err)
	}
	b, err := w.engine.Block(t.Context(), alice, digestOf("root"))
	if err != nil || b.Again == nil || b.AllHeard {
		t.Fatalf("%+v, %v", b, err)
	}
	says.found = receipts.Gathered{Records: held(both...), Expected: both, Complete: true}
	if f, err = f.Again(t.Context()); err != nil || f.Again != nil || !f.AllHeard || !slices.Equal(f.ArchiveIDs, both) {
		t.Errorf("the file again: %+v, %v", f, err)
	}
	if b, err = b.Again(t.Context()); err != nil || b.Again != nil || !b.AllHeard || !slices.Equal(b.ArchiveIDs, both) {
		t.Errorf("the block again: %+v, %v", b, err)
	}
	if !slices.Equal(says.soon, []bool{true, true, false, false}) {
		t.Errorf("asked %v", says.soon)
	}
}

// A block is where an enrolled archive says it is: others may say what they like.
// It is not there only when all enrolled ones were heard.
func TestBlocksAreWhereEnrolledArchivesSay(t *testing.T) {
	says := &saying{}
	w := newWorld(t, 2, func(c *Config) { c.Gatherer = says })
	on := func(ids ...wire.ArchiveID) receipts.Held {
		return receipts.Held{Record: wire.Record{Kind: wire.KindFile, TenantID: alice, File: &wire.File{}}, ArchiveIDs: ids}
	}
	both, b := []wire.ArchiveID{"archive-a", "archive-b"}, []wire.ArchiveID{"archive-b"}
	for name, tc := range map[string]struct {
		found receipts.Gathered
		want  []wire.ArchiveID
		heard bool
		code  string
	}{
		"on one":                    {receipts.Gathered{Records: []receipts.Held{on("archive-b")}, Expected: both, Complete: true}, b, true, ""},
		"in several files":          {receipts.Gathered{Records: []receipts.Held{on("archive-b"), on("archive-a", "archive-b")}, Expected: both}, both, true, ""},
		"another is silent":         {receipts.Gathered{Records: []receipts.Held{on("archive-b")}, Expected: both, Missing: both[:1]}, b, false, ""},
		"on a stranger as well":     {receipts.Gathered{Records: []receipts.Held{on("a-stranger", "archive-b")}, Expected: both}, b, true, ""},
		"on a stranger alone":       {receipts.Gathered{Records: []receipts.Held{on("a-stranger")}, Expected: both}, nil, false, "CID_NOT_FOUND"},
		"stranger, and one silent":  {receipts.Gathered{Records: []receipts.Held{on("a-stranger")}, Expected: both, Missing: b}, nil, false, "ARCHIVES_MISSING"},
		"nowhere":                   {receipts.Gathered{Expected: both, Complete: true}, nil, false, "CID_NOT_FOUND"},
		"nowhere, one silent":       {receipts.Gathered{Expected: both, Missing: b, Reason: wire.ReasonDeadline}, nil, false, "ARCHIVES_MISSING"},
		"nowhere, one lost records": {receipts.Gathered{Expected: both, Reason: wire.ReasonLost}, nil, false, "RECORD_LOST"},
	} {
		t.Run(name, func(t *testing.T) {
			says.found = tc.found
			got, err := w.engine.Block(t.Context(), alice, digestOf("block"))
			if fault.CodeOf(err) != tc.code || got.AllHeard != tc.heard || !slices.Equal(got.ArchiveIDs, tc.want) {
				t.Errorf("%+v, %v", got, err)
			}
			if tc.code == "ARCHIVES_MISSING" && fault.RetryAfter(err) == 0 {
				t.Error("nobody says when to ask again")
			}
		})
	}
}

// The bytes of a file are had from every archive with a record of them, that of the
// record that was found first, and not from those with another file of its name.
func TestBytesAreHadFromAllHolders(t *testing.T) {
	says := &saying{}
	w := newWorld(t, 3, func(c *Config) { c.Gatherer = says })
	const cid = "bafkreib"
	rec := func(n byte, content string, ids ...wire.ArchiveID) receipts.Held {
		return receipts.Held{ArchiveIDs: ids, Record: wire.Record{
			ID: wire.RecordID{n}, Kind: wire.KindFile, TenantID: alice, File: &wire.File{CID: cid, SHA256: digestOf(content)},
		}}
	}
	all := []wire.ArchiveID{"archive-a", "archive-b", "archive-c"}
	says.found = receipts.Gathered{Expected: all, Complete: true, Records: []receipts.Held{
		rec(1, "file", "archive-b"), rec(2, "other", "archive-c"), rec(3, "file", "archive-a", "archive-b"),
	}}
	f, err := w.engine.FileByCID(t.Context(), alice, cid, digestOf("root"))
	if err != nil || !slices.Equal(f.ArchiveIDs, []wire.ArchiveID{"archive-b", "archive-a"}) || !f.AllHeard {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = w.engine.File(t.Context(), alice, wire.RecordID{1})
	if err != nil || !slices.Equal(f.ArchiveIDs, []wire.ArchiveID{"archive-b"}) {
		t.Errorf("by its id: %+v, %v", f, err)
	}
}

// A file is everybody's if an enrolled archive has a record that says so, of this
// very file and under this name and type: caches that others share may keep it
// then, and what a tenant alone calls it must not be in them.
func TestPublicIsWhatAnEnrolledArchiveSays(t *testing.T) {
	says := &saying{}
	w := newWorld(t, 1, func(c *Config) { c.Gatherer = says })
	enrolled, stranger := []wire.ArchiveID{"archive-a"}, []wire.ArchiveID{"stranger"}
	const cid = "bafkreib"
	rec := func(ids []wire.ArchiveID, content string, shares ...wire.Share) receipts.Held {
		id := wire.RecordID(digestOf(fmt.Sprint(content, ids, shares)))
		return receipts.Held{ArchiveIDs: ids, Record: wire.Record{
			ID: id, Kind: wire.KindFile, TenantID: alice, ShareWith: shares, File: &wire.File{CID: cid, SHA256: digestOf(content)},
		}}
	}
	as := func(h receipts.Held, name, contentType string) receipts.Held {
		h.Record.File.Name, h.Record.File.ContentType = name, contentType
		return h
	}
	all, some := wire.Share{TenantID: wire.Public, Mode: wire.ModeFiles}, wire.Share{TenantID: wire.Public, Mode: wire.ModeMetadata}
	for name, tc := range map[string]struct {
		records []receipts.Held
		want    bool
	}{
		"his own":                   {[]receipts.Held{rec(enrolled, "file")}, false},
		"shared with one":           {[]receipts.Held{rec(enrolled, "file", wire.Share{TenantID: bob, Mode: wire.ModeFiles})}, false},
		"metadata shared with all":  {[]receipts.Held{rec(enrolled, "file", some)}, false},
		"shared with all":           {[]receipts.Held{rec(enrolled, "file", all)}, true},
		"by a record beside":        {[]receipts.Held{rec(enrolled, "file"), rec(enrolled, "file", all)}, true},
		"by a stranger":             {[]receipts.Held{rec(enrolled, "file"), rec(stranger, "file", all)}, false},
		"another file of this name": {[]receipts.Held{rec(enrolled, "file"), rec(enrolled, "other", all)}, false},
		"under a name of his own":   {[]receipts.Held{as(rec(enrolled, "file"), "merger.pdf", ""), rec(enrolled, "file", all)}, false},
		"as a type of his own":      {[]receipts.Held{as(rec(enrolled, "file"), "", "text/plain"), rec(enrolled, "file", all)}, false},
		"under everybody's name":    {[]receipts.Held{rec(enrolled, "file", all), as(rec(enrolled, "file"), "merger.pdf", "")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			says.found = receipts.Gathered{Records: tc.records, Expected: enrolled, Complete: true}
			f, err := w.engine.FileByCID(t.Context(), alice, cid, digestOf("root"))
			if err != nil || f.Public != tc.want {
				t.Errorf("public %t, %v", f.Public, err)
			}
		})
	}
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
