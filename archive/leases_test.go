package archive

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

const testLease = 2 * time.Second

// leased is the configuration of an archive whose leases run by the time of a bubble.
func leased(fs vfs.FS) Config {
	began := time.Now()
	c := testConfig(fs, "archive-a")
	c.Lease, c.clock = testLease, func() time.Duration { return time.Since(began) }
	return c
}

// lease takes a lease on the end of the feed.
func lease(t testing.TB, n *Node, holder string) wire.LeaseGrant {
	t.Helper()
	feed, at, _ := n.Feed().Follow()
	g, err := n.Feed().Lease(wire.LeaseRequest{Holder: holder, Feed: feed, At: at})
	if err != nil {
		t.Fatalf("a lease: %v", err)
	}
	return g
}

// release gives it back.
func release(t testing.TB, n *Node, holder string) {
	t.Helper()
	feed, at, _ := n.Feed().Follow()
	if _, err := n.Feed().Lease(wire.LeaseRequest{Holder: holder, Feed: feed, At: at, Release: true}); err != nil {
		t.Fatal(err)
	}
}

func putOf(i int) wire.Put { return wire.Put{PutID: wire.NewPutID(), Record: recordAt(2 * 7 * i)} }

// putting puts and returns a channel with what came of it.
func putting(ctx context.Context, n *Node, p wire.Put) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := n.Put(ctx, p)
		done <- err
	}()
	return done
}

// waits fails the test if something is over before everybody else waits.
func waits(t testing.TB, done chan error, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("%s did not wait: %v", what, err)
	default:
	}
}

// TestLaw6AcknowledgedIsKnownToEveryHolder: a put is acknowledged when every holder
// of a lease has its pairs or has lost the lease, and so is its repetition and the
// word that the record is there; it can be read before. Without a lease nothing
// waits.
func TestLaw6AcknowledgedIsKnownToEveryHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leased(vfs.NewMem())
		mustInit(t, c)
		n := mustOpen(t, c)
		mustPut(t, n, putOf(0).Record)
		g := lease(t, n, "one")
		lease(t, n, "two")
		put := putOf(1)
		done := putting(t.Context(), n, put)
		waits(t, done, "a put")
		if got := ask(t, n, alice, put.Record.SHA256); len(got) != 1 {
			t.Errorf("before the acknowledgement: %v", got)
		}
		again := putting(t.Context(), n, put)
		has := make(chan error, 1)
		go func() {
			_, err := n.HasRecords(t.Context(), []wire.RecordID{put.Record.ID()})
			has <- err
		}()
		at, seq := n.Feed().Position()
		if seq != 2 || at <= g.At {
			t.Errorf("the feed is at %d, seq %d", at, seq)
		}
		n.Feed().Ack(wire.DeltaAck{Holder: "one", Feed: g.Feed, At: at})
		waits(t, done, "a put that one of two holders knows")
		waits(t, again, "its repetition")
		waits(t, has, "the word that it is there")
		n.Feed().Ack(wire.DeltaAck{Holder: "two", Feed: g.Feed, At: at})
		must1(t, errors.Join(<-done, <-again, <-has))

		// One that gives up, one that outlasts the leases.
		ctx, stop := context.WithCancel(t.Context())
		short, long := putting(ctx, n, putOf(2)), putting(t.Context(), n, putOf(3))
		waits(t, short, "a put")
		stop()
		if err := <-short; fault.CodeOf(err) != codeUnknown || !fault.Is(err, fault.Transient) {
			t.Errorf("given up: %v", err)
		}
		waits(t, long, "a put")
		time.Sleep(testLease)
		must1(t, <-long)
		mustPut(t, n, putOf(4).Record) // nobody is waited for
		mustClose(t, n)
	})
}

// TestLeasesAreRefusedWithoutAWholeFilter: nobody gets a lease, or a copy, while the
// filter is not complete, has denied what is stored, the archive is damaged or about
// to end. After a denial everybody has to copy it anew.
func TestLeasesAreRefusedWithoutAWholeFilter(t *testing.T) {
	ask := func(n *Node, feed string) (string, string) {
		_, at, _ := n.Feed().Follow()
		_, err := n.Feed().Lease(wire.LeaseRequest{Holder: "one", Feed: feed, At: at})
		_, _, copied := n.ViewsSnapshot()
		if copied != nil && !fault.Is(copied, fault.Transient) {
			t.Error(copied)
		}
		return fault.CodeOf(err), fault.CodeOf(copied)
	}
	expect := func(n *Node, feed, lease, copied string) {
		t.Helper()
		if l, c := ask(n, feed); l != lease || c != copied {
			t.Errorf("lease %q, copy %q; want %q and %q", l, c, lease, copied)
		}
	}
	fs := vfs.NewMem()
	n := untended(t, fs, 30)
	feed, _, _ := n.Feed().Follow()
	expect(n, feed, "", "")
	n.SetState(wire.StateDraining)
	expect(n, feed, "DRAINING", "DRAINING")
	n.SetState(wire.StateUp)
	expect(n, feed, "", "")
	n.views.empty()
	n.lend()
	if n.views.scrub(n.views.subject(recordAt(0))) != 1 {
		t.Error("nothing was denied")
	}
	expect(n, feed, "FILTER_INCOMPLETE", "FILTER_INCOMPLETE")
	must1(t, n.views.rebuild(t.Context(), 4096, n.views.fill))
	expect(n, feed, "FILTER_INCOMPLETE", "FILTER_INCOMPLETE") // the copies are as wrong as before
	must1(t, n.tendOnce(t.Context()))
	expect(n, feed, "MIRROR_FEED", "")
	renewed, _, _ := n.Feed().Follow()
	expect(n, renewed, "", "")
	must1(t, n.views.rebuild(t.Context(), 4096, n.views.fill)) // nothing was wrong
	must1(t, n.tendOnce(t.Context()))
	expect(n, renewed, "", "")
	n.health.quarantine("something else")
	expect(n, renewed, "DAMAGED", "DAMAGED")
	mustClose(t, n)
	expect(n, renewed, "DAMAGED", "DAMAGED")

	must1(t, fs.RemoveAll("data/filters"))
	c := filterConfig(fs)
	n, err := Open(c)
	must1(t, err)
	n.stop()
	n.background.Wait() // the index was not read, or was
	n.views.set = bloom.New(n.views.params())
	n.lend()
	feed, _, _ = n.Feed().Follow()
	expect(n, feed, "FILTER_INCOMPLETE", "FILTER_INCOMPLETE")
	n.views.complete()
	expect(n, feed, "", "")
	mustClose(t, n)
	expect(n, feed, "DRAINING", "DRAINING")

	c.Lease = -1
	n = mustOpen(t, c)
	if n.Feed() != nil {
		t.Error("an archive that is not served has a feed")
	}
	mustClose(t, n)
}

// TestGraceAfterLeases: an archive that may have had leases out when it ended takes
// no records, and tells of none, for the length of one after its start. One that gave
// none, or has all back when it is closed, takes them at once.
func TestGraceAfterLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grace := func(n *Node, when string, put wire.Put, want bool) {
			t.Helper()
			_, err := n.Put(t.Context(), put)
			if (fault.CodeOf(err) == "GRACE") != want || !want && err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if state := n.Hello(); (state.Reason == "GRACE") != want {
				t.Errorf("%s: %s, %s", when, state.State, state.Reason)
			}
		}
		disk := vfs.NewCrashableMem()
		c := leased(disk)
		mustInit(t, c)
		n := mustOpen(t, c)
		grace(n, "a new one", putOf(0), false)
		lease(t, n, "one")
		stored := putOf(1)
		done := putting(t.Context(), n, stored)
		waits(t, done, "a put")
		killed := c
		killed.FS = disk.CrashClone(vfs.CrashCloneCfg{})
		release(t, n, "one")
		must1(t, <-done)
		mustClose(t, n)
		n = mustOpen(t, c)
		grace(n, "closed without leases", putOf(2), false)
		lease(t, n, "one")
		mustClose(t, n)
		n = mustOpen(t, c)
		grace(n, "closed with a lease", putOf(3), true)
		mustClose(t, n)
		n = mustOpen(t, c)
		grace(n, "and once more, too early", putOf(3), true)
		time.Sleep(testLease)
		grace(n, "a lease later", putOf(3), false)
		synctest.Wait()
		mustClose(t, n)
		n = mustOpen(t, c)
		grace(n, "with all back", putOf(4), false)
		mustClose(t, n)

		longer, shorter := killed, killed
		longer.FS, shorter.FS = copyOf(t, killed.FS.(*vfs.MemFS)), copyOf(t, killed.FS.(*vfs.MemFS))
		n = mustOpen(t, killed)
		grace(n, "killed", putOf(5), true)
		if _, err := n.Put(t.Context(), stored); fault.CodeOf(err) != "GRACE" {
			t.Errorf("a record that was never acknowledged is a duplicate, of which a mirror may know nothing: %v", err)
		}
		if _, err := n.HasRecords(t.Context(), []wire.RecordID{stored.Record.ID()}); fault.CodeOf(err) != "GRACE" {
			t.Errorf("and it is said to be there: %v", err)
		}
		lease(t, n, "two")
		time.Sleep(testLease)
		grace(n, "a lease later", putOf(5), false) // the one of two is over
		synctest.Wait()
		lease(t, n, "two")
		mustClose(t, n)
		n = mustOpen(t, killed)
		grace(n, "closed with a lease that came in the grace", putOf(6), true)
		mustClose(t, n)

		// What counts is how long the leases were that were given.
		shorter.Lease = time.Millisecond
		n = mustOpen(t, shorter)
		time.Sleep(testLease / 2)
		grace(n, "a shorter lease", putOf(5), true)
		lease(t, n, "three")
		mustClose(t, n)
		n = mustOpen(t, shorter)
		time.Sleep(testLease / 2)
		grace(n, "a shorter lease, with the longer one not over", putOf(5), true)
		mustClose(t, n)
		longer.Lease = time.Hour
		n = mustOpen(t, longer)
		time.Sleep(testLease)
		grace(n, "a longer lease", putOf(5), false)
		mustClose(t, n)
	})
}

// TestLeaseAtTheEndOfTheGrace: the file of leases stays, or is made anew, if the
// first lease is given in the moment in which those of the last process are over.
func TestLeaseAtTheEndOfTheGrace(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	c.Lease = testLease
	must1(t, c.FS.MkdirAll(c.Dir, 0o755))
	n := &Node{cfg: c, health: newHealth(c.Log)}
	for round := range need.Rounds(300, 100_000) {
		n.leases = leases{found: testLease}
		write(t, c.FS, c.leasesPath(), []byte(leasesText(testLease)))
		noted := make(chan error, 1)
		n.health.mu.Lock() // the end of the grace has to wait here
		go func() { noted <- n.leases.note(n.cfg) }()
		over := make(chan struct{})
		go func() { n.giveBack(); close(over) }()
		for range round % 50 {
			runtime.Gosched()
		}
		n.health.mu.Unlock()
		must1(t, <-noted)
		<-over
		if _, err := c.FS.Stat(c.leasesPath()); err != nil {
			t.Fatalf("round %d: a lease may be out, and the next start does not find that: %v", round, err)
		}
	}
}

// TestLongerLeasesAreForgotten: once those are over that the last process had out, a
// crash costs the length of a lease as it is now.
func TestLongerLeasesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		c := leased(disk)
		mustInit(t, c)
		write(t, disk, c.leasesPath(), []byte("damaged"))
		n := mustOpen(t, c)
		lease(t, n, "one")
		early := c
		early.FS = disk.CrashClone(vfs.CrashCloneCfg{})
		time.Sleep(unknownLease)
		synctest.Wait()
		late := c
		late.FS = disk.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, n)
		for want, c := range map[time.Duration]Config{unknownLease: early, testLease: late} {
			n := mustOpen(t, c)
			if n.grace.leased != want {
				t.Errorf("the next start waits %s, want %s", n.grace.leased, want)
			}
			mustClose(t, n)
		}
	})
}

// TestLeasesFaultTable: whichever operation on the file of leases fails, be it done
// or not, and wherever the power is cut then: who got a lease is waited for by the
// next start.
func TestLeasesFaultTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops := 0
		for at := 0; ; at++ {
			failed := false
			for _, persisted := range []bool{false, true} {
				mem := vfs.NewCrashableMem()
				mustInit(t, leased(mem))
				disk := newFaultFS(mem, -1, false)
				n := mustOpen(t, leased(disk))
				seen := 0
				disk.Fail(func(p faultfs.Point) faultfs.Outcome {
					if !strings.Contains(p.Path, "leases") && !(syncsNames(p)) {
						return faultfs.Outcome{}
					}
					if seen++; seen != at+1 {
						return faultfs.Outcome{}
					}
					failed = true
					return faultfs.Outcome{Err: faultfs.ErrIO, Done: persisted}
				})
				feed, end, _ := n.Feed().Follow()
				g, err := n.Feed().Lease(wire.LeaseRequest{Holder: "one", Feed: feed, At: end})
				if err != nil && (!fault.Is(err, fault.Transient) || fault.CodeOf(err) != "LEASE_FILE") {
					t.Errorf("operation %d: %v", at, err)
				}
				crashed := leased(mem.CrashClone(vfs.CrashCloneCfg{}))
				disk.Fail(nil)
				if err != nil {
					g = lease(t, n, "one") // it is tried again
				}
				again := leased(mem.CrashClone(vfs.CrashCloneCfg{}))
				release(t, n, "one")
				mustClose(t, n)
				for _, c := range []Config{crashed, again} {
					n := mustOpen(t, c)
					_, put := n.Put(t.Context(), putOf(1))
					if granted := c.FS == again.FS || err == nil; granted && g.LeaseMs > 0 && fault.CodeOf(put) != "GRACE" {
						t.Errorf("operation %d, done %v: a lease was out, and a put was taken: %v", at, persisted, put)
					}
					mustClose(t, n)
				}
				n = mustOpen(t, leased(mem))
				mustPut(t, n, putOf(1).Record) // it was given back
				mustClose(t, n)
			}
			if !failed {
				break
			}
			ops++
		}
		if ops < 5 {
			t.Errorf("%d operations", ops)
		}
	})
}

// A file of leases that can not be removed costs the next start a wait, and no more.
func TestLeasesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultFS(vfs.NewMem(), -1, false)
		c := leased(disk)
		mustInit(t, c)
		n := mustOpen(t, c)
		lease(t, n, "one")
		release(t, n, "one")
		disk.Fail(faultfs.Where(func(p faultfs.Point) bool {
			return p.Op == faultfs.OpRemove && strings.HasSuffix(p.Path, "/leases")
		}, faultfs.ErrIO))
		mustClose(t, n)
		n = mustOpen(t, c)
		time.Sleep(testLease)
		synctest.Wait()
		mustPut(t, n, putOf(0).Record)
		disk.Fail(nil)
		mustClose(t, n)
		n = mustOpen(t, c)
		mustPut(t, n, putOf(1).Record)
		mustClose(t, n)
	})
}

func TestLeasesFileIsFrozen(t *testing.T) {
	golden(t, "leases.v1", leasesText(testLease))
	for text, want := range map[string]time.Duration{
		leasesText(testLease): testLease, leasesText(1): time.Millisecond, leasesText(time.Hour): time.Hour,
		"": 0, "verae-leases/1": 0, "verae-leases/1 0\n": 0, "verae-leases/1 -5\n": 0, "verae-leases/2 2000\n": 0,
		"verae-leases/1 2000": 0, "verae-leases/1 2000\nmore": 0, "verae-leases/1 +2000\n": 0, "verae-leases/1 9223372036854775807\n": 0,
	} {
		if got, err := parseLeases([]byte(text)); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for lease, want := range map[time.Duration]time.Duration{testLease: unknownLease, time.Hour: time.Hour} {
		c := leased(vfs.NewMem())
		mustInit(t, c)
		write(t, c.FS, c.leasesPath(), []byte("damaged"))
		c.Lease = lease
		n := mustOpen(t, c)
		if n.grace.leased != want {
			t.Errorf("a damaged file is taken for %s, want %s", n.grace.leased, want)
		}
		mustClose(t, n)
	}
}
