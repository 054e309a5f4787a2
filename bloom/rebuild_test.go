package bloom

import (
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/verae/archive/internal/fault"
)

// numbered yields the keys from one number to below another.
func numbered(from, to uint64) iter.Seq[[32]byte] {
	return func(yield func([32]byte) bool) {
		for i := from; i < to && yield(key(i)); i++ {
		}
	}
}

// hashed yields the hashes of those keys in a set.
func hashed(s *Set, from, to uint64) iter.Seq[Hash] {
	return func(yield func(Hash) bool) {
		for i := from; i < to && yield(s.Hash(key(i))); i++ {
		}
	}
}

// hashes returns those of keys in a set.
func hashes(s *Set, keys ...[32]byte) (all []Hash) {
	for _, k := range keys {
		all = append(all, s.Hash(k))
	}
	return all
}

// rebuildIfNeeded does what an owner does whose store has the keys from 1 to n.
func rebuildIfNeeded(t *testing.T, s *Set, n uint64) {
	t.Helper()
	capacity, needed := s.NeedsRebuild()
	if !needed {
		return
	}
	r, err := s.StartRebuild(capacity)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(slices.Collect(hashed(s, 1, n+1)), 1000) {
		r.AddHash(part...)
	}
	if err := r.Swap(hashed(s, max(n, 100)-99, n+1)); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, s *Set) *Rebuild {
	t.Helper()
	r, err := s.StartRebuild(0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%v, want %s", err, code)
	}
}

// A set that outgrew its base gets one of the right size: one generation again,
// with room, half full at most.
func TestRebuildLeavesOneBase(t *testing.T) {
	s := New(Params{Capacity: MinCapacity, Rebuilds: true})
	s.Complete()
	if _, needed := s.NeedsRebuild(); needed {
		t.Error("an empty set wants a rebuild")
	}
	n := uint64(0)
	for needed := false; !needed; _, needed = s.NeedsRebuild() {
		n++
		s.Add(key(n))
	}
	if fill := s.Stats().BaseFill; fill < 0.4499 || fill > 0.46 {
		t.Errorf("a rebuild is asked for at a fill of %v", fill)
	}
	for ; s.Generations() < 3; n++ {
		s.Add(key(n + 1))
	}
	rebuildIfNeeded(t, s, n)
	stats := s.Stats()
	if stats.Generations != 1 || stats.BaseFill > 0.31 || stats.BaseFill < 0.25 || stats.Rebuilds != 1 || stats.Rebuilding {
		t.Errorf("after the rebuild: %+v", stats)
	}
	if stats.Keys < n*99/100 || stats.Keys > n {
		t.Errorf("%d keys counted of %d", stats.Keys, n)
	}
	for i := range n {
		if s.Test(key(i+1)) != Maybe {
			t.Fatalf("key %d is denied", i+1)
		}
	}
}

// Keys that come while the base is rebuilt are in the new one: those that are
// new, and those that the old base took for known by mistake.
func TestKeysAddedDuringARebuildAreInBothBases(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity, ErrorRate: 0.5, Rebuilds: true}, 500)
	var mistaken [][32]byte
	for i := uint64(1 << 20); len(mistaken) < 20; i++ {
		if s.Test(key(i)) == Maybe {
			mistaken = append(mistaken, key(i))
		}
	}
	r, err := s.StartRebuild(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range mistaken {
		s.Add(k)
	}
	for i := range uint64(2000) {
		s.Add(key(500 + i)) // opens generations meanwhile
	}
	if s.Generations() < 2 || !s.Stats().Rebuilding {
		t.Errorf("%d generations while rebuilding", s.Generations())
	}
	r.AddHash(slices.Collect(hashed(s, 0, 500))...)
	if err := r.Swap(hashed(s, 0, 2500)); err != nil {
		t.Fatal(err)
	}
	denied(t, s, 2500)
	for i, k := range mistaken {
		if s.Test(k) != Maybe {
			t.Errorf("mistaken key %d is denied: it was added only where it was taken for known", i)
		}
	}
}

// BL-01: until it is swapped in nothing is asked of a new base, and a rebuild
// that ends midway leaves all as it was.
func TestRebuildThatEndsMidwayDeniesNothing(t *testing.T) {
	const n = 10_000
	s := filled(Params{Capacity: n, Rebuilds: true}, n)
	r := start(t, s)
	r.AddHash(slices.Collect(hashed(s, 0, n/2))...)
	denied(t, s, n)

	// A stored key that the new base denies is found by the sample.
	wantCode(t, r.Swap(hashed(s, n/2-10, n/2+10)), "REBUILD_DENIES")
	denied(t, s, n)
	wantCode(t, r.Swap(hashed(s, 0, 0)), "REBUILD_OVER")
	if got := s.Stats(); got.Rebuilding || got.RebuildsFailed != 1 || got.Rebuilds != 0 {
		t.Errorf("after a rebuild that failed: %+v", got)
	}

	r = start(t, s)
	_, err := s.StartRebuild(0)
	wantCode(t, err, "REBUILDING")
	if _, needed := s.NeedsRebuild(); needed {
		t.Error("a rebuild is asked for while one is under way")
	}
	r.Cancel()
	r.Cancel()
	wantCode(t, r.Swap(hashed(s, 0, 0)), "REBUILD_OVER")
	denied(t, s, n)

	second := start(t, s)
	r.Cancel() // of the first, which is over
	second.AddHash(slices.Collect(hashed(s, 0, n))...)
	if err := second.Swap(hashed(s, 0, n)); err != nil {
		t.Fatal(err)
	}
	second.Cancel()
	denied(t, s, n)
}

func TestRebuildCompletesASet(t *testing.T) {
	s := New(Params{Capacity: MinCapacity})
	for i := range uint64(MinCapacity) {
		s.Add(key(1<<30 + i))
	}
	if _, needed := s.NeedsRebuild(); needed {
		t.Error("a rebuild is asked for while the set is being filled")
	}
	r := start(t, s)
	r.AddHash(s.Hash(key(0)))
	s.Add(key(1))
	if s.Test(key(2)) != Maybe {
		t.Error("a set that is not complete denies")
	}
	if err := r.Swap(hashed(s, 0, 2)); err != nil {
		t.Fatal(err)
	}
	denied(t, s, 2)
	if !s.Ready() || s.Test(key(2)) != Absent {
		t.Error("the set is not complete after a rebuild")
	}
}

// A store with a committer: keys become visible one batch after another.
type committing struct {
	mu      sync.Mutex
	visible [][32]byte
}

func (c *committing) commit(batch ...[32]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visible = append(c.visible, batch...)
}

// scan is what an iterator sees that is taken now.
func (c *committing) scan() [][32]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.visible)
}

// The order of the steps matters: begun between the Add and the commit of a key,
// a rebuild loses that key. The test would be worth nothing if it could not see
// that.
func TestRebuildBeginsBetweenTwoBatches(t *testing.T) {
	for _, midway := range []bool{false, true} {
		var store committing
		s := New(Params{Capacity: MinCapacity})
		s.Complete()
		var r *Rebuild
		var scanned [][32]byte
		for i := range uint64(100) {
			begin := i == 50
			if begin && !midway {
				r, scanned = start(t, s), store.scan()
			}
			s.Add(key(i))
			if begin && midway {
				r, scanned = start(t, s), store.scan()
			}
			store.commit(key(i))
		}
		r.AddHash(hashes(s, scanned...)...)
		err := r.Swap(slices.Values(hashes(s, store.scan()...)))
		if midway {
			wantCode(t, err, "REBUILD_DENIES")
		} else if err != nil {
			t.Error(err)
		}
		denied(t, s, 100)
	}
}

// Writers, a committer that begins rebuilds, builders that scan, and readers:
// nothing that was committed is ever denied. It is worth most under -race.
func TestRebuildBesideReadersAndWriter(t *testing.T) {
	n := uint64(60_000)
	if testing.Short() {
		n = 12_000
	}
	var store committing
	s := New(Params{Capacity: MinCapacity, Rebuilds: true})
	s.Complete()
	done := make(chan struct{})
	var readers, builders sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var verdicts []Verdict
			for {
				select {
				case <-done:
					return
				default:
				}
				keys := store.scan()
				keys = keys[max(len(keys), 300)-300:]
				verdicts = s.TestBatch(verdicts[:0], keys)
				if i := slices.Index(verdicts, Absent); i >= 0 {
					t.Errorf("key %x is denied", keys[i])
					return
				}
			}
		})
	}
	for i := uint64(0); i < n; i += 100 {
		if capacity, needed := s.NeedsRebuild(); needed {
			r, err := s.StartRebuild(capacity)
			if err != nil {
				t.Fatal(err)
			}
			scanned := hashes(s, store.scan()...)
			builders.Go(func() {
				for part := range slices.Chunk(scanned, 777) {
					r.AddHash(part...)
				}
				if err := r.Swap(slices.Values(scanned)); err != nil {
					t.Error(err)
				}
			})
		}
		batch := slices.Collect(numbered(i, i+100))
		for _, k := range batch {
			s.Add(k)
		}
		store.commit(batch...)
	}
	close(done)
	readers.Wait()
	builders.Wait()
	denied(t, s, n)
	if stats := s.Stats(); stats.Rebuilds < 2 {
		t.Errorf("%d rebuilds: nothing was tested", stats.Rebuilds)
	}
}

func TestRebuildKeepsWithinTheMemory(t *testing.T) {
	const limit = 40_000
	s := New(Params{Capacity: MinCapacity, MaxBytes: limit, Rebuilds: true})
	s.Complete()
	n := uint64(0)
	for ; n < 30_000; n++ {
		s.Add(key(n + 1))
		if n%64 == 0 {
			rebuildIfNeeded(t, s, n+1)
		}
		if s.Bytes() > limit {
			t.Fatalf("%d keys: %d bytes", n+1, s.Bytes())
		}
	}
	stats := s.Stats()
	if !stats.Degraded || stats.Rebuilds == 0 {
		t.Errorf("%+v", stats)
	}
	if _, err := s.StartRebuild(MaxCapacity); fault.CodeOf(err) != "FILTER_MEMORY" {
		t.Errorf("%v, want FILTER_MEMORY", err)
	}
	for i := range n {
		if s.Test(key(i+1)) != Maybe {
			t.Fatalf("key %d is denied", i+1)
		}
	}
}

// A base that was made for another error rate is rebuilt once.
func TestChangedErrorRateAsksForARebuild(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity}, 100)
	for rate, want := range map[float64]bool{DefaultErrorRate: false, DefaultErrorRate / 10: true, 0.1: true} {
		s.params.ErrorRate = rate
		if _, needed := s.NeedsRebuild(); needed != want {
			t.Errorf("error rate %v: %v", rate, needed)
		}
	}
}

// The observation of the error rate begins anew with a base.
func TestObservationBeginsAnewWithABase(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity}, 100)
	s.Test(key(1 << 30))
	for range 100 {
		s.Confirm(false)
	}
	if got := s.Stats(); !got.Suspect || got.ObservedErrorRate != 100.0/101 {
		t.Errorf("observed %v, suspect %v", got.ObservedErrorRate, got.Suspect)
	}
	r := start(t, s)
	r.AddHash(slices.Collect(hashed(s, 0, 100))...)
	if err := r.Swap(hashed(s, 0, 100)); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.Suspect || got.ObservedErrorRate != 0 || got.FalsePositives != 100 {
		t.Errorf("after a rebuild: observed %v, suspect %v, %d false positives", got.ObservedErrorRate, got.Suspect, got.FalsePositives)
	}
}

// A bit that rots in memory is found, mended, counted and reported.
func TestScrubFindsABitThatRotted(t *testing.T) {
	const n = 1000
	s := New(Params{Capacity: MinCapacity})
	if got := s.Scrub(s.Hash(key(1))); got != 0 || s.Stats().Scrubbed != 0 {
		t.Errorf("%d keys mended in a set that is not complete", got)
	}
	for i := range uint64(n) {
		s.Add(key(i))
	}
	s.Complete()
	if got := s.Scrub(slices.Collect(hashed(s, 0, n))...); got != 0 || s.Stats().Damaged {
		t.Errorf("%d keys mended in a sound set", got)
	}
	g := s.state.Load().gens[0]
	p := g.positions(s.Hash(key(7)))[3]
	g.words[p/wordBits] &^= 1 << (p % wordBits)
	if s.Test(key(7)) != Absent {
		t.Fatal("the bit does not count")
	}
	if got := s.Scrub(slices.Collect(hashed(s, 0, n))...); got < 1 || got > 50 {
		t.Errorf("%d keys mended", got)
	}
	denied(t, s, n)
	if got := s.TestBatch([]Verdict{s.Test(key(1 << 40))}, [][32]byte{key(1 << 40)}); s.Ready() || !s.Denied() || slices.Contains(got, Absent) {
		t.Errorf("a set that denied a key still denies: %v, ready %v", got, s.Ready())
	}
	stats := s.Stats()
	if !stats.Damaged || stats.Repaired == 0 || stats.Scrubbed != 2*n {
		t.Errorf("after a repair: damaged %v, %d repaired of %d", stats.Damaged, stats.Repaired, stats.Scrubbed)
	}
	rebuildIfNeeded(t, s, n)
	if s.Stats().Damaged || s.Stats().Rebuilds != 1 || !s.Ready() || s.Test(key(1<<40)) != Absent {
		t.Error("the rebuild that a damaged set needs did not mend it")
	}
}

// A hash that came from elsewhere, with the lowest bit of B cleared, is that of the
// same key wherever it is taken.
func TestHashesOfOthersAreTaken(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity}, 0)
	even := func(i uint64) Hash { h := s.Hash(key(i)); h.B &^= 1; return h }
	if s.Scrub(even(1)) != 1 || s.Scrub(s.Hash(key(1))) != 0 {
		t.Error("the scrub took two hashes for one key")
	}
	r := start(t, s)
	r.AddHash(s.Hash(key(1)), even(2))
	if err := r.Swap(slices.Values([]Hash{even(1), s.Hash(key(2))})); err != nil {
		t.Fatal(err)
	}
	if s.TestHash(s.Hash(key(2))) != Maybe || s.TestHash(even(2)) != Maybe || s.Test(key(3)) != Absent {
		t.Error("a hash was taken for another")
	}
}
