package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// hand is a clock that is turned by hand.
type hand struct{ now time.Duration }

func (h *hand) clock() time.Duration { return h.now }

// since is a clock for a bubble, in which time is the test's.
func since() Clock {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func newTestFeed(clock Clock, change func(*FeedConfig)) *Feed {
	c := FeedConfig{Archive: "archive-a", ID: "boot.0", KeyID: "00000001", Clock: clock}
	if change != nil {
		change(&c)
	}
	return NewFeed(c)
}

func hashes(n int) []bloom.Hash {
	list := make([]bloom.Hash, n)
	for i := range list {
		list[i] = bloom.Hash{A: uint64(i), B: uint64(2*i + 1)}
	}
	return list
}

func mustLease(t testing.TB, f *Feed, holder string, at uint64) wire.LeaseGrant {
	t.Helper()
	g, err := f.Lease(wire.LeaseRequest{Holder: holder, Feed: "boot.0", At: at})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
	return g
}

func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("error %v, want code %s", err, code)
	}
}

// TestPutWaitsForHolders: for each of them, and for nobody else.
func TestPutWaitsForHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFeed(since(), nil)
		f.Append(1, hashes(3))
		mustLease(t, f, "a", 3)
		mustLease(t, f, "b", 3)
		f.Append(2, hashes(2))
		done := make(chan error, 1)
		go func() { done <- f.Await(t.Context(), 5) }()
		pending := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-done:
				t.Fatalf("acknowledged after %s", what)
			default:
			}
		}
		pending("nothing")
		if err := f.Await(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for _, a := range []wire.DeltaAck{
			{Holder: "a", Feed: "boot.0", At: 5}, {Holder: "b", Feed: "boot.0", At: 4}, {Holder: "b", Feed: "boot.1", At: 5},
			{Holder: "b", Feed: "boot.0", At: 6}, {Holder: "c", Feed: "boot.0", At: 5},
		} {
			f.Ack(a)
			pending("an acknowledgement that is not all")
		}
		f.Ack(wire.DeltaAck{Holder: "b", Feed: "boot.0", At: 5})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s := f.Stats(); s.Waits != 1 || s.Holders != 2 || s.Granted != 2 || s.At != 5 || s.Lag != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestPutWaitsForALeaseAtMost: a holder that died, one that left, and a caller who
// does.
func TestPutWaitsForALeaseAtMost(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(t *testing.T, f *Feed, cancel func())
		took time.Duration
		err  bool
	}{
		"dead":            {func(*testing.T, *Feed, func()) {}, DefaultLease, false},
		"released":        {func(_ *testing.T, f *Feed, _ func()) { f.release(wire.LeaseRequest{Holder: "a", Release: true}) }, 0, false},
		"caller":          {func(_ *testing.T, _ *Feed, cancel func()) { cancel() }, 0, true},
		"renewed by word": {func(t *testing.T, f *Feed, _ func()) { mustLease(t, f, "a", 1) }, 0, false},
		"feed broken":     {func(_ *testing.T, f *Feed, _ func()) { f.Break("boot.1") }, DefaultLease, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTestFeed(since(), nil)
				mustLease(t, f, "a", 0)
				f.Append(1, hashes(1))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, done := time.Now(), make(chan error, 1)
				go func() { done <- f.Await(ctx, 1) }()
				synctest.Wait()
				tc.do(t, f, cancel)
				err := <-done
				if (err != nil) != tc.err || time.Since(began) != tc.took {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				if err != nil && (!errors.Is(err, context.Canceled) || !fault.Is(err, fault.Transient)) {
					t.Error(err)
				}
			})
		})
	}
}

// TestLeaseRules goes through whom a lease is given.
func TestLeaseRules(t *testing.T) {
	h := &hand{now: time.Hour}
	f := newTestFeed(h.clock, nil)
	f.Follow()
	f.Append(1, hashes(4))
	for name, tc := range map[string]struct {
		q    wire.LeaseRequest
		code string
	}{
		"another feed":             {wire.LeaseRequest{Holder: "a", Feed: "boot.1", At: 4}, "MIRROR_FEED"},
		"ahead":                    {wire.LeaseRequest{Holder: "a", Feed: "boot.0", At: 5}, "MIRROR_AHEAD"},
		"a little behind, and new": {wire.LeaseRequest{Holder: "a", Feed: "boot.0", At: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := f.Lease(tc.q)
			wantCode(t, err, tc.code)
			if err == nil && (g.Need != 4 || g.At != 4 || g.LeaseMs != DefaultLease.Milliseconds()) {
				t.Errorf("%+v", g)
			}
		})
	}
	// What is added later is waited for, and does not change what is needed.
	f.Append(2, hashes(1))
	if g := mustLease(t, f, "a", 4); g.Need != 4 || g.At != 5 {
		t.Errorf("%+v", g)
	}
	// At the limit of the lag it is renewed, beyond it is not, until it has caught up.
	h.now += MaxLag
	mustLease(t, f, "a", 4)
	h.now++
	_, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "boot.0", At: 4})
	wantCode(t, err, "LEASE_BEHIND")
	if s := f.Stats(); s.Lag != MaxLag+1 || s.Refused != 3 {
		t.Errorf("%+v", s)
	}
	mustLease(t, f, "a", 5)
	// One that ran out is a new one, which needs all that is there.
	h.now += DefaultLease - 1
	if f.Idle() {
		t.Error("a lease ran out before its time")
	}
	h.now++
	if !f.Idle() {
		t.Error("a lease did not run out")
	}
	f.Append(3, hashes(1))
	if g := mustLease(t, f, "a", 6); g.Need != 6 {
		t.Errorf("%+v", g)
	}
	why := fault.New(fault.Transient, "DRAINING", "no more")
	f.Refuse(why)
	if _, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "boot.0", At: 6}); !errors.Is(err, why) {
		t.Error(err)
	}
	if _, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "gone.0", Release: true}); err != nil || !f.Idle() {
		t.Error("a release was refused", err)
	}
}

// TestWhoHearsNothingHoldsPutsUpOnce: a holder whose requests come through, and whom
// nothing reaches, is waited for once, and not by one put after the other.
func TestWhoHearsNothingHoldsPutsUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFeed(since(), nil)
		mustLease(t, f, "deaf", 0)
		for i := range uint64(5) {
			f.Append(i+1, hashes(1))
			if err := f.Await(t.Context(), i+1); err != nil {
				t.Fatal(err)
			}
			_, err := f.Lease(wire.LeaseRequest{Holder: "deaf", Feed: "boot.0", At: 0})
			wantCode(t, err, "LEASE_BEHIND")
			f.Follow() // and what he lacks is kept
		}
		if s := f.Stats(); s.Waits != 1 || s.Kept != 5 {
			t.Errorf("%+v", s)
		}
		mustLease(t, f, "deaf", 5)
	})
}

// TestLeaseLimits: at the edge of each.
func TestLeaseLimits(t *testing.T) {
	h := &hand{}
	f := newTestFeed(h.clock, nil)
	f.Follow()
	f.Append(1, hashes(maxBehind+1))
	_, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "boot.0"})
	wantCode(t, err, "LEASE_BEHIND")
	mustLease(t, f, "a", 1)
	for i := range MaxHolders - 1 {
		mustLease(t, f, fmt.Sprint(i), maxBehind+1)
	}
	_, err = f.Lease(wire.LeaseRequest{Holder: "one more", Feed: "boot.0", At: maxBehind + 1})
	wantCode(t, err, "LEASES")
	mustLease(t, f, "0", maxBehind+1)

	// Nobody follows: nothing is kept, and who is behind has to copy.
	f = newTestFeed(h.clock, nil)
	f.Append(1, hashes(2))
	_, err = f.Lease(wire.LeaseRequest{Holder: "a", Feed: "boot.0", At: 1})
	wantCode(t, err, "LEASE_BEHIND")
	if s := f.Stats(); s.Kept != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBeforeTheFirstLease: nobody has one before it is durable that one is out.
func TestBeforeTheFirstLease(t *testing.T) {
	calls, fail := 0, errors.New("disk")
	f := newTestFeed((&hand{}).clock, func(c *FeedConfig) {
		c.Before = func() error { calls++; return fail }
	})
	if _, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "other"}); err == nil || calls != 0 {
		t.Fatalf("%d calls for a request that is refused, %v", calls, err)
	}
	if _, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "boot.0"}); !errors.Is(err, fail) || !f.Idle() {
		t.Fatalf("%v", err)
	}
	fail = nil
	mustLease(t, f, "a", 0)
	mustLease(t, f, "b", 0)
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// TestDeltas: what is sent, and what is told again, is the feed without a gap.
func TestDeltas(t *testing.T) {
	var sent []wire.Delta
	h := &hand{}
	f := newTestFeed(h.clock, func(c *FeedConfig) {
		c.Seq = 7
		c.Send = func(d wire.Delta) { sent = append(sent, d) }
	})
	f.Append(8, hashes(5))
	if len(sent) != 0 {
		t.Fatal("nobody listens, and it was sent")
	}
	if id, at, seq := f.Follow(); id != "boot.0" || at != 5 || seq != 8 {
		t.Fatal(id, at, seq)
	}
	big := hashes(2*wire.MaxDeltaHashes + 3)
	f.Append(9, big)
	f.Append(10, hashes(1))
	var got []wire.Delta
	for _, d := range sent {
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		got = append(got, wire.Delta{From: d.From, To: d.To, Seq: d.Seq})
	}
	end := uint64(5 + len(big))
	want := []wire.Delta{
		{From: 5, To: 5 + wire.MaxDeltaHashes, Seq: 8}, {From: 5 + wire.MaxDeltaHashes, To: 5 + 2*wire.MaxDeltaHashes, Seq: 8},
		{From: 5 + 2*wire.MaxDeltaHashes, To: end, Seq: 9}, {From: end, To: end + 1, Seq: 10},
	}
	if !slices.EqualFunc(got, want, func(a, b wire.Delta) bool { return a.From == b.From && a.To == b.To && a.Seq == b.Seq }) {
		t.Fatalf("%+v", got)
	}
	for _, after := range []uint64{5, 6, 5 + wire.MaxDeltaHashes, 5 + 2*wire.MaxDeltaHashes - 1, end, end + 1} {
		var all []byte
		at := after
		for {
			d, err := f.Since(wire.DeltasRequest{Feed: "boot.0", After: at})
			if err != nil || d.Check() != nil || d.From != at {
				t.Fatal(err, d.Check(), d.From, at)
			}
			if d.To == at {
				break
			}
			all, at = append(all, d.Hashes...), d.To
		}
		feed := append(encode(big), encode(hashes(1))...)
		if at != end+1 || !slices.Equal(all, feed[(after-5)*wire.HashSize:]) {
			t.Errorf("after %d: up to %d, %d bytes", after, at, len(all))
		}
	}
	_, err := f.Since(wire.DeltasRequest{Feed: "boot.0", After: 4})
	wantCode(t, err, "DELTAS_GONE")
	_, err = f.Since(wire.DeltasRequest{Feed: "boot.0", After: end + 2})
	wantCode(t, err, "MIRROR_AHEAD")
	_, err = f.Since(wire.DeltasRequest{Feed: "boot.9", After: end})
	wantCode(t, err, "MIRROR_FEED")

	// Who stops asking is forgotten, and so is what was kept for him.
	h.now += keepFor
	f.Append(11, hashes(1))
	if s := f.Stats(); s.Kept != 0 || s.Sent != 4 {
		t.Errorf("%+v", s)
	}
	// More than MaxKept is not kept.
	f.Follow()
	for i := range uint64(MaxKept/wire.MaxDeltaHashes + 2) {
		f.Append(12+i, hashes(wire.MaxDeltaHashes))
	}
	if s := f.Stats(); s.Kept > MaxKept || s.Kept < MaxKept-wire.MaxDeltaHashes {
		t.Errorf("%+v", s)
	}
}

// TestBreakIsTold: everybody hears at once that his copy is not good.
func TestBreakIsTold(t *testing.T) {
	var sent []wire.Delta
	f := newTestFeed((&hand{}).clock, func(c *FeedConfig) { c.Send = func(d wire.Delta) { sent = append(sent, d) } })
	mustLease(t, f, "a", 0)
	f.Append(1, hashes(1))
	f.Break("boot.1")
	last := sent[len(sent)-1]
	if last.Feed != "boot.1" || last.From != 1 || last.To != 1 || last.Check() != nil {
		t.Errorf("%+v", last)
	}
	if f.Idle() {
		t.Error("the holder of a lease is not waited for any more")
	}
	_, err := f.Lease(wire.LeaseRequest{Holder: "a", Feed: "boot.0", At: 1})
	wantCode(t, err, "MIRROR_FEED")
}
