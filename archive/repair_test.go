package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// ward is a closed archive that is to be damaged, with what it answered when it
// was well, and another archive that has the same records.
type ward struct {
	cfg      Config
	other    *shelf
	answers  map[wire.Digest]wire.Reply
	records  []wire.PutRecord
	seqs     map[wire.RecordID]uint64
	hello    wire.Hello
	older    map[string][]byte // the directory before the last records
	now      map[string][]byte
	stranger []byte // the key of another archive
}

// newWard makes an archive of some records in tables and some in the log only:
// metadata, files and a control record.
func newWard(t testing.TB) *ward {
	t.Helper()
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	w := &ward{other: b, answers: map[wire.Digest]wire.Reply{}, seqs: map[wire.RecordID]uint64{}}
	put := func(r wire.PutRecord) {
		w.seqs[mustPut(t, a.Node, r).RecordID] = a.Seq()
		mustPut(t, b.Node, r)
		w.records = append(w.records, r)
	}
	for i := range 24 {
		switch {
		case i%8 == 3:
			r := a.scan(t, uint64(i), 3000)
			w.seqs[r.ID()] = a.Seq()
			b.scan(t, uint64(i), 3000)
			w.records = append(w.records, r)
		default:
			put(metadata(alice, digest(fmt.Sprint("subject ", i%10)), fmt.Sprintf(`{"n":%d,"x":%q}`, i, strings.Repeat("x", 3000))))
		}
		if i == 15 {
			a.reopen(t) // what was in the log is now in a table
			a.close(t)
			w.older = readTree(t, a.fs, "data")
			a.reopen(t)
		}
	}
	for _, r := range w.records {
		for _, d := range []wire.Digest{r.SHA256, wire.Digest(r.ID())} {
			w.answers[d] = answerOf(t, a.Node, d)
		}
	}
	w.hello = a.Hello()
	a.close(t)
	w.cfg, w.now = a.cfg, readTree(t, a.fs, "data")
	w.hello.Checkpoint = string(w.now["data/highwater"])
	var err error
	if w.stranger, err = pebblex.ReadFile(b.fs, "data/key.pem", 1<<20); err != nil {
		t.Fatal(err)
	}
	a.reopen(t) // for the cleanup
	return w
}

func answerOf(t testing.TB, n *Node, d wire.Digest) wire.Reply {
	t.Helper()
	reply, ok, err := n.Answer(t.Context(), query(alice, d))
	if err != nil || !ok {
		t.Fatalf("answer for %s: %v, %v", d, ok, err)
	}
	reply.Checkpoint = ""
	return reply
}

// readTree returns the content of all files under a directory, by path.
func readTree(t testing.TB, fs vfs.FS, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			maps.Copy(all, readTree(t, fs, path))
			continue
		}
		if all[path], err = pebblex.ReadFile(fs, path, 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// sums hashes the files under a directory, by their path in it.
func sums(t testing.TB, fs vfs.FS, dir string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	for path, data := range readTree(t, fs, dir) {
		out[strings.TrimPrefix(path, dir)] = sha256.Sum256(data)
	}
	return out
}

// patient is the archive of a ward after some damage, on a disk of its own. Its
// files are whole, as the repair of the files leaves them.
func (w *ward) patient(t testing.TB, fs vfs.FS, damage func(files map[string][]byte)) RepairConfig {
	t.Helper()
	files := maps.Clone(w.now)
	if damage != nil {
		damage(files)
	}
	c := RepairConfig{Config: w.cfg}
	c.Dir, c.FS, c.Files = "vol/data", fs, w.other.files
	c.MemTableSize = 256 << 10 // bytes
	c.Now = func() time.Time { return time.Unix(1e9, 0) }
	if err := pebblex.Mkdir(fs, c.Dir); err != nil {
		t.Fatal(err)
	}
	for path, data := range files {
		path = fs.PathJoin("vol", path)
		if err := errors.Join(pebblex.Mkdir(fs, fs.PathDir(path)), pebblex.WriteFile(fs, path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// nurse are peers that remember the archive, or not.
type nurse struct {
	*peersOf
	remembered []wire.Remembered
	silent     error // why nobody says what is remembered
}

func (n *nurse) Remembered(context.Context, wire.ArchiveID) ([]wire.Remembered, error) {
	return n.remembered, n.silent
}

func (w *ward) peers(t testing.TB, kind string) *nurse {
	t.Helper()
	n := &nurse{peersOf: peersWith(w.other), remembered: []wire.Remembered{
		{By: "archive-b", ArchiveID: "archive-a", Generation: 1, Checkpoint: w.hello.Checkpoint},
		{By: "archive-c", ArchiveID: "archive-a", Generation: 1, Checkpoint: "archive-a/g1\n9999\nmade up"},
	}}
	switch kind {
	case "none":
		n.shelves = map[wire.ArchiveID]*shelf{"archive-c": newShelf(t, "archive-c")}
	case "lies":
		n.onRecord = func(_ wire.ArchiveID, r *wire.PutRecord) error { r.Body = []byte("another"); return nil }
	case "ill":
		n.onRecord = func(wire.ArchiveID, *wire.PutRecord) error { return errors.New("input/output error") }
	case "away":
		n.onRecord = func(wire.ArchiveID, *wire.PutRecord) error { return errAway }
	}
	return n
}

// well checks that an archive is what it was before it fell ill.
func (w *ward) well(t *testing.T, c Config) {
	t.Helper()
	n, err := Open(c)
	if err != nil {
		t.Fatalf("open after the repair: %v", err)
	}
	defer mustClose(t, n)
	<-n.Loaded()
	if _, err := n.Check(t.Context()); err != nil {
		t.Fatalf("check after the repair: %v", err)
	}
	if got := n.Hello(); got.Checkpoint != w.hello.Checkpoint || got.Seq != w.hello.Seq || got.Lost != 0 {
		t.Errorf("after the repair it says %+v, before it said %+v", got, w.hello)
	}
	for d, want := range w.answers {
		if got := answerOf(t, n, d); !reflect.DeepEqual(want, got) { // a diff of bodies takes its time
			t.Errorf("the answer for %s: %s", d, cmp.Diff(want, got))
		}
	}
	for i, r := range w.records {
		if i%5 == 0 {
			if ack := mustPut(t, n, r); !ack.Duplicate || ack.Seq != w.seqs[r.ID()] {
				t.Errorf("record %d put again: %+v", i, ack)
			}
		}
	}
}

func filesOf(files map[string][]byte, part string) (paths []string) {
	for path := range files {
		if strings.Contains(path, part) && len(files[path]) > 0 {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// onFiles returns a damage of all files whose path has a part; a nil edit removes
// them.
func onFiles(part string, edit func([]byte) []byte) func(map[string][]byte) {
	return func(files map[string][]byte) {
		for _, path := range filesOf(files, part) {
			if edit == nil {
				delete(files, path)
				continue
			}
			files[path] = edit(bytes.Clone(files[path]))
		}
	}
}

func flipAt(share float64) func([]byte) []byte {
	return func(b []byte) []byte { b[int(float64(len(b)-1)*share)] ^= 0x10; return b }
}

func half(b []byte) []byte { return b[:len(b)/2] }

// TestRepairTable damages an archive in each of its files, in every way, and asks
// peers that have everything, nothing, or lie.
func TestRepairTable(t *testing.T) {
	w := newWard(t)
	const refused, whole, built = "refused", "whole", "built"
	type outcome struct {
		what string
		code string // of a refusal
		lost int    // records; -1: some
	}
	carried, some := outcome{what: built}, outcome{what: built, lost: -1}
	all := outcome{what: built, lost: len(w.records)}
	for name, tc := range map[string]struct {
		damage        func(map[string][]byte)
		with, without outcome // a peer that has everything
		trust         bool
		forget        bool // no peer remembers the archive
	}{
		"nothing":            {nil, outcome{what: whole}, outcome{what: whole}, false, false},
		"a block of a table": {onFiles(".sst", flipAt(0.3)), carried, some, false, false},
		"the end of a table": {onFiles(".sst", flipAt(1)), carried, carried, false, false},
		"a table cut":        {onFiles(".sst", half), carried, some, false, false},
		"the tables gone":    {onFiles(".sst", nil), carried, some, false, false},
		"the manifest":       {onFiles("MANIFEST", flipAt(0.5)), carried, carried, false, false},
		"the manifest gone":  {onFiles("MANIFEST", nil), carried, carried, false, false},
		"the marker gone": {func(f map[string][]byte) {
			maps.DeleteFunc(f, func(p string, _ []byte) bool { return strings.Contains(p, "marker.manifest") })
		}, carried, carried, false, false},
		"the options":              {onFiles("OPTIONS", flipAt(0.01)), outcome{what: whole}, outcome{what: whole}, false, false},
		"the log":                  {onFiles(".log", flipAt(0.001)), carried, some, false, false},
		"the log cut":              {onFiles(".log", func(b []byte) []byte { return b[:20000] }), carried, some, false, false},
		"the log gone":             {onFiles(".log", nil), carried, some, false, false},
		"the store gone":           {onFiles("data/records/", nil), carried, all, false, false},
		"the skeleton gone":        {onFiles("leaves", nil), carried, carried, false, false},
		"an entry of the skeleton": {onFiles("leaves", flipAt(0.5)), carried, carried, false, false},
		"skeleton and a table":     {func(f map[string][]byte) { onFiles("leaves", nil)(f); onFiles(".sst", nil)(f) }, outcome{refused, "RECORD_UNKNOWN", 0}, outcome{refused, "RECORD_UNKNOWN", 0}, false, false},
		"the mark":                 {onFiles("highwater", flipAt(0.9)), carried, carried, false, false},
		"the mark gone":            {onFiles("highwater", nil), carried, carried, false, false},
		"the mark, nobody knows":   {onFiles("highwater", nil), outcome{refused, "MARK_MISSING", 0}, outcome{refused, "MARK_MISSING", 0}, false, true},
		"the mark, trusted":        {onFiles("highwater", nil), carried, carried, true, true},
		"mark and log, trusted":    {func(f map[string][]byte) { onFiles("highwater", nil)(f); onFiles(".log", nil)(f) }, carried, some, true, true},
		"the key":                  {onFiles("key.pem", flipAt(0)), outcome{refused, "KEY_LOST", 0}, outcome{refused, "KEY_LOST", 0}, false, false},
		"another key":              {onFiles("key.pem", func([]byte) []byte { return w.stranger }), outcome{refused, "KEY", 0}, outcome{refused, "KEY", 0}, false, false},
		"the key gone":             {onFiles("key.pem", nil), outcome{refused, "KEY_LOST", 0}, outcome{refused, "KEY_LOST", 0}, false, false},
		"an older copy":            {func(f map[string][]byte) { clear(f); maps.Copy(f, w.older) }, outcome{refused, "ROLLED_BACK", 0}, outcome{refused, "ROLLED_BACK", 0}, false, false},
		"an older store": {func(f map[string][]byte) {
			onFiles("data/records/", nil)(f)
			for _, p := range filesOf(w.older, "data/records/") {
				f[p] = w.older[p]
			}
		}, carried, some, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, peers := range []string{"all", "none", "lies"} {
				want := tc.without
				if peers == "all" {
					want = tc.with
				} else if peers == "lies" && want.lost == 0 {
					continue // nobody is asked
				}
				fs := vfs.NewMem()
				c := w.patient(t, fs, tc.damage)
				n := w.peers(t, peers)
				if tc.forget {
					n.remembered = nil
				}
				c.Peers, c.TrustStore = n, tc.trust
				before := sums(t, fs, c.Dir)
				report, err := Repair(t.Context(), c)
				if want.what == refused {
					if !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != want.code {
						t.Errorf("%s: %v, want %s", peers, err, want.code)
					}
					if diff := cmp.Diff(before, sums(t, fs, c.Dir)); diff != "" {
						t.Errorf("%s: a refused repair changed %s", peers, diff)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", peers, err)
				}
				lost := len(report.Lost)
				if report.Whole != (want.what == whole) || lost != want.lost && !(want.lost < 0 && lost > 0) || report.Clean() != (lost == 0) {
					t.Errorf("%s: %+v", peers, report)
				}
				kept := c.Dir
				if want.what == built {
					kept = report.Evidence
				}
				if diff := cmp.Diff(before, sums(t, fs, kept)); diff != "" {
					t.Errorf("%s: what was there changed: %s", peers, diff)
				}
				if lost == 0 {
					w.well(t, c.Config)
				} else {
					w.scarred(t, c.Config, report)
				}
			}
		})
	}
}

// scarred checks an archive with stubs: the log is the same, all that is not lost
// is answered, and a lost record that comes back is taken as new.
func (w *ward) scarred(t *testing.T, c Config, report *RepairReport) {
	t.Helper()
	lost := map[wire.RecordID]bool{}
	for _, l := range report.Lost {
		lost[l.ID] = true
	}
	n, err := Open(c)
	if err != nil {
		t.Fatalf("open after the repair: %v", err)
	}
	defer mustClose(t, n)
	<-n.Loaded()
	if got := n.Hello(); got.Checkpoint != w.hello.Checkpoint || got.Seq != w.hello.Seq || got.Lost != uint64(len(lost)) {
		t.Errorf("after the repair it says %+v, before it said %+v, and %d are lost", got, w.hello, len(lost))
	}
	again := true
	for _, r := range w.records {
		id := r.ID()
		reply, ok, err := n.Answer(t.Context(), query(alice, wire.Digest(id)))
		if err != nil || (ok && len(reply.Records) > 0) == lost[id] {
			t.Errorf("record %s, lost %v: %v, %+v, %v", id, lost[id], ok, reply, err)
		}
		if lost[id] && again {
			again = false
			if ack := mustPut(t, n, r); ack.Duplicate || ack.Seq != w.hello.Seq+1 {
				t.Errorf("lost record put again: %+v", ack)
			}
		}
	}
	if _, err := n.Check(t.Context()); err != nil {
		t.Errorf("check after the repair: %v", err)
	}
}

// TestRepairFillsStubs: when a peer with the record comes back later, another
// repair puts it where it was; what was stored again meanwhile stays where it is.
func TestRepairFillsStubs(t *testing.T) {
	w := newWard(t)
	fs := vfs.NewMem()
	c := w.patient(t, fs, onFiles(".log", nil))
	c.Peers = w.peers(t, "none")
	report, err := Repair(t.Context(), c)
	if err != nil || len(report.Lost) < 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	n := mustOpen(t, c.Config)
	for _, r := range w.records {
		if r.ID() == report.Lost[0].ID {
			mustPut(t, n, r)
		}
	}
	mustClose(t, n)
	c.Peers = w.peers(t, "all")
	second, err := Repair(t.Context(), c)
	if err != nil || len(second.Lost) != 0 || len(second.Fetched) != len(report.Lost)-1 {
		t.Fatalf("%+v, %v", second, err)
	}
	n = mustOpen(t, c.Config)
	defer mustClose(t, n)
	if _, err := n.Check(t.Context()); err != nil || n.Hello().Lost != 0 {
		t.Errorf("%v, %+v", err, n.Hello())
	}
}

// TestRepairDoesNotGiveUpTheUnheard: only a definite answer makes a stub.
func TestRepairDoesNotGiveUpTheUnheard(t *testing.T) {
	w := newWard(t)
	for name, peers := range map[string]Peers{"away": w.peers(t, "away"), "ill": w.peers(t, "ill"), "nobody": peersWith()} {
		fs := vfs.NewMem()
		c := w.patient(t, fs, onFiles(".log", nil))
		c.Peers = peers
		before := sums(t, fs, c.Dir)
		if _, err := Repair(t.Context(), c); !fault.Is(err, fault.Transient) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, sums(t, fs, c.Dir)); diff != "" {
			t.Errorf("%s: it changed %s", name, diff)
		}
		if pending, err := pebblex.Pending(fs, c.Dir); pending || err != nil {
			t.Errorf("%s: something is left beside the directory, %v", name, err)
		}
	}
}

// TestRepairTurnsToTheNextHolder: one that fails is no reason to stop when another
// sends the record.
func TestRepairTurnsToTheNextHolder(t *testing.T) {
	w := newWard(t)
	for name, failure := range map[string]error{"silent": errAway, "ill": errors.New("input/output error")} {
		c := w.patient(t, vfs.NewMem(), onFiles(".log", nil))
		peers := w.peers(t, "all")
		peers.shelves["archive-0"] = w.other // asked first, as the archives are sorted
		peers.onRecord = func(from wire.ArchiveID, _ *wire.PutRecord) error {
			if from == "archive-0" {
				return failure
			}
			return nil
		}
		c.Peers = peers
		if report, err := Repair(t.Context(), c); err != nil || !report.Clean() || len(report.Fetched) == 0 || peers.records["archive-0"] == 0 {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
}

// TestRepairGivesUpNothingUntilAllAreHeard: what those that were heard do not have
// stays damaged while another may have it. What they have, or what was given up
// before, is no reason to stop.
func TestRepairGivesUpNothingUntilAllAreHeard(t *testing.T) {
	w := newWard(t)
	silent := fault.New(fault.Transient, "NOT_HEARD", "archive-d was not heard")
	fs := vfs.NewMem()
	c := w.patient(t, fs, onFiles(".log", nil))
	c.Peers, c.Unheard = w.peers(t, "none"), silent
	before := sums(t, fs, c.Dir)
	for _, c.DryRun = range []bool{true, false} {
		if _, err := Repair(t.Context(), c); fault.CodeOf(err) != "NOT_HEARD" || !fault.Is(err, fault.Transient) {
			t.Errorf("dry run %v: %v", c.DryRun, err)
		}
		if diff := cmp.Diff(before, sums(t, fs, c.Dir)); diff != "" {
			t.Errorf("dry run %v: it changed %s", c.DryRun, diff)
		}
	}
	other := w.patient(t, vfs.NewMem(), onFiles(".log", nil))
	other.Peers, other.Unheard = w.peers(t, "all"), silent
	if report, err := Repair(t.Context(), other); err != nil || !report.Clean() {
		t.Errorf("one who was heard has it: %+v, %v", report, err)
	}
	c.Unheard = nil
	settled, err := Repair(t.Context(), c)
	if err != nil || len(settled.Lost) < 2 {
		t.Fatalf("%+v, %v", settled, err)
	}
	c.Unheard = silent
	for _, c.DryRun = range []bool{true, false} {
		if report, err := Repair(t.Context(), c); err != nil || len(report.Lost) != len(settled.Lost) {
			t.Errorf("what was given up before, dry run %v: %+v, %v", c.DryRun, report, err)
		}
	}
}

// TestRepairKeepsWhatIsBeside: what others keep in the directory is carried over,
// what asks for a grace among it, but for where a scrub was, snapshots of the filter, and
// what was half written.
func TestRepairKeepsWhatIsBeside(t *testing.T) {
	w := newWard(t)
	fs := vfs.NewMem()
	c := w.patient(t, fs, func(files map[string][]byte) {
		onFiles("MANIFEST", nil)(files)
		files["data/witness/x.seen"], files["data/grace"], files["data/leases"] = []byte("seen"), w.older["data/key.pem"], []byte(leasesText(DefaultLease))
		files["data/scrub.json"], files["data/filters/keys/planted"] = []byte("{}"), []byte("of the old index")
		files["data/highwater.tmp"], files["data/witness/y.seen.tmp"] = []byte("half"), []byte("half")
	})
	want := sums(t, fs, c.Dir)
	if report, err := Repair(t.Context(), c); err != nil || report.Whole {
		t.Fatalf("%+v, %v", report, err)
	}
	got := sums(t, fs, c.Dir)
	for _, path := range []string{"/witness/x.seen", "/grace", "/leases", "/key.pem"} {
		if got[path] != want[path] {
			t.Errorf("%s is not what it was", path)
		}
	}
	for _, path := range []string{"/scrub.json", "/filters/keys/planted", "/highwater.tmp", "/witness/y.seen.tmp"} {
		if _, there := got[path]; there {
			t.Errorf("%s is taken over", path)
		}
	}
}

// TestRepairOfASecondGeneration: numbers, trees and generation rows are what they
// were, whether the store is damaged or gone.
func TestRepairOfASecondGeneration(t *testing.T) {
	other := newShelf(t, "archive-b")
	disk, records := marked(t, 5)
	c := testConfig(disk, "archive-a")
	begins(t, c, 8)
	n := mustOpen(t, c)
	for i := range 3 {
		r := metadata(alice, digest(fmt.Sprint("new ", i)), `{}`)
		mustPut(t, n, r)
		records = append(records, r)
	}
	for _, r := range records {
		mustPut(t, other.Node, r)
	}
	want := n.Hello()
	mustClose(t, n)
	all := readTree(t, disk, c.Dir)
	w := &ward{cfg: c, other: other, now: all}
	for name, damage := range map[string]func(map[string][]byte){
		"the manifest": onFiles("MANIFEST", nil), "the log": onFiles(".log", nil), "the store": onFiles("records/", nil),
	} {
		fs := vfs.NewMem()
		rc := w.patient(t, fs, damage)
		rc.Peers = peersWith(other)
		report, err := Repair(t.Context(), rc)
		if err != nil || !report.Clean() || report.Generation != 2 || report.Seq != 12 {
			t.Fatalf("%s: %+v, %v", name, report, err)
		}
		n := mustOpen(t, rc.Config)
		if got := n.Hello(); got.Generation != 2 || got.Seq != want.Seq || got.Records != want.Records {
			t.Errorf("%s: %+v, before %+v", name, got, want)
		}
		if _, err := n.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range records {
			if got := ask(t, n, alice, r.SHA256); len(got) != 1 {
				t.Errorf("%s: record %s is answered %v", name, r.ID(), got)
			}
		}
		mustClose(t, n)
	}
}

// TestRepairTellsOfWhatOthersHeard: records of the last second before a crash may
// be known to nobody but by their number. They are not passed over in silence.
func TestRepairTellsOfWhatOthersHeard(t *testing.T) {
	w := newWard(t)
	fs := vfs.NewMem()
	c := w.patient(t, fs, onFiles("MANIFEST", nil))
	n := w.peers(t, "all")
	n.remembered[0].Key, n.remembered[0].Seq = w.hello.Key, w.hello.Seq
	c.Peers, c.DryRun = n, true
	if report, err := Repair(t.Context(), c); err != nil || report.Behind() || !report.Clean() {
		t.Errorf("what was heard is here: %+v, %v", report, err)
	}
	n.remembered[0].Seq++
	if report, err := Repair(t.Context(), c); err != nil || !report.Behind() || report.Clean() || report.HeardSeq != w.hello.Seq+1 {
		t.Errorf("one more was heard: %+v, %v", report, err)
	}
	n.remembered[0].Key = "bm90IGhpcw=="
	if report, err := Repair(t.Context(), c); err != nil || report.Behind() {
		t.Errorf("heard of another key: %+v, %v", report, err)
	}
}

// With a mark of its own a directory can be repaired although nobody answers, but
// not without a word: it may be an older copy.
func TestRepairTellsThatNobodyRemembers(t *testing.T) {
	w := newWard(t)
	var log bytes.Buffer
	c := w.patient(t, vfs.NewMem(), nil)
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	peers := w.peers(t, "all")
	peers.remembered, peers.silent = nil, errAway
	c.Peers = peers
	report, err := Repair(t.Context(), c)
	if err != nil || !report.Whole || report.Mark != MarkOwn {
		t.Errorf("%+v, %v", report, err)
	}
	if !strings.Contains(log.String(), errAway.Error()) {
		t.Errorf("the log says nothing of it:\n%s", &log)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	w := newWard(t)
	fs := vfs.NewMem()
	c := w.patient(t, fs, onFiles(".log", nil))
	c.Peers, c.DryRun = w.peers(t, "all"), true
	before := sums(t, fs, "vol")
	report, err := Repair(t.Context(), c)
	if err != nil || report.Whole || len(report.Fetched) == 0 || len(report.Lost) != 0 || report.Evidence != "" {
		t.Errorf("%+v, %v", report, err)
	}
	if diff := cmp.Diff(before, sums(t, fs, "vol")); diff != "" {
		t.Error(diff)
	}
}

func TestRepairRefusesWhatIsOpenOrAnother(t *testing.T) {
	w := newWard(t)
	fs := vfs.NewMem()
	c := w.patient(t, fs, nil)
	n := mustOpen(t, c.Config)
	if _, err := Repair(t.Context(), c); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "IN_USE" {
		t.Errorf("an open archive: %v", err)
	}
	mustClose(t, n)
	c.ID = "archive-x"
	if _, err := Repair(t.Context(), c); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "ARCHIVE_ID" {
		t.Errorf("another archive: %v", err)
	}
}

// TestRepairOfFiles: a file that a record names is fetched when it is missing; if
// nobody has it, the record stays and the loss is reported.
func TestRepairOfFiles(t *testing.T) {
	w := newWard(t)
	for _, held := range []bool{true, false} {
		fs := vfs.NewMem()
		c := w.patient(t, fs, onFiles("MANIFEST", nil))
		store, err := blob.OpenStore(blob.StoreConfig{Dir: "files", FS: fs, Create: true, DiskReserve: 1})
		if err != nil {
			t.Fatal(err)
		}
		c.Files = store
		c.Refetch = func(ctx context.Context, f wire.File) error {
			if !held {
				return fault.New(fault.NotFound, blob.CodeNoCopy, "nobody")
			}
			_, err := store.Refetch(ctx, blob.FileRef{SHA256: f.SHA256, CID: f.CID, Size: f.Size}, "evidence", []blob.CopySource{
				func(ctx context.Context, ref blob.FileRef, write func([]byte) error) error {
					data, _, err := w.other.files.Read(ctx, ref.CID, 0, int(ref.Size))
					return errors.Join(err, write(data))
				},
			})
			return err
		}
		report, err := Repair(t.Context(), c)
		if err != nil || len(report.Files) != 3 || report.Files[0].Lost == held || report.Clean() != held {
			t.Fatalf("held %v: %+v, %v", held, report, err)
		}
		if held {
			w.well(t, c.Config)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRepairSurvivesACrash cuts the power before every change that a repair
// makes, keeping all, half or none of what was not synced, and repairs what is
// left.
func TestRepairSurvivesACrash(t *testing.T) {
	w := newWard(t)
	mem := vfs.NewCrashableMem()
	disk := faultfs.New(mem)
	c := w.patient(t, disk, onFiles(".log", nil))
	c.Peers, c.Bloom = w.peers(t, "all"), bloom.Params{Capacity: bloom.MinCapacity}
	before := sums(t, mem, c.Dir)
	rng := rand.New(rand.NewPCG(3, 3))
	step := int64(need.Rounds(3, 1))
	if testing.Short() {
		step = 15
	}
	var left []*vfs.MemFS
	var mu sync.Mutex // guards left
	disk.Trace(func(p faultfs.Point) {
		mu.Lock()
		defer mu.Unlock()
		if p.N%step == 0 || p.Op == faultfs.OpRename || p.Op == faultfs.OpSyncDir && strings.HasSuffix(p.Path, "vol") {
			left = append(left, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng}))
		}
	})
	if report, err := Repair(t.Context(), c); err != nil || !report.Clean() {
		t.Fatal(report, err)
	}
	disk.Trace(nil)
	swapped := 0
	for i, fs := range left {
		c.FS = fs
		report, err := Repair(t.Context(), c)
		if err != nil || !report.Clean() {
			t.Fatalf("crash %d of %d: %+v, %v", i, len(left), report, err)
		}
		if report.Whole {
			swapped++
		}
		names, err := fs.List("vol")
		if err != nil {
			t.Fatal(err)
		}
		evidence := slices.DeleteFunc(names, func(n string) bool { return !strings.Contains(n, ".damaged-") })
		if len(evidence) == 0 {
			t.Fatalf("crash %d: %v", i, names)
		}
		for _, name := range evidence { // two, if the crash kept both names of a rename
			if diff := cmp.Diff(before, sums(t, fs, fs.PathJoin("vol", name))); diff != "" {
				t.Errorf("crash %d: the evidence %s changed: %s", i, name, diff)
			}
		}
		w.well(t, c.Config)
	}
	t.Logf("%d crashes, %d of them after the swap", len(left), swapped)
}
