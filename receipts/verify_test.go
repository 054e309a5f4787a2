package receipts_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// dropped returns how often a gatherer dropped for a reason, and how often for
// any.
func dropped(t *testing.T, g *receipts.Gatherer, reason string) (count, all float64) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(g.Metrics()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "verae_receipts_dropped_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			all += m.GetCounter().GetValue()
			if m.GetLabel()[0].GetValue() == reason {
				count += m.GetCounter().GetValue()
			}
		}
	}
	return count, all
}

// TestNothingIsBelieved sends a good record and one bad reply or record from
// the same archive. The bad is dropped and counted; only a hole in what the
// caller should have seen makes the answer incomplete.
func TestNothingIsBelieved(t *testing.T) {
	good := record(wire.KindMetadata, `{"good":true}`)
	note := func(edit ...func(*wire.Record)) wire.Record { return record("note", "hello", edit...) }
	bad := func(r wire.Record, edit func(*wire.Record)) wire.Record { edit(&r); return r }
	file := record(wire.KindFile, "a.pdf")
	other := func(r wire.Reply) wire.Reply { r.SHA256 = wire.Digest{9}; return r }
	for _, c := range []struct {
		name     string
		replies  []wire.Reply
		reason   string
		complete bool
	}{
		{"archive that is not enrolled", []wire.Reply{reply("archive-x", note()), reply("archive-a", good)}, "unlisted-archive", true},
		{"archive without a name", []wire.Reply{reply("", note()), reply("archive-a", good)}, "unlisted-archive", true},
		{"another digest", []wire.Reply{other(reply("archive-a", note())), reply("archive-a", good)}, "wrong-digest", true},
		{"page 0 of 1", []wire.Reply{page(0, 1, reply("archive-a", note())), reply("archive-a", good)}, "page-out-of-range", true},
		{"page 2 of 1", []wire.Reply{page(2, 1, reply("archive-a", note())), reply("archive-a", good)}, "page-out-of-range", true},
		{"page -1 of -1", []wire.Reply{page(-1, -1, reply("archive-a", note())), reply("archive-a", good)}, "page-out-of-range", true},
		{"page 1 of 0", []wire.Reply{page(1, 0, reply("archive-a", note())), reply("archive-a", good)}, "page-out-of-range", true},
		{"too many pages", []wire.Reply{page(1, receipts.MaxPages+1, reply("archive-a", note())), reply("archive-a", good)}, "page-out-of-range", true},
		{"a page twice", []wire.Reply{page(1, 2, reply("archive-a", good)), page(1, 2, reply("archive-a", note())), page(2, 2, reply("archive-a"))}, "page-duplicate", true},
		{"pages disagree", []wire.Reply{page(1, 2, reply("archive-a", good)), page(1, 1, reply("archive-a", note())), page(2, 2, reply("archive-a"))}, "page-contradicts", true},

		{"control record", []wire.Reply{reply("archive-a", good, record(wire.KindHold, "x"))}, "kind-not-asked", true},
		{"another tenant's", []wire.Reply{reply("archive-a", good, note(of(globex)))}, "not-visible", true},
		{"another tenant's, damaged", []wire.Reply{reply("archive-a", good, bad(note(of(globex)), func(r *wire.Record) { r.Body = []byte("x") }))}, "not-visible", true},
		{"another tenant's private metadata, shared", []wire.Reply{reply("archive-a", good, record(wire.KindPrivateMetadata, "x", of(globex), shared(acme, "C")))}, "not-visible", true},
		{"under another digest", []wire.Reply{reply("archive-a", good, note(func(r *wire.Record) { r.SHA256 = wire.Digest{5} }))}, "foreign-key", true},
		{"no record by our rules", []wire.Reply{reply("archive-a", good, record("Note!", "x"))}, "malformed", true},
		{"file record without a file", []wire.Reply{reply("archive-a", good, bad(record("x", ""), func(r *wire.Record) { r.Kind = wire.KindFile; r.ID = r.ComputeID() }))}, "malformed", true},

		{"changed body", []wire.Reply{reply("archive-a", good, bad(note(), func(r *wire.Record) { r.Body = []byte("jello") }))}, "damaged", false},
		{"changed body and digest", []wire.Reply{reply("archive-a", good, bad(note(), func(r *wire.Record) {
			r.Body = []byte("jello")
			r.BodySHA256 = r.Portable().BodySHA256()
		}))}, "damaged", false},
		{"changed id", []wire.Reply{reply("archive-a", good, bad(note(), func(r *wire.Record) { r.ID[0] ^= 1 }))}, "damaged", false},
		{"changed share", []wire.Reply{reply("archive-a", good, bad(note(), func(r *wire.Record) { r.ShareWith = []wire.Share{{TenantID: acme, Mode: "C"}} }))}, "damaged", false},
		{"changed time", []wire.Reply{reply("archive-a", good, bad(note(), func(r *wire.Record) { r.AttachedAt = "2026" }))}, "damaged", false},
		{"file with another id", []wire.Reply{reply("archive-a", good, bad(file, func(r *wire.Record) { f := *r.File; f.ID[0] ^= 1; r.File = &f }))}, "damaged", false},
		{"owner's body withheld", []wire.Reply{reply("archive-a", good, bad(note(), func(r *wire.Record) { r.Body = nil }))}, "body-withheld", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t}
				for i, r := range c.replies {
					a.script = append(a.script, says{time.Duration(i + 1), r})
				}
				var log bytes.Buffer
				g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait, Log: slog.New(slog.NewTextHandler(&log, nil))}
				got, took := gatherBy(t, g, a)
				if len(got.Records) != 1 || got.Records[0].Record.ID != good.ID || got.Replied != 1 {
					t.Errorf("%d records of %d archives, want the good one", len(got.Records), got.Replied)
				}
				if got.Complete != c.complete || (took == wait) == c.complete {
					t.Errorf("complete %v after %v, want %v", got.Complete, took, c.complete)
				}
				if n, all := dropped(t, g, c.reason); n != 1 || all != 1 {
					t.Errorf("%v dropped as %s, %v in all, want 1 and 1", n, c.reason, all)
				}
				if strings.Contains(log.String(), "level=WARN") == c.complete {
					t.Errorf("log %q", log.String())
				}
			})
		})
	}
}

// knowing is a roster that knows which process every archive is.
type knowing struct {
	roster
	boots map[wire.ArchiveID]string
}

func (k knowing) Speaks(id wire.ArchiveID, boot string) bool { return k.boots[id] == boot }

// TestAnotherProcessIsNoAnswer: a process that answers under an enrolled id and
// is not that archive neither ends the wait nor hides what the archive says.
func TestAnotherProcessIsNoAnswer(t *testing.T) {
	good := record(wire.KindMetadata, `{"good":true}`)
	by := func(boot string, r wire.Reply) wire.Reply { r.Boot = boot; return r }
	known := knowing{roster{"archive-a"}, map[wire.ArchiveID]string{"archive-a": "real"}}
	for _, c := range []struct {
		name     string
		roster   receipts.Roster
		replies  []wire.Reply
		records  int
		complete bool
	}{
		{"the twin first", known, []wire.Reply{by("twin", reply("archive-a")), by("real", reply("archive-a", good))}, 1, true},
		{"the twin alone", known, []wire.Reply{by("twin", reply("archive-a"))}, 0, false},
		{"a reply without a process", known, []wire.Reply{reply("archive-a")}, 0, false},
		{"two that nobody knows", roster{"archive-a", "archive-b"}, []wire.Reply{by("one", reply("archive-a")), by("two", reply("archive-a", good)), reply("archive-b")}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{t: t}
				for i, r := range c.replies {
					a.script = append(a.script, says{time.Duration(i + 1), r})
				}
				got, took := gather(t, a, c.roster)
				if len(got.Records) != c.records || got.Complete != c.complete || (took == wait) == c.complete {
					t.Errorf("%d records, complete %v after %v, missing %v", len(got.Records), got.Complete, took, got.Missing)
				}
			})
		})
	}
}

// TestRecordsBelongUnderEachOfTheirKeys: the subject, the record's own id, the
// file's digest and the digest in its CID.
func TestRecordsBelongUnderEachOfTheirKeys(t *testing.T) {
	file := record(wire.KindFile, "a.pdf")
	note := record("note", "hello")
	cid := wire.Digest{0xb9, 0x4d, 0x27, 0xb9, 0x93, 0x4d, 0x3e, 0x08, 0xa5, 0x2e, 0x52, 0xd7, 0xda, 0x7d, 0xab, 0xfa,
		0xc4, 0x84, 0xef, 0xe3, 0x7a, 0x53, 0x80, 0xee, 0x90, 0x88, 0xf7, 0xac, 0xe2, 0xef, 0xcd, 0xe9}
	for _, c := range []struct {
		name   string
		digest wire.Digest
		want   int
	}{
		{"subject", subject, 2},
		{"id of the note", wire.Digest(note.ID), 1},
		{"id of the file", wire.Digest(file.ID), 1},
		{"sha256 of the file", file.File.SHA256, 1},
		{"digest of the CID", cid, 1},
		{"digest of the body", note.BodySHA256, 0},
	} {
		r := reply("archive-a", file, note)
		r.SHA256 = c.digest
		g := &receipts.Gatherer{Asker: &asker{t: t, script: []says{{0, r}}}, Roster: roster{"archive-a"}, Wait: wait}
		got, err := g.Gather(t.Context(), c.digest, acme, nil)
		if err != nil || len(got.Records) != c.want || !got.Complete {
			t.Errorf("%s: %d records, complete %v, %v, want %d", c.name, len(got.Records), got.Complete, err, c.want)
		}
	}
}

func TestOnlyAskedKindsAreTaken(t *testing.T) {
	a := &asker{t: t, script: []says{{0, reply("archive-a", record("note", "x"), record("scan", "y"), record(wire.KindShare, "z"))}}}
	g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait}
	got, err := g.Gather(t.Context(), subject, acme, []wire.Kind{"scan", wire.KindShare})
	if err != nil || len(got.Records) != 1 || got.Records[0].Record.Kind != "scan" || !got.Complete {
		t.Errorf("%+v, %v", got, err)
	}
	if n, _ := dropped(t, g, "kind-not-asked"); n != 2 {
		t.Errorf("%v dropped, want 2: nobody sees control records, asked or not", n)
	}
}

// TestGranteesSeeWhatTheirShareAdmits: the archive's word on what to withhold is
// not relied on.
func TestGranteesSeeWhatTheirShareAdmits(t *testing.T) {
	proof := record("note", "proof", of(globex), shared(acme, "A"))
	meta := record("note", "meta", of(globex), shared("*", "B"))
	closed := record(wire.KindFile, "b", of(globex), shared(acme, "B"))
	open := record(wire.KindFile, "c", of(globex), shared(acme, "C"))
	a := &asker{t: t, script: []says{{0, reply("archive-a", proof, meta, closed, open)}}}
	got, _ := gather(t, a, roster{"archive-a"})
	if len(got.Records) != 3 {
		t.Fatalf("%d records, want 3", len(got.Records))
	}
	for _, h := range got.Records {
		switch r := h.Record; r.ID {
		case proof.ID:
			if r.Body != nil || r.BodySHA256 != proof.BodySHA256 {
				t.Errorf("a proof shows %q, digest %s", r.Body, r.BodySHA256)
			}
		case meta.ID:
			if string(r.Body) != "meta" {
				t.Errorf("metadata shows %q", r.Body)
			}
		case closed.ID:
			t.Error("a file is seen by a share of metadata")
		}
	}
}

// TestPeersWithoutIDsAreCompleted: what a peer left out is computed.
func TestPeersWithoutIDsAreCompleted(t *testing.T) {
	want := record("note", "hello", in(""), attachedAt(""))
	bare := want
	bare.ID, bare.BodySHA256 = wire.RecordID{}, wire.Digest{}
	bare.ShareWith = []wire.Share{}
	a := &asker{t: t, script: []says{{0, reply("archive-a", bare)}, {1, reply("archive-b", want)}}}
	got, _ := gather(t, a, roster{"archive-a", "archive-b"})
	if len(got.Records) != 1 || got.Records[0].Record.ID != want.ID || got.Records[0].Record.BodySHA256 != want.BodySHA256 {
		t.Errorf("%+v", got.Records)
	}
}

func TestMetricsAreClean(t *testing.T) {
	a := &asker{t: t, script: []says{{0, reply("archive-a")}}}
	g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait}
	gatherBy(t, g, a)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(g.Metrics()...)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	want := `
# HELP verae_receipts_gatherings_total Fan-outs to the archives, by why they ended: all, deadline, found (a file was, and silent archives were not waited for), no-archives or error.
# TYPE verae_receipts_gatherings_total counter
verae_receipts_gatherings_total{reason="all"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "verae_receipts_gatherings_total"); err != nil {
		t.Error(err)
	}
}

// The digest of a block says nothing of which files have it: archives are taken at
// their word, for file records that the caller may see, and nothing else.
func TestBlocksAreAskedForByTheirDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elsewhere := func(r *wire.Record) { r.SHA256 = wire.Digest{5} }
		file := record(wire.KindFile, "a", elsewhere)
		theirs := record(wire.KindFile, "b", elsewhere, func(r *wire.Record) { r.TenantID = globex })
		a := &asker{t: t, script: []says{{1, reply("archive-a", file, theirs, record("note", "x", elsewhere))}}}
		g := &receipts.Gatherer{Asker: a, Roster: roster{"archive-a"}, Wait: wait}
		got, err := g.GatherBlock(t.Context(), subject, acme, false)
		if err != nil || len(got.Records) != 1 || got.Records[0].Record.File == nil || got.Records[0].Record.TenantID != acme {
			t.Errorf("%+v, %v", got.Records, err)
		}
		if len(a.asked) != 1 || len(a.asked[0].Kinds) != 1 || a.asked[0].Kinds[0] != wire.KindFile {
			t.Errorf("asked %+v", a.asked)
		}
		if got, err := g.Gather(t.Context(), subject, acme, nil); err != nil || len(got.Records) > 0 {
			t.Errorf("a lookup shows what is under a block: %+v, %v", got.Records, err)
		}
	})
}
