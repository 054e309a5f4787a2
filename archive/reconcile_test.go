package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// fleetOf are the shelves of a test as a Fleet, seen from any of them.
type fleetOf struct {
	*peersOf
	counted  []wire.ArchiveID // enrolled; nil: all
	full     []wire.ArchiveID // take no records
	pullers  map[wire.ArchiveID]*Puller
	onPull   func(target wire.ArchiveID, results []wire.PullResult) ([]wire.PullResult, error)
	onHas    func(from wire.ArchiveID) error
	fmu      sync.Mutex
	asked    int // questions has
	pulled   map[wire.ArchiveID]int
	repeated int // pulls of what was there
}

func newFleet(t testing.TB, all ...*shelf) *fleetOf {
	t.Helper()
	f := &fleetOf{peersOf: peersWith(all...), pullers: map[wire.ArchiveID]*Puller{}, pulled: map[wire.ArchiveID]int{}}
	for _, s := range all {
		f.pullers[s.cfg.ID] = newTestPuller(t, s, f.peersOf)
	}
	return f
}

func (f *fleetOf) Settle(ctx context.Context) error { return ctx.Err() }

func (f *fleetOf) Has(ctx context.Context, a wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	f.fmu.Lock()
	f.asked++
	hook := f.onHas
	f.fmu.Unlock()
	if hook != nil {
		if err := hook(a); err != nil {
			return nil, err
		}
	}
	return f.peersOf.Has(ctx, a, ids)
}

func (f *fleetOf) Holders(context.Context) ([]wire.ArchiveID, error) {
	if f.counted == nil {
		return f.Alive(), errors.New("no aggregator")
	}
	return f.counted, nil
}

func (f *fleetOf) Writable() []wire.ArchiveID {
	return slices.DeleteFunc(f.Alive(), func(id wire.ArchiveID) bool { return slices.Contains(f.full, id) })
}

// Rank prefers the ids that come first, turned by the key.
func (f *fleetOf) Rank(ids []wire.ArchiveID, key [32]byte) []wire.ArchiveID {
	out := slices.Sorted(slices.Values(ids))
	if len(out) > 0 {
		n := int(key[0]) % len(out)
		out = append(out[n:], out[:n]...)
	}
	return out
}

func (f *fleetOf) Pull(ctx context.Context, target wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]wire.PullResult, error) {
	if slices.Contains(from, target) {
		return nil, fault.New(fault.Invalid, "", "it is to pull from itself")
	}
	var results []wire.PullResult
	for _, out := range f.pullers[target].Pull(ctx, ids, from) {
		res := wire.PullResult{ID: out.ID, Seq: out.Seq, Duplicate: out.Duplicate}
		if out.Err != nil {
			res.Problem = problemOf(out.Err)
		}
		results = append(results, res)
		f.fmu.Lock()
		f.pulled[target]++
		if out.Duplicate {
			f.repeated++
		}
		f.fmu.Unlock()
	}
	if f.onPull != nil {
		return f.onPull(target, results)
	}
	return results, nil
}

func (f *fleetOf) reconciler(s *shelf, copies int) *Reconciler {
	r := NewReconciler(ReconcilerConfig{Node: s.Node, Puller: f.pullers[s.cfg.ID], Fleet: f, Copies: copies})
	r.pause = func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }
	return r
}

// reconcile runs one whole reconciliation of everything.
func (f *fleetOf) reconcile(t testing.TB, s *shelf, copies int) wire.ReconcileProgress {
	t.Helper()
	r := f.reconciler(s, copies)
	r.Start()
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.Progress()
}

// copiesOf counts the archives that can read a record.
func (f *fleetOf) copiesOf(t testing.TB, id wire.RecordID) (n int) {
	t.Helper()
	for _, s := range f.shelves {
		have, err := s.HasRecords(t.Context(), []wire.RecordID{id})
		if err != nil {
			t.Fatal(err)
		}
		if have[0] {
			n++
		}
	}
	return n
}

// fill puts n records, every tenth with a file, on two archives each, and
// returns their ids.
func fill(t testing.TB, n int, shelves ...*shelf) (ids []wire.RecordID) {
	t.Helper()
	for i := range n {
		at := rand.N(len(shelves))
		on := []*shelf{shelves[at], shelves[(at+1+rand.N(len(shelves)-1))%len(shelves)]}
		for _, s := range on {
			if i%10 == 0 {
				r := s.scan(t, uint64(i), wire.FragmentSize/2+i)
				ids = append(ids, r.ID())
				continue
			}
			ids = append(ids, mustPut(t, s.Node, metadata(alice, digest(fmt.Sprint("subject ", i)), fmt.Sprintf(`{"n":%d}`, i))).RecordID)
		}
	}
	slices.SortFunc(ids, func(a, b wire.RecordID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// An archive is lost for good and a new, empty one takes its place: afterwards
// every record has its copies again, and none was fetched without need.
func TestReconcileRestoresTheCopiesOfALostArchive(t *testing.T) {
	a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
	ids := fill(t, 3*reconcileBatch/2, a, b, c)
	lost := int(c.Seq())
	fresh := newShelf(t, "archive-d")
	f := newFleet(t, a, b, fresh)
	var missing, copied uint64
	for _, s := range []*shelf{a, b} {
		p := f.reconcile(t, s, 2)
		if p.Failed != 0 || p.Missing != p.Copied || p.Seq != s.Seq() || p.End != s.Seq() || p.Running || p.DoneAt == "" {
			t.Errorf("%s: %+v", s.cfg.ID, p)
		}
		missing, copied = missing+p.Missing, copied+p.Copied
	}
	if int(copied) != lost {
		t.Errorf("%d copies were made, %d were lost", copied, lost)
	}
	for _, id := range ids {
		if n := f.copiesOf(t, id); n != 2 {
			t.Errorf("record %s has %d copies", id, n)
		}
	}
	pulls := f.pulled["archive-a"] + f.pulled["archive-b"] + f.pulled["archive-d"]
	if f.repeated != 0 || pulls != lost {
		t.Errorf("%d pulls, %d of what was there; %d copies were lost", pulls, f.repeated, lost)
	}
	for _, s := range []*shelf{a, b, fresh} {
		if p := f.reconcile(t, s, 2); p.Missing != 0 || p.Copied != 0 {
			t.Errorf("again, %s: %+v", s.cfg.ID, p)
		}
		if _, err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A reconciliation that was cut short goes on where it was, in another process.
func TestReconcileGoesOnAfterAKill(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	const batches = 4
	for i := range batches * reconcileBatch {
		mustPut(t, a.Node, metadata(alice, digest(fmt.Sprint(i)), `{}`))
	}
	f := newFleet(t, a, b)
	ctx, kill := context.WithCancel(t.Context())
	rounds := 0
	f.onHas = func(wire.ArchiveID) error {
		if rounds++; rounds == 4 { // the second of the second batch
			kill()
		}
		return nil
	}
	r := f.reconciler(a, 2)
	r.Start()
	if err := r.Reconcile(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before := r.Progress()
	if before.Seq != reconcileBatch || !before.Running {
		t.Errorf("killed at %+v", before)
	}
	stored := b.Seq()
	f.onHas, f.asked = nil, 0
	again := f.reconciler(a, 2)
	if got := again.Progress(); got != before {
		t.Errorf("the next process is at %+v, the last was at %+v", got, before)
	}
	if wait, _ := again.next(); wait != 0 {
		t.Errorf("it waits for %v", wait)
	}
	if err := again.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := again.Progress(); p.Failed != 0 || b.Seq() != batches*reconcileBatch || p.Seq != p.End {
		t.Errorf("%+v, %d copies", p, b.Seq())
	}
	if stored < reconcileBatch || f.repeated != 0 {
		t.Errorf("%d copies before the kill, %d made twice", stored, f.repeated)
	}
	if f.asked > 2*(batches-1) {
		t.Errorf("%d questions for %d batches: it began anew", f.asked, batches-1)
	}
}

// A copy counts where it can be read now, on an archive that is enrolled.
func TestOnlyLiveCopiesOfEnrolledArchivesCount(t *testing.T) {
	a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
	note := metadata(alice, digest("subject"), `{}`)
	mustPut(t, a.Node, note)
	mustPut(t, b.Node, note)
	tests := []struct {
		name    string
		counted []wire.ArchiveID
		prepare func(*fleetOf)
		missing uint64
		copies  int // on c
	}{
		{"all is well", nil, func(*fleetOf) {}, 0, 0},
		{"there is no other", []wire.ArchiveID{"archive-a"}, func(*fleetOf) {}, 0, 0},
		{"the others are not enrolled, and one is dead", []wire.ArchiveID{"archive-a", "archive-z"}, func(*fleetOf) {}, 1, 0},
		{"the other does not answer, the third is full", nil, func(f *fleetOf) {
			f.full = []wire.ArchiveID{"archive-c"}
			f.onHas = func(id wire.ArchiveID) error {
				if id == "archive-b" {
					return errAway
				}
				return nil
			}
		}, 1, 0},
		{"the other is silent", nil, func(f *fleetOf) { delete(f.shelves, "archive-b") }, 1, 1},
	}
	for _, tt := range tests {
		f := newFleet(t, a, b, c)
		f.counted = tt.counted
		tt.prepare(f)
		p := f.reconcile(t, a, 2)
		if p.Missing != tt.missing || int(c.Seq()) != tt.copies || p.Failed != tt.missing-uint64(tt.copies) {
			t.Errorf("%s: %+v, %d on the third", tt.name, p, c.Seq())
		}
		if (p.Failed > 0) != (f.reconciler(a, 2).Healthy() != nil) {
			t.Errorf("%s: health is %v after %+v", tt.name, f.reconciler(a, 2).Healthy(), p)
		}
	}
}

// An archive that says that it pulled is asked whether it has the record. If it
// can not, or lies, the next one is told.
func TestTheNextArchivePullsWhereOneFails(t *testing.T) {
	for name, onPull := range map[string]func([]wire.PullResult) ([]wire.PullResult, error){
		"refuses": func(r []wire.PullResult) ([]wire.PullResult, error) {
			r[0].Problem = &wire.Problem{Code: "DISK_FULL", Kind: "transient", Message: "full"}
			return r, nil
		},
		"lies":             func(r []wire.PullResult) ([]wire.PullResult, error) { return r, nil },
		"is away":          func([]wire.PullResult) ([]wire.PullResult, error) { return nil, errAway },
		"answers for none": func([]wire.PullResult) ([]wire.PullResult, error) { return nil, nil },
		"answers for another": func(r []wire.PullResult) ([]wire.PullResult, error) {
			r[0].ID = wire.RecordID(digest("another"))
			return r, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
			note := metadata(alice, digest("subject"), `{}`)
			mustPut(t, a.Node, note)
			f := newFleet(t, a, b, c)
			bad := f.Rank([]wire.ArchiveID{"archive-b", "archive-c"}, note.SHA256)[0]
			f.pullers[bad] = newTestPuller(t, newShelf(t, "archive-x"), f.peersOf) // it stores elsewhere
			f.onPull = func(target wire.ArchiveID, r []wire.PullResult) ([]wire.PullResult, error) {
				if target == bad {
					return onPull(r)
				}
				return r, nil
			}
			p := f.reconcile(t, a, 2)
			if p.Missing != 1 || p.Copied != 1 || p.Failed != 0 || f.copiesOf(t, note.ID()) != 2 {
				t.Errorf("%+v, %d copies", p, f.copiesOf(t, note.ID()))
			}
			p = f.reconcile(t, a, 3)
			if p.Failed != 1 || p.Problem == nil {
				t.Errorf("with nobody left: %+v", p)
			}
		})
	}
}

// Control records are for every archive.
func TestControlRecordsGoEverywhere(t *testing.T) {
	a, b, c, d := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c"), newShelf(t, "archive-d")
	share := wire.PutRecord{Kind: wire.KindShare, SHA256: digest("s"), TenantID: alice, ShareWith: []wire.Share{{TenantID: bob, Mode: wire.ModeFiles}}}
	mustPut(t, a.Node, share)
	f := newFleet(t, a, b, c, d)
	if p := f.reconcile(t, a, 2); p.Missing != 1 || p.Copied != 3 || f.copiesOf(t, share.ID()) != 4 {
		t.Errorf("%+v, %d copies", p, f.copiesOf(t, share.ID()))
	}
}

// Of several holders the first-ranked one sees to a record, unless somebody asked
// for a reconciliation.
func TestOneHolderSeesToARecord(t *testing.T) {
	a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
	note := metadata(alice, digest("subject"), `{}`)
	mustPut(t, a.Node, note)
	mustPut(t, b.Node, note)
	f := newFleet(t, a, b, c)
	order := f.Rank([]wire.ArchiveID{"archive-a", "archive-b"}, note.SHA256)
	first, second := f.shelves[order[0]], f.shelves[order[1]]
	r := f.reconciler(second, 3)
	if err := r.Reconcile(t.Context()); err != nil || r.Progress().Missing != 0 || c.Seq() != 0 {
		t.Errorf("the second holder: %v, %+v", err, r.Progress())
	}
	r = f.reconciler(first, 3)
	if err := r.Reconcile(t.Context()); err != nil || r.Progress().Copied != 1 || c.Seq() != 1 {
		t.Errorf("the first holder: %v, %+v", err, r.Progress())
	}
	f = newFleet(t, a, b, newShelf(t, "archive-d"))
	if p := f.reconcile(t, second, 3); p.Copied != 1 {
		t.Errorf("the second holder, asked: %+v", p)
	}
}

// An archive that is restarted causes no new copies, which would stay for ever:
// a reconciliation that nobody asked for waits for it.
func TestAShortSilenceMakesNoCopies(t *testing.T) {
	a, c := newShelf(t, "archive-a"), newShelf(t, "archive-c")
	id := mustPut(t, a.Node, metadata(alice, digest("subject"), `{}`)).RecordID
	f := newFleet(t, a, c)
	f.counted = []wire.ArchiveID{"archive-a", "archive-b", "archive-c"}
	now := time.Unix(1_800_000_000, 0)
	a.cfg.Now = func() time.Time { return now }
	a.reopen(t)
	r := f.reconciler(a, 2)
	for range 3 {
		if err := r.Reconcile(t.Context()); !fault.Is(err, fault.Transient) || c.Seq() != 0 || !r.Progress().Running || r.Progress().Problem == nil {
			t.Fatalf("%v, %+v, %d copies", err, r.Progress(), c.Seq())
		}
		now = now.Add(silentGrace/3 - 1)
	}
	asked := f.reconciler(a, 2)
	asked.Start()
	if err := asked.Reconcile(t.Context()); err != nil || asked.Progress().Copied != 1 {
		t.Errorf("one that was asked for: %v, %+v", err, asked.Progress())
	}
	b := newShelf(t, "archive-b")
	mustPut(t, b.Node, metadata(alice, digest("another"), `{}`))
	f = newFleet(t, b, c)
	f.counted = []wire.ArchiveID{"archive-a", "archive-b", "archive-c"}
	b.cfg.Now = func() time.Time { return now }
	b.reopen(t)
	r = f.reconciler(b, 2)
	if err := r.Reconcile(t.Context()); !fault.Is(err, fault.Transient) {
		t.Error(err)
	}
	now = now.Add(silentGrace)
	if err := r.Reconcile(t.Context()); err != nil || r.Progress().Copied != 1 || r.Progress().DoneAt == "" || r.Progress().Problem != nil {
		t.Errorf("after a long silence: %v, %+v", err, r.Progress())
	}
	if n := f.copiesOf(t, id); n != 1 {
		t.Errorf("%d copies", n)
	}
}

// A record whose file is gone is no copy; its own archive gets the file back.
func TestReconcileHealsItsOwnFiles(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	scan := a.scan(t, 1, 1000)
	b.scan(t, 1, 1000)
	if err := a.fs.Remove(fmt.Sprintf("files/files/%x/%x", scan.File.SHA256[:1], scan.File.SHA256[:])); err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, a, b)
	if n := f.copiesOf(t, scan.ID()); n != 1 {
		t.Fatalf("%d copies before", n)
	}
	r := f.reconciler(a, 2)
	if err := r.Reconcile(t.Context()); err != nil || r.Progress().Copied != 1 || f.copiesOf(t, scan.ID()) != 2 {
		t.Errorf("%v, %+v, %d copies", err, r.Progress(), f.copiesOf(t, scan.ID()))
	}
}

// What a repair left as lost is got back once an archive that has it is there, and
// counts as lost no more; what nobody has stays lost, and is not a failure.
func TestReconcileRegainsLostRecords(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	note, gone := metadata(alice, digest("subject"), `{"n":1}`), metadata(alice, digest("subject"), `{"n":2}`)
	mustPut(t, a.Node, note)
	mustPut(t, a.Node, gone)
	scan := a.scan(t, 1, 1000)
	mustPut(t, b.Node, note)
	b.scan(t, 1, 1000)
	a.reopenAfter(t, func() { lose(t, a.cfg, 1, 2, 3) })
	if h := a.Hello(); h.Lost != 3 || h.State != wire.StateUp {
		t.Fatalf("before: %+v", h)
	}
	ids := []wire.RecordID{note.ID(), gone.ID(), scan.ID()}
	requireHas(t, a.Node, ids, false, false, false)
	if _, err := a.Portable(t.Context(), note.ID()); fault.CodeOf(err) != CodeNoRecord {
		t.Errorf("a lost record is sent: %v", err)
	}
	if page, err := a.RecordIDs(t.Context(), 0, 0); err != nil || len(page.Records) != 0 || page.Next != 3 {
		t.Errorf("lost records are listed: %+v, %v", page, err)
	}
	f := newFleet(t, a, b)
	if p := f.reconcile(t, a, 2); p.Missing != 2 || p.Copied != 2 || p.Failed != 0 {
		t.Errorf("%+v", p)
	}
	requireHas(t, a.Node, ids, true, false, true)
	if h := a.Hello(); h.Lost != 1 || h.Seq != 5 || h.State != wire.StateUp {
		t.Errorf("after: %+v", h)
	}
	if p := f.reconcile(t, a, 2); p.Missing != 0 || p.Copied != 0 {
		t.Errorf("again: %+v", p)
	}
	if _, err := a.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// The cursor is a convenience: whatever its file is, or fails to become, the
// reconciliation does its work, and the next process finds a state that was.
func TestReconcileSurvivesEveryFaultOfItsCursor(t *testing.T) {
	for n := int32(0); ; n++ {
		a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
		id := mustPut(t, a.Node, metadata(alice, digest("subject"), `{}`)).RecordID
		f := newFleet(t, a, b)
		index := errorfs.OnIndex(n)
		r := f.reconciler(a, 2)
		r.fs = errorfs.Wrap(a.fs, errorfs.ErrInjected.If(index))
		r.Start()
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatalf("fault %d: %v", n, err)
		}
		if got := f.copiesOf(t, id); got != 2 {
			t.Errorf("fault %d: %d copies", n, got)
		}
		next := f.reconciler(a, 2)
		if p := next.Progress(); p != r.Progress() && !p.Running && p.StartedAt != "" {
			t.Errorf("fault %d: the next process finds %+v", n, p)
		}
		if err := next.Reconcile(t.Context()); err != nil || f.repeated != 0 {
			t.Errorf("fault %d: %v, %d copies made twice", n, err, f.repeated)
		}
		if index.Load() >= 0 { // not reached
			break
		}
	}
}

func TestReconcileReadsOnlyItsOwnCursor(t *testing.T) {
	a := newShelf(t, "archive-a")
	f := newFleet(t, a)
	r := f.reconciler(a, 2)
	good := r.Start()
	for _, text := range []string{
		"", "{", "[]", `{"version":2}`, `{"version":1,"all":true,"progress":{"archiveId":"archive-b","running":true}}`,
		strings.Repeat("x", maxCursor+1),
	} {
		if err := pebblex.WriteFile(a.fs, r.path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if p := f.reconciler(a, 2).Progress(); p.Running || p.ArchiveID != "archive-a" {
			t.Errorf("%.40q reads as %+v", text, p)
		}
	}
	data, err := json.Marshal(r.state)
	if err != nil {
		t.Fatal(err)
	}
	if err := pebblex.WriteFile(a.fs, r.path(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := f.reconciler(a, 2).Progress(); p != good {
		t.Errorf("reads %+v, wrote %+v", p, good)
	}
}

// The cursor's file is frozen: the next version reads where this one was.
func TestTheCursorOfReconciliationsIsFrozen(t *testing.T) {
	golden, err := os.ReadFile("testdata/reconcile.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	a := newShelf(t, "archive-a")
	for i := range 3 {
		mustPut(t, a.Node, metadata(alice, digest(fmt.Sprint(i)), `{}`))
	}
	f := newFleet(t, a)
	r := f.reconciler(a, 2)
	if err := pebblex.WriteFile(a.fs, r.path(), golden, 0o600); err != nil {
		t.Fatal(err)
	}
	next := f.reconciler(a, 2)
	if p := next.Progress(); !p.Running || p.Seq != 512 || p.End != 3 || p.Copied != 6 || p.Problem == nil || !next.state.All {
		t.Errorf("it reads as %+v", p)
	}
	next.state.Progress.End = 1048 // of the log that it was written beside
	next.save()
	again, err := pebblex.ReadFile(a.fs, r.path(), maxCursor)
	if diff := cmp.Diff(string(golden), string(again)); diff != "" || err != nil {
		t.Errorf("%v; cursor (-golden +written):\n%s", err, diff)
	}
}

// The next reconciliation comes by itself after a time, and never if that is
// turned off.
func TestWhenReconciliationsBegin(t *testing.T) {
	a := newShelf(t, "archive-a")
	f := newFleet(t, a)
	now := time.Unix(1_800_000_000, 0)
	a.cfg.Now = func() time.Time { return now }
	a.reopen(t)
	a.Node.identity.created = now.Add(-time.Hour)
	r := f.reconciler(a, 1)
	if _, scheduled := r.next(); scheduled {
		t.Error("one is due although they are turned off")
	}
	r.cfg.Every = 24 * time.Hour
	if wait, ok := r.next(); wait != 23*time.Hour || !ok {
		t.Errorf("a new archive waits for %v", wait)
	}
	now = now.Add(48 * time.Hour)
	if wait, _ := r.next(); wait > 0 {
		t.Errorf("an overdue one waits for %v", wait)
	}
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if wait, _ := r.next(); wait != 24*time.Hour {
		t.Errorf("the next one waits for %v", wait)
	}
	now = now.Add(-1000 * time.Hour)
	if wait, _ := r.next(); wait != 24*time.Hour {
		t.Errorf("with a clock set back it waits for %v", wait)
	}
	r.opened = now
	now = now.Add(1001 * time.Hour)
	r = f.reconciler(a, 1)
	r.cfg.Every = time.Hour
	if wait, _ := r.next(); wait != time.Hour && wait != settleTime {
		t.Errorf("right after the start it waits for %v", wait)
	}
}

// A reconciliation that nobody asked for takes its time; one that somebody asks
// for, were it meanwhile, does not.
func TestReconciliationKeepsToItsRate(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	const steps = 3
	for i := range steps * reconcileBatch {
		mustPut(t, a.Node, metadata(alice, digest(fmt.Sprint("subject ", i)), `{}`))
	}
	f := newFleet(t, a, b)
	for name, tc := range map[string]struct {
		rate  int
		asked time.Duration // after so long a wait; 0: never
		want  time.Duration
	}{
		"no limit":                {0, 0, 0},
		"slow":                    {100, 0, (steps - 1) * reconcileBatch * time.Second / 100},
		"fast":                    {reconcileBatch * 10, 0, (steps - 1) * time.Second / 10},
		"asked for in the middle": {100, time.Second, time.Second},
	} {
		r := f.reconciler(a, 1)
		r.cfg.PerSecond = tc.rate
		waited := time.Duration(0)
		r.pause = func(_ context.Context, d time.Duration) bool {
			if waited += d; tc.asked > 0 && waited >= tc.asked {
				r.Start()
			}
			return true
		}
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := r.Progress(); waited != tc.want || p.Seq != steps*reconcileBatch || p.DoneAt == "" {
			t.Errorf("%s: waited %v, want %v; %+v", name, waited, tc.want, p)
		}
	}
}

// Run serves requests until its context ends.
func TestRunReconcilesWhenAsked(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	id := mustPut(t, a.Node, metadata(alice, digest("subject"), `{}`)).RecordID
	f := newFleet(t, a, b)
	r := f.reconciler(a, 2)
	ctx, stop := context.WithCancel(t.Context())
	ended, pulled := make(chan error, 1), make(chan struct{}, 1)
	f.onPull = func(_ wire.ArchiveID, res []wire.PullResult) ([]wire.PullResult, error) {
		pulled <- struct{}{}
		return res, nil
	}
	go func() { ended <- r.Run(ctx) }()
	if p := r.Start(); !p.Running || p.End != 1 {
		t.Errorf("%+v", p)
	}
	<-pulled
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := f.copiesOf(t, id); n != 2 {
		t.Errorf("%d copies", n)
	}
}
