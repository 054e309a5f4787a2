package archive

import (
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// TestThePlaceOfTheScrubIsFrozen: the next version goes on where this one was.
func TestThePlaceOfTheScrubIsFrozen(t *testing.T) {
	golden, err := os.ReadFile("testdata/scrub.v1.position2.json")
	must1(t, err)
	n := newNode(t)
	edge := new(tlogx.Edge)
	for i := range 5 {
		mustPut(t, n, metadata(alice, digest(string(rune('a'+i))), `{}`))
		edge.Append(tlog.RecordHash([]byte{byte(i)}), func(int64, tlog.Hash) {})
	}
	damage := Finding{Kind: FindingRecord, What: "seq 2: damaged frame: wrong checksum", Damage: true, Repair: repairStore, Seq: 2, Record: wire.RecordID(digest("r")), Path: "records"}
	want := &scrubState{
		Version: scrubVersion, ArchiveID: "archive-a", Generation: 1, Passes: 3,
		Last: &ScrubPass{Began: 1796000000000, Ended: 1796000060000, Records: 4, Files: 1, Bytes: 1 << 20, Found: 2, Damages: 1, First: damage.What, Kept: []Finding{damage}},
		position: &position{
			Version: positionVersion, Phase: phaseLog, End: 5, Seq: 5, storedAt: 1796000000000000007,
			Generation: 0, Mark: positionMark{Seq: 4, Size: 4, Root: digest("root")},
			HashKey: lanes{5, 6}, Shift: minShift, Report: CheckReport{Records: 5, Leaves: 5, Began: 1796000070000},
			edge: edge, sums: map[uint64]*rowSum{0: {Want: lanes{1, 1<<64 - 1}}, 7: {Range: 7, Got: lanes{4}}},
		},
	}
	must1(t, n.saveScrub(want))
	got, err := pebblex.ReadFile(n.cfg.FS, n.cfg.scrubPath(), maxScrubFile)
	must1(t, err)
	if diff := cmp.Diff(string(golden), string(got)+"\n"); diff != "" {
		t.Errorf("(-golden +written):\n%s", diff)
	}
	must1(t, pebblex.WriteFile(n.cfg.FS, n.cfg.scrubPath(), golden, scrubPerm))
	read, err := n.loadScrub()
	must1(t, err)
	if p := read.position; p == nil || p.Seq != 5 || p.edge.Root() != edge.Root() || p.storedAt != 1796000000000000007 ||
		p.sums[0].Want != (lanes{1, 1<<64 - 1}) || p.sums[7].Got != (lanes{4}) || len(read.damages()) != 1 {
		t.Errorf("it reads as %+v", read)
	}
}

// A place whose ranges are not those of its end is not used: by them the check
// takes memory.
func TestThePlaceOfTheScrubHasItsRanges(t *testing.T) {
	p := &position{Version: positionVersion, End: 1 << 40, Shift: 0}
	if _, err := p.ready(); err == nil {
		t.Error("a position with a range for each of 2^40 records is used")
	}
	p.Shift = shiftOf(p.End)
	if _, err := p.ready(); err != nil {
		t.Error(err)
	}
}

// TestThePlaceOfAnEarlierVersion: the sums in it have other hashes, so that the
// pass begins anew; what it and those before it found stays.
func TestThePlaceOfAnEarlierVersion(t *testing.T) {
	golden, err := os.ReadFile("testdata/scrub.v1.json")
	must1(t, err)
	found := strings.Replace(string(golden), `"damages":0,"findings":[]`,
		`"damages":1,"findings":[{"kind":"record","what":"seq 3","damage":true,"seq":3}]`, 1)
	n := newNode(t)
	for text, damages := range map[string]int{string(golden): 1, found: 2} {
		must1(t, pebblex.WriteFile(n.cfg.FS, n.cfg.scrubPath(), []byte(text), scrubPerm))
		s, err := n.loadScrub()
		must1(t, err)
		if s.position != nil || s.Passes != 3 || s.Last.First != "seq 2: damaged frame: wrong checksum" || s.Last.Damages != uint64(damages) || len(s.damages()) != damages {
			t.Errorf("it reads as %+v", s)
		}
	}
}

// TestCheckFindsAnotherFileOfTheGenerations while the archive is open: a start
// sets it right.
func TestCheckFindsAnotherFileOfTheGenerations(t *testing.T) {
	c := mustDefaults(t, checked(t))
	n := mustOpen(t, c)
	data, err := c.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(c.lineagePath())
	must1(t, err)
	data[len(data)-1] ^= 1
	r, err := n.Check(t.Context())
	if err == nil || len(r.Findings) != 1 || r.Findings[0].Kind != FindingGeneration || r.Findings[0].Repair != repairStart {
		t.Errorf("%v\n%s", err, listed(r))
	}
	mustClose(t, n)
	if r := mustCheck(t, c); r.Found > 0 {
		t.Error(listed(r))
	}
}
