package mirror

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/wire"
)

func emptySet() *bloom.Set {
	s := bloom.New(bloom.Params{Capacity: 1 << 10, Secret: bloom.Secret{ID: 1}})
	s.Complete()
	return s
}

func loaded(h *hand, at uint64) *Mirror {
	m := NewMirror(MirrorConfig{Holder: "aggregator.1", Clock: h.clock})
	m.Load(emptySet(), wire.SnapshotHead{Feed: "boot.0", At: at, Seq: at})
	return m
}

func delta(feed string, from uint64, list ...bloom.Hash) wire.Delta {
	return wire.Delta{ArchiveID: "archive-a", Feed: feed, KeyID: "00000001", From: from, To: from + uint64(len(list)), Seq: from + uint64(len(list)), Hashes: encode(list)}
}

func (m *Mirror) lease(sent time.Duration, need uint64) {
	m.Granted(m.Holder(), sent, wire.LeaseGrant{ArchiveID: "archive-a", Feed: "boot.0", LeaseMs: 1000, Need: need, At: need})
}

// TestMirrorIsBelieved under a lease, and when it has what was there when the
// lease was given.
func TestMirrorIsBelieved(t *testing.T) {
	h := &hand{now: time.Hour}
	m := loaded(h, 2)
	stored, absent := bloom.Hash{A: 1, B: 3}, bloom.Hash{A: 1 << 63, B: 5}
	want := func(what string, trusted bool) {
		t.Helper()
		seq, ok := m.Absent(absent)
		if ok != trusted || m.Trusted() != trusted || ok && seq != m.Stats().Seq {
			t.Errorf("%s: absent %v with seq %d, trusted %v, want %v", what, ok, seq, m.Trusted(), trusted)
		}
	}
	want("no lease", false)
	m.lease(h.now, 3)
	want("less than the lease needs", false)
	if at, err := m.Apply(delta("boot.0", 2, stored)); at != 3 || err != nil {
		t.Fatal(at, err)
	}
	want("all that it needs", true)
	if _, ok := m.Absent(stored, absent); ok {
		t.Error("a pair that is there is denied")
	}
	if _, ok := m.Absent(absent, stored); ok {
		t.Error("a pair that is there is denied")
	}
	_, err := m.Apply(delta("boot.0", 9, absent))
	wantCode(t, err, "MIRROR_GAP")
	want("after a gap", true)
	h.now += time.Second*trustShare/100 - 1
	want("at the end of the lease", true)
	h.now++
	want("after the lease", false)
	m.lease(h.now-time.Second, 0)
	want("an older lease", false)
	m.lease(h.now, 3)
	want("renewed", true)
	m.Granted("aggregator.1.99", h.now+time.Hour, wire.LeaseGrant{Feed: "boot.0", LeaseMs: 1000})
	m.Granted(m.Holder(), h.now+time.Hour, wire.LeaseGrant{Feed: "boot.1", LeaseMs: 1000})
	h.now += time.Second
	want("a lease of another holder, and of another feed", false)
	m.lease(h.now, 3)
	_, err = m.Apply(delta("boot.1", 3))
	wantCode(t, err, "MIRROR_FEED")
	want("another feed", false)
	m.lease(h.now+1, 3)
	want("a lease for what it was", false)

	m.Load(emptySet(), wire.SnapshotHead{Feed: "boot.1", At: 0})
	old := m.Holder()
	if dropped := m.Drop(); dropped != old || m.Holder() == old {
		t.Errorf("dropped %s, was %s, is %s", dropped, old, m.Holder())
	}
	want("dropped", false)
	_, err = m.Apply(delta("boot.1", 0))
	wantCode(t, err, "MIRROR_FEED")
	if s := m.Stats(); s.Loaded || s.Trusted || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestApplyTakesEachHashOnce: repeated and overlapping deltas do no harm.
func TestApplyTakesEachHashOnce(t *testing.T) {
	m := loaded(&hand{}, 0)
	list := hashes(6)
	for _, tc := range []struct {
		from, to int
		at       uint64
	}{{0, 3, 3}, {0, 3, 3}, {1, 2, 3}, {2, 5, 5}, {5, 5, 5}, {0, 6, 6}} {
		if at, err := m.Apply(delta("boot.0", uint64(tc.from), list[tc.from:tc.to]...)); at != tc.at || err != nil {
			t.Fatalf("%d to %d: %d, %v", tc.from, tc.to, at, err)
		}
	}
	for i, hash := range list {
		if m.set.TestHash(hash) == bloom.Absent {
			t.Errorf("hash %d is missing", i)
		}
	}
	bad := delta("boot.0", 6, list[0])
	bad.Hashes = bad.Hashes[1:]
	_, err := m.Apply(bad)
	wantCode(t, err, "MALFORMED")
	if _, at := m.Position(); at != 6 {
		t.Error(at)
	}
}

// TestAckedIsASecondLock: an acknowledgement of which a believed mirror knows
// nothing shows that something is wrong.
func TestAckedIsASecondLock(t *testing.T) {
	h := &hand{now: 1}
	m := loaded(h, 5)
	if m.Acked("boot", 6) {
		t.Error("it is not believed")
	}
	m.lease(h.now, 5)
	for _, tc := range []struct {
		boot string
		seq  uint64
		want bool
	}{{"boot", 5, false}, {"boot", 6, true}, {"boot2", 6, false}, {"", 6, false}} {
		if got := m.Acked(tc.boot, tc.seq); got != tc.want {
			t.Errorf("%q, %d: %v", tc.boot, tc.seq, got)
		}
	}
	h.now += time.Second
	if m.Acked("boot", 6) {
		t.Error("it is not believed any more")
	}
}

// TestPairs: frozen, and different for every viewer.
func TestPairs(t *testing.T) {
	secret, digest := [16]byte{1, 2, 3}, [32]byte{4, 5, 6}
	if got, want := fmt.Sprintf("%x", Pair(secret, "tenant-a", digest)), "{b7bf80c5feffc874 2117c78b65d1be09}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	seen := map[bloom.Hash]string{}
	for _, viewer := range []wire.TenantID{"tenant-a", "tenant-b", "tenant-", wire.Public, ""} {
		for _, s := range [][16]byte{secret, {}} {
			h := Pair(s, viewer, digest)
			if other, ok := seen[h]; ok {
				t.Errorf("%s and %s are one", viewer, other)
			}
			seen[h] = string(viewer)
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { Pair(secret, "tenant-a", digest) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestPutsAndQuestionsAtOnce: real goroutines, for the race detector. Whoever asks
// a believed mirror after a put returned is not denied.
func TestPutsAndQuestionsAtOnce(t *testing.T) {
	const holders, writers, puts = 3, 4, 500
	mirrors := make([]*Mirror, holders)
	chans := make([]chan wire.Delta, holders)
	f := NewFeed(FeedConfig{Archive: "archive-a", ID: "boot.0", KeyID: "00000001", Send: func(d wire.Delta) {
		for _, ch := range chans {
			ch <- d
		}
	}})
	var wg sync.WaitGroup
	for i := range mirrors {
		m := NewMirror(MirrorConfig{Holder: fmt.Sprint("h", i)})
		id, at, seq := f.Follow()
		m.Load(emptySet(), wire.SnapshotHead{Feed: id, At: at, Seq: seq})
		mirrors[i], chans[i] = m, make(chan wire.Delta, 16)
		sent := m.clock()
		g, err := f.Lease(wire.LeaseRequest{Holder: m.Holder(), Feed: id, At: at})
		if err != nil {
			t.Fatal(err)
		}
		m.Granted(m.Holder(), sent, g)
		wg.Go(func() {
			for d := range chans[i] {
				at, err := m.Apply(d)
				if err != nil {
					t.Error(err)
				}
				f.Ack(wire.DeltaAck{Holder: m.Holder(), Feed: id, At: at})
			}
		})
	}
	var committer sync.Mutex
	var seq uint64
	var putting sync.WaitGroup
	for w := range writers {
		putting.Go(func() {
			for i := range puts {
				pair := Pair([16]byte{byte(w)}, wire.TenantID(fmt.Sprint(i)), [32]byte{})
				committer.Lock()
				seq++
				f.Append(seq, []bloom.Hash{pair})
				at, _ := f.Position()
				committer.Unlock()
				if err := f.Await(t.Context(), at); err != nil {
					t.Error(err)
				}
				for _, m := range mirrors {
					if _, ok := m.Absent(pair); ok {
						t.Errorf("put %d of writer %d is denied", i, w)
					}
				}
			}
		})
	}
	putting.Wait()
	for _, ch := range chans {
		close(ch)
	}
	wg.Wait()
}

func BenchmarkAbsent(b *testing.B) {
	h := &hand{now: 1}
	m := loaded(h, 0)
	m.lease(h.now, 0)
	pair := bloom.Hash{A: 1 << 63, B: 5}
	b.ReportAllocs()
	for b.Loop() {
		m.Absent(pair, pair)
	}
}
