package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// untended returns an archive with so many records, of which the filter is left
// to the test.
func untended(t testing.TB, fs vfs.FS, records int) *Node {
	t.Helper()
	c := filterConfig(fs)
	mustInit(t, c)
	n := mustOpen(t, c)
	n.stop()
	n.background.Wait()
	for i := range records {
		mustPut(t, n, recordAt(i))
	}
	return n
}

// eachFilter runs a test for each of the filters of an archive.
func eachFilter(t *testing.T, run func(t *testing.T, of func(*Node) *filter)) {
	t.Run("keys", func(t *testing.T) { run(t, func(n *Node) *filter { return &n.keys }) })
	t.Run("views", func(t *testing.T) { run(t, func(n *Node) *filter { return &n.views }) })
}

// subject returns a hash that the filter has of a record.
func (f *filter) subject(r wire.PutRecord) bloom.Hash {
	return f.hashing().record(nil, &r, []place{{r.SHA256, roleSubject}})[0]
}

// denied returns how many keys a filter denied, as people are told.
func denied(n *Node, name string) uint64 {
	for _, f := range n.Stats().Filters {
		if f.Name == name {
			return f.Denied
		}
	}
	return 0
}

// empty makes the filter one that denies everything, as if all bits had rotted.
func (f *filter) empty() {
	f.set = bloom.New(f.params())
	f.set.Complete()
}

// TestFilterIsRebuiltWhileWritesGoOn fills a small filter many times over. Its
// base is rebuilt beside the writers, who find every record at once, and in the
// end one base has all keys, on disk too.
func TestFilterIsRebuiltWhileWritesGoOn(t *testing.T) {
	records := 6000
	if testing.Short() {
		records = 2000
	}
	fs := vfs.NewMem()
	c := filterConfig(fs)
	mustInit(t, c)
	n := mustOpen(t, c)
	var wg sync.WaitGroup
	const writers = 8
	for w := range writers {
		wg.Go(func() {
			for i := w; i < records; i += writers {
				r := recordAt(i)
				if _, err := n.Put(t.Context(), wire.Put{Record: r}); err != nil {
					t.Error(err)
					return
				}
				if who := deniesPair(n, r); n.Absent(r.SHA256) || n.Absent(wire.Digest(r.ID())) || who != "" {
					t.Errorf("record %d is denied right after its acknowledgement, to %q", i, who)
				}
			}
		})
	}
	wg.Wait()
	for _, f := range n.filters() {
		eventually(t, "the filter is not rebuilt", func() bool {
			_, needed := f.set.NeedsRebuild()
			return !needed && f.set.Generations() == 1 && f.covered.Load() > 0
		})
		s := f.set.Stats()
		if s.Rebuilds == 0 || s.RebuildsFailed > 0 || s.Repaired > 0 || f.rebuildTook.Load() == 0 {
			t.Errorf("%s: %+v", f.name, s)
		}
		t.Logf("%s: %d rebuilds, %d keys in %d bytes", f.name, s.Rebuilds, s.Keys, s.Bytes)
	}
	deniesNone(t, n, records)
	mustClose(t, n)

	n, err := Open(c)
	must1(t, err)
	defer mustClose(t, n)
	if !n.keys.set.Ready() || !n.views.set.Ready() {
		t.Error("the filters are not complete after a clean stop")
	}
	deniesNone(t, n, records)
}

// A new base that denies what is stored is thrown away, counted, and made once
// more.
func TestRebuildThatDeniesIsMadeOnceMore(t *testing.T) {
	eachFilter(t, func(t *testing.T, of func(*Node) *filter) {
		n := untended(t, vfs.NewMem(), 50)
		defer mustClose(t, n)
		empty := func(times int) func(context.Context, *bloom.Rebuild) error {
			return func(ctx context.Context, r *bloom.Rebuild) error {
				if times--; times >= 0 {
					return nil
				}
				return of(n).fill(ctx, r)
			}
		}
		if err := of(n).rebuild(t.Context(), 4096, empty(1)); err != nil {
			t.Errorf("one base denies: %v", err)
		}
		if s := of(n).set.Stats(); s.RebuildsFailed != 1 || s.Rebuilds != 1 || denied(n, of(n).name) != 1 {
			t.Errorf("one base denies: %+v", s)
		}
		deniesNone(t, n, 50)
		if err := of(n).rebuild(t.Context(), 4096, empty(2)); fault.CodeOf(err) != "REBUILD_DENIES" {
			t.Errorf("two bases deny: %v", err)
		}
		if s := of(n).set.Stats(); s.RebuildsFailed != 3 || s.Rebuilds != 1 || s.Rebuilding {
			t.Errorf("two bases deny: %+v", s)
		}
		deniesNone(t, n, 50)
	})
}

// A rebuild that ends early leaves the filter as it was, and another can begin.
func TestRebuildThatEndsEarly(t *testing.T) {
	eachFilter(t, func(t *testing.T, of func(*Node) *filter) {
		n := untended(t, vfs.NewMem(), 50)
		ctx, stop := context.WithCancel(t.Context())
		err := of(n).rebuild(ctx, 4096, func(ctx context.Context, r *bloom.Rebuild) error {
			stop()
			return of(n).fill(ctx, r)
		})
		if !errors.Is(err, context.Canceled) || of(n).set.Stats().Rebuilding {
			t.Errorf("%v, %+v", err, of(n).set.Stats())
		}
		if err := of(n).rebuild(ctx, 4096, of(n).fill); !errors.Is(err, context.Canceled) {
			t.Errorf("begun after the end: %v", err)
		}
		must1(t, of(n).rebuild(t.Context(), 4096, of(n).fill))
		deniesNone(t, n, 50)
		mustClose(t, n)
		if err := of(n).rebuild(t.Context(), 4096, of(n).fill); fault.CodeOf(err) != "CLOSED" {
			t.Errorf("closed: %v", err)
		}
	})
}

// What is to be done between two batches waits for the batch under way to be
// durable: its keys are in the filter, and would be in no iterator before.
func TestBetweenWaitsForTheBatch(t *testing.T) {
	disk := newFaultFS(vfs.NewMem(), -1, false)
	c := testConfig(disk, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	seen := make(chan uint64, 1)
	var once sync.Once
	disk.beforeSync = func() { // the committer is in the middle of a batch
		once.Do(func() {
			p := &pending{reply: make(chan outcome, 1), between: func() error { seen <- n.durable.Load(); return nil }}
			if err := n.committer.Submit(context.Background(), p); err != nil {
				t.Error(err)
			}
		})
	}
	mustPut(t, n, recordAt(0))
	if got := <-seen; got != 1 {
		t.Errorf("it ran when %d records were durable, of 1", got)
	}
	disk.beforeSync = nil
	mustClose(t, n)
}

// TestFilterThatDeniesIsMended: a check that meets keys which the filter denies
// puts them back and tells; the snapshots, which may be as wrong, go, and the base
// is rebuilt.
func TestFilterThatDeniesIsMended(t *testing.T) {
	eachFilter(t, func(t *testing.T, of func(*Node) *filter) {
		fs := vfs.NewMem()
		n := untended(t, fs, 50)
		must1(t, of(n).save())
		of(n).empty()
		for i := range 10 {
			mustPut(t, n, recordAt(100+i))
		}
		report, err := n.Check(t.Context())
		if err != nil || report.Found == 0 {
			t.Errorf("the check found %d, %v", report.Found, err)
		}
		for _, f := range report.Findings {
			if f.Kind != FindingFilter || f.Damage || f.Seq == 0 {
				t.Errorf("%+v", f)
			}
		}
		deniesNone(t, n, 50)
		if s := of(n).set.Stats(); s.Repaired == 0 || denied(n, of(n).name) != s.Repaired {
			t.Errorf("%+v", s)
		}
		if err := of(n).save(); fault.CodeOf(err) != "FILTER_DENIES" || of(n).saveErrors.Load() != 1 {
			t.Errorf("a filter that denied is stored: %v", err)
		}
		must1(t, n.tendOnce(t.Context()))
		if s := of(n).set.Stats(); s.Damaged || s.Rebuilds != 1 || of(n).covered.Load() != n.Seq() {
			t.Errorf("%+v, stored up to %d", s, of(n).covered.Load())
		}
		if _, err := fs.Stat(of(n).dir + "/snapshot.old"); err == nil {
			t.Error("the snapshot of before is still there")
		}
		if report, err := n.Check(t.Context()); err != nil || report.Found > 0 {
			t.Errorf("the next check found %d, %v", report.Found, err)
		}
		mustClose(t, n)
	})
}

// A snapshot that denies what is stored does not outlive the process that found it
// out: not if it is closed before the tender comes to it, nor if something else is
// wrong, so that the base is not rebuilt.
func TestSnapshotThatDeniesGoes(t *testing.T) {
	eachFilter(t, func(t *testing.T, of func(*Node) *filter) {
		for name, end := range map[string]func(*Node){
			"closed at once": func(*Node) {},
			"also damaged": func(n *Node) {
				n.health.quarantine("something else")
				must1(t, n.tendOnce(t.Context()))
			},
		} {
			fs := vfs.NewMem()
			n := untended(t, fs, 20)
			of(n).empty()
			must1(t, of(n).save())
			if of(n).scrub(of(n).subject(recordAt(0))) != 1 {
				t.Errorf("%s: nothing was denied", name)
			}
			end(n)
			mustClose(t, n)
			n = mustOpen(t, filterConfig(fs))
			deniesNone(t, n, 20)
			if s := of(n).set.Stats(); s.Repaired > 0 {
				t.Errorf("%s: the snapshot was used: %+v", name, s)
			}
			mustClose(t, n)
		}
	})
}

// A base that is rebuilt while the one before denies is stored and stays, but what
// was stored of the one before goes. That is done once, however many keys it denies.
func TestSnapshotOfANewBaseStays(t *testing.T) {
	eachFilter(t, func(t *testing.T, of func(*Node) *filter) {
		disk := newFaultFS(vfs.NewMem(), -1, false)
		n := untended(t, disk, 20)
		of(n).empty()
		must1(t, of(n).save())
		removed := 0
		disk.Fail(func(p faultfs.Point) faultfs.Outcome {
			if p.Op == faultfs.OpRemove && p.Path == of(n).dir+"/snapshot" {
				removed++
			}
			return faultfs.Outcome{}
		})
		must1(t, of(n).rebuild(t.Context(), 4096, func(ctx context.Context, r *bloom.Rebuild) error {
			for i := range 10 {
				if of(n).scrub(of(n).subject(recordAt(i))) != 1 {
					t.Errorf("record %d is not denied", i)
				}
				of(n).discardDenying()
			}
			return of(n).fill(ctx, r)
		}))
		must1(t, n.tendOnce(t.Context()))
		if _, err := disk.Stat(of(n).dir + "/snapshot.old"); err == nil || removed != 1 || of(n).covered.Load() != n.Seq() {
			t.Errorf("the old snapshot: %v; removed %d times, stored up to %d of %d", err, removed, of(n).covered.Load(), n.Seq())
		}
		mustClose(t, n)
	})
}

// A filter that can not be stored fails no put and no close, and is built at the
// next start.
func TestFilterThatCanNotBeStored(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpMkdir, faultfs.OpCreate, faultfs.OpWrite, faultfs.OpSync, faultfs.OpRename, faultfs.OpSyncDir, faultfs.OpClose} {
		disk := newFaultFS(vfs.NewMem(), -1, false)
		n := untended(t, disk, 10)
		disk.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == op && strings.Contains(p.Path, "filters") }, faultfs.ErrFull))
		for _, f := range n.filters() {
			if err := f.save(); !errors.Is(err, faultfs.ErrFull) || f.saveErrors.Load() != 1 {
				t.Errorf("%s, %s: %v, %d counted", f.name, op, err, f.saveErrors.Load())
			}
		}
		mustPut(t, n, recordAt(10))
		mustClose(t, n)
		disk.Fail(nil)
		n = mustOpen(t, filterConfig(disk))
		deniesNone(t, n, 11)
		if !n.keys.set.Ready() || !n.views.set.Ready() || n.Hello().State != wire.StateUp {
			t.Errorf("%s: %+v", op, n.Stats())
		}
		mustClose(t, n)
	}
}

// Without room above the reserve nothing is stored.
func TestFilterLeavesTheReserve(t *testing.T) {
	disk := newFaultFS(vfs.NewMem(), -1, false)
	disk.SetFree(1<<40, 1<<41)
	c := filterConfig(disk)
	c.DiskReserve = 1 << 30
	mustInit(t, c)
	n := mustOpen(t, c)
	mustPut(t, n, recordAt(0))
	disk.SetFree(1<<30+1, 1<<41)
	n.disk.Look()
	if err := n.keys.save(); fault.CodeOf(err) != "DISK_FULL" {
		t.Error(err)
	}
	disk.SetFree(1<<40, 1<<41)
	n.disk.Look()
	must1(t, n.keys.save())
	mustClose(t, n)
}

// A filter with too little memory is wrong more often, says so, and denies
// nothing, also when it is stored and read.
func TestFilterWithTooLittleMemory(t *testing.T) {
	const records = 3000
	c := filterConfig(vfs.NewMem())
	c.Bloom.MaxBytes = 4 << 10
	mustInit(t, c)
	n := mustOpen(t, c)
	for i := range records {
		mustPut(t, n, recordAt(i))
	}
	if s := n.Stats().Filters; !s[0].Degraded || !s[1].Degraded || s[0].Bytes+s[1].Bytes > 4<<10 {
		t.Errorf("%+v", s)
	}
	deniesNone(t, n, records)
	mustClose(t, n)
	n, err := Open(c)
	must1(t, err)
	defer mustClose(t, n)
	if s := n.Stats().Filters; !s[0].Ready || !s[1].Ready || !s[0].Degraded || !s[1].Degraded {
		t.Errorf("%+v", n.Stats())
	}
	deniesNone(t, n, records)
}

// Snapshots come when enough keys do: often enough to bound a replay, and seldom
// enough to cost nothing.
func TestSnapshotsAreDue(t *testing.T) {
	for _, tc := range []struct {
		saved, keys uint64
		want, due   bool
	}{
		{0, 0, false, false}, {0, snapshotKeys, false, false}, {0, snapshotKeys + 1, false, true}, {0, 1, true, true},
		{10_000_000, 10_500_000, false, false}, {10_000_000, 10_600_000, false, true}, {1000, 900, false, false},
	} {
		var n tending
		n.saved.Store(tc.saved)
		n.want.Store(tc.want)
		if got := n.due(tc.keys); got != tc.due {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// The error rate is observed, by queries and by puts, and stays near the expected
// one. What one filter lets through counts only if the other does, too: here that is
// not complete.
func TestErrorRateIsObserved(t *testing.T) {
	eachFilter(t, func(t *testing.T, of func(*Node) *filter) {
		c := filterConfig(vfs.NewMem())
		c.Bloom = bloom.Params{Capacity: bloom.MinCapacity, ErrorRate: 0.3}
		mustInit(t, c)
		n := mustOpen(t, c)
		f, other := of(n), &n.views
		if f == other {
			other = &n.keys
		}
		for i := range 200 {
			mustPut(t, n, recordAt(i))
		}
		n.stop()
		n.background.Wait()
		other.set = bloom.New(other.params())
		for i := range 2000 {
			ask(t, n, alice, digest(fmt.Sprint("not there ", i)))
			ask(t, n, alice, recordAt(i%200).SHA256)
		}
		s := f.set.Stats()
		if s.FalsePositives == 0 || s.Confirmed < 2000 || s.ObservedErrorRate > 2*s.EstimatedErrorRate || s.Suspect || other.set.Stats().Confirmed > 0 {
			t.Errorf("%+v", s)
		}
		f.set.Confirm(true)
		for range 10_000 {
			f.set.Confirm(false) // as somebody who searches for keys that are let through
		}
		for _, s := range n.Stats().Filters {
			if s.Suspect != (s.Name == f.name) {
				t.Errorf("nobody suspects what is suspect, or something else: %+v", s)
			}
		}
		mustClose(t, n)
	})
}
