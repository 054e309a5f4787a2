package bus

import (
	"fmt"
	"testing"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/boottime"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// mirrored returns mirrors of n archives, trusted, each with keys pairs.
func mirrored(b testing.TB, n, keys int) (*Mirrors, *bench, []wire.ArchiveID) {
	b.Helper()
	r := newBench(b, RosterConfig{Open: true})
	m := &Mirrors{roster: r.Roster, cfg: MirrorConfig{Secret: fleetKey, Clock: boottime.Now}, public: mirror.ViewerKey(fleetKey.Key, wire.Public)}
	followers := map[wire.ArchiveID]*follower{}
	var ids []wire.ArchiveID
	for i := range n {
		id := wire.ArchiveID(fmt.Sprintf("archive-%02d", i))
		r.say(helloOf(string(id), "boot1"))
		set := bloom.New(bloom.Params{Secret: fleetKey, Capacity: uint64(keys)})
		for k := range keys {
			set.AddHash(mirror.Pair(fleetKey.Key, tenantA, digestOf(fmt.Sprint(id, k))))
		}
		set.Complete()
		c := &copied{mirror: mirror.NewMirror(mirror.MirrorConfig{Holder: "bench"}), set: set, boot: "boot1", feed: "boot1.1"}
		c.mirror.Load(set, wire.SnapshotHead{ArchiveID: id, Feed: c.feed, At: 1, Seq: 1})
		c.mirror.Granted(c.mirror.Holder(), boottime.Now(), wire.LeaseGrant{ArchiveID: id, Feed: c.feed, LeaseMs: wire.MaxLeaseMs})
		f := newFollower(&Mirrors{work: b.Context()}, id)
		f.serving.Store(c)
		followers[id], ids = f, append(ids, id)
	}
	m.followers.Store(&followers)
	return m, r, ids
}

func TestSilentAllocatesItsAnswerOnly(t *testing.T) {
	m, _, ids := mirrored(t, 3, 100)
	digest := digestOf("nobody has it")
	if n := len(m.Silent(tenantA, digest, ids)); n != 3 {
		t.Fatalf("%d of 3 are silent", n)
	}
	if n := testing.AllocsPerRun(1000, func() { m.Silent(tenantA, digest, ids) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
	if s := m.Silent(tenantA, digestOf(fmt.Sprint(ids[1], 7)), ids); len(s) > 2 {
		t.Errorf("%+v", s)
	}
}

// What the roster knows of an archive ends the belief in its mirror at once, whatever
// lease there is.
func TestTheRosterEndsTheBeliefInAMirror(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*bench)
		silent  int
	}{
		"nothing":           {func(*bench) {}, 2},
		"a missed hello":    {func(b *bench) { b.now = b.now.Add(2 * HelloInterval) }, 2},
		"it is not heard":   {func(b *bench) { b.now = b.now.Add(HelloTimeout + 1); b.say(helloOf("archive-01", "boot1")) }, 1},
		"it started anew":   {func(b *bench) { b.say(helloOf("archive-00", "boot2")) }, 1},
		"two use its id":    {func(b *bench) { b.say(helloOf("archive-00", "boot2"), helloOf("archive-00", "boot1")) }, 1},
		"it came with less": {func(b *bench) { h := helloOf("archive-00", "boot2"); h.Seq = 1; b.say(h) }, 1},
		"it was proved wrong": {func(b *bench) {
			h := helloOf("archive-00", "boot1")
			h.State, h.Reason = wire.StateReadonly, "ROLLED_BACK"
			b.say(h)
		}, 1},
		"it takes no records": {func(b *bench) {
			h := helloOf("archive-00", "boot1")
			h.State, h.Reason = wire.StateReadonly, "DISK_FULL"
			b.say(h)
		}, 2},
		"it is retired": {func(b *bench) { wantNil(b.t, b.Retire("archive-00")) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m, b, ids := mirrored(t, 2, 10)
			tc.happens(b)
			if s := m.Silent(tenantA, digestOf("x"), ids); len(s) != tc.silent || s[len(s)-1].ID != ids[1] {
				t.Errorf("silent: %+v; want %d of 2", s, tc.silent)
			}
		})
	}
}

func wantNil(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkSilent(b *testing.B) {
	for _, n := range []int{3, 64} {
		m, _, ids := mirrored(b, n, 100_000)
		digests := make([]wire.Digest, 1024)
		for i := range digests {
			digests[i] = digestOf(fmt.Sprint("absent ", i))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				m.Silent(tenantA, digests[i%len(digests)], ids)
				i++
			}
		})
	}
}

// What it costs a put that aggregators are waited for: none, one, three.
func BenchmarkPutWithHolders(b *testing.B) {
	for _, n := range []int{0, 1, 3} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := newViewsNode(b, "archive-a", "boot1", fleetKey, testLease)
			g := newGallery(b, a)
			w := g.aggregator(nil)
			for range n - 1 {
				g.aggregator(nil)
			}
			if n == 0 {
				wantNil(b, w.mirrors.Close())
				eventually(b, "no lease is out", a.feed.Idle)
			} else {
				for _, w := range g.watch {
					w.trusts(b, "archive-a")
				}
			}
			eventually(b, "the archive takes puts", func() bool { return w.roster.Reachable() == 1 })
			i := 0
			for b.Loop() {
				g.put(w, "archive-a", fmt.Sprint(i))
				i++
			}
		})
	}
}
