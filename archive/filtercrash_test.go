package archive

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// TestLaw4SurvivesPowerCuts cuts the power of an archive while it takes records,
// stores its filters and rebuilds them, and opens what is left, again and again: in
// lives of ten a store. Of what was not synced all is kept, as after a kill, or a
// part, or nothing. No acknowledged record is denied by the filters or a query, to
// none of its viewers: not when the archive has just opened, not when its index was
// read, not when it has taken more. VERAE_LONG=true: a thousand kills and ten thousand cuts.
func TestLaw4SurvivesPowerCuts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	kills, cuts := need.Rounds(20, 1_000), need.Rounds(300, 10_000)
	if testing.Short() {
		kills, cuts = 10, 50
	}
	sum := manyLives(t, rng, kills, cuts, "")
	if sum.denied > 0 {
		t.Errorf("%d times a stored record was denied", sum.denied)
	}
	t.Logf("%d kills and %d cuts: %d records looked up; %d starts from a snapshot, %d of them complete at once, %d keys replayed; %d snapshots, %d rebuilds",
		kills, cuts, sum.looked, sum.loaded, sum.atOnce, sum.replayed, sum.saved, sum.rebuilt)
	if sum.loaded == 0 || sum.replayed == 0 || sum.rebuilt == 0 || sum.atOnce == 0 {
		t.Error("the lives show too little")
	}
}

// The same lives show a snapshot that claims records which came after it.
func TestPowerCutsSeeAWrongSnapshot(t *testing.T) {
	for _, wrong := range []string{"keys", "views"} {
		if manyLives(t, rand.New(rand.NewPCG(1, 4)), 40, 0, wrong).denied == 0 {
			t.Errorf("%s: nothing was denied", wrong)
		}
	}
}

// manyLives has so many kills and then power cuts, ten a store. Every snapshot of
// the filter wrong claims all that the archive has at the end of a life.
func manyLives(t testing.TB, rng *rand.Rand, kills, cuts int, wrong string) (sum lifeCounts) {
	var store *filterLives
	for life := range kills + cuts {
		if life%10 == 0 {
			if store != nil {
				sum.add(store.lifeCounts)
			}
			store = newFilterLives(t, rng)
			store.wrong = wrong
		}
		kept := 100
		if life >= kills {
			kept = []int{0, 50, 100}[rng.IntN(3)]
		}
		store.live(kept)
	}
	sum.add(store.lifeCounts)
	return sum
}

// filterLives is one store from one power cut to the next.
type filterLives struct {
	t    testing.TB
	rng  *rand.Rand
	disk *vfs.MemFS
	journal
	puts int

	wrong string // see manyLives
	lifeCounts
}

type lifeCounts struct {
	looked, denied, loaded, atOnce, saved, rebuilt int
	replayed                                       uint64
}

func newFilterLives(t testing.TB, rng *rand.Rand) *filterLives {
	l := &filterLives{t: t, rng: rng, disk: vfs.NewCrashableMem()}
	mustInit(t, testConfig(l.disk, "archive-a"))
	return l
}

func (l *lifeCounts) add(b lifeCounts) {
	l.looked, l.loaded, l.atOnce, l.saved, l.rebuilt = l.looked+b.looked, l.loaded+b.loaded, l.atOnce+b.atOnce, l.saved+b.saved, l.rebuilt+b.rebuilt
	l.denied, l.replayed = l.denied+b.denied, l.replayed+b.replayed
}

// live opens the store, lets two writers and the keeper of the filter work beside
// one another, and cuts the power in the middle, or after an orderly end.
func (l *filterLives) live(kept int) {
	l.t.Helper()
	c := testConfig(l.disk, "archive-a")
	c.MemTableSize = 32 << 10 // so that flushes happen
	n, err := Open(c)
	must1(l.t, err)
	for _, f := range n.filters() {
		if f.loaded {
			l.loaded++
			if f.set.Ready() {
				l.atOnce++
			}
		}
	}
	l.look(n, "when it opens")
	<-n.Loaded()
	for _, f := range n.filters() {
		if s := f.set.Stats(); !s.Ready && s.Repaired == 0 {
			l.t.Fatalf("%s: %+v", f.name, s)
		} else {
			l.denied += int(s.Repaired)
		}
	}
	l.look(n, "when it is loaded")

	ctx, stop := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	records, work, tended := 1+l.rng.IntN(12), l.rng.IntN(4), n.filters()[l.rng.IntN(2)]
	for w := range 2 {
		wg.Go(func() {
			for i := range records {
				put := numbered(w, l.puts+i)
				put.Record.ShareWith = [][]wire.Share{nil, {{TenantID: carol, Mode: wire.ModeProofs}}, {{TenantID: wire.Public, Mode: wire.ModeFiles}}}[i%3]
				ack, err := n.Put(ctx, put)
				if err != nil {
					return
				}
				l.journal.add(put, ack.Seq)
			}
		})
	}
	wg.Go(func() {
		if work >= 2 {
			if err := tended.rebuild(ctx, 2000, tended.fill); err == nil {
				l.rebuilt++
			}
		} else if work == 1 && tended.save() == nil {
			l.saved++
		}
	})
	orderly := l.rng.IntN(4) == 0
	if orderly || l.rng.IntN(2) == 0 {
		wg.Wait()
	}
	if orderly {
		mustClose(l.t, n)
	}
	for _, f := range n.filters() {
		if l.wrong == f.name && !orderly {
			l.claim(n, f)
		}
	}
	known := l.journal.copy()
	crashed := l.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: l.rng})
	wg.Wait()
	stop()
	l.replayed += n.keys.replayed.Load() + n.views.replayed.Load()
	if !orderly {
		mustClose(l.t, n)
	}
	l.disk, l.acked, l.puts = crashed, known, l.puts+records
}

// look asks for every acknowledged record.
func (l *filterLives) look(n *Node, when string) {
	l.t.Helper()
	for _, a := range l.journal.copy() {
		r := a.put.Record
		l.looked++
		got := ask(l.t, n, r.TenantID, r.SHA256)
		who := deniesPair(n, r)
		if n.Absent(r.SHA256) || n.Absent(wire.Digest(r.ID())) || len(got) == 0 || got[0] != r.ID() || who != "" {
			l.denied++
			if l.wrong == "" {
				l.t.Errorf("%s seq %d is answered %v, denied to %q", when, a.seq, got, who)
			}
		}
	}
}

// claim makes the snapshot on disk one that says it has every record there is.
func (l *filterLives) claim(n *Node, f *filter) {
	l.t.Helper()
	fs := filterFS{l.disk}
	set, _, err := bloom.Load(fs, f.dir, f.params(), bloom.Store{Identity: f.identity(), Last: 1 << 40})
	must1(l.t, err)
	seq := n.durable.Load()
	head, err := n.headAt(seq)
	must1(l.t, err)
	set.Complete()
	if err := set.Save(fs, f.dir, bloom.Mark{Identity: f.identity(), Seq: seq, Head: head}); err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
}

// TestFilterOfAnotherLife: what was stored of records that a crash took is not
// believed when others have their numbers. The store goes back to an older state
// beside snapshots that went on, and grows past them.
func TestFilterOfAnotherLife(t *testing.T) {
	for name, lost := range map[string]int{"fewer records": 3, "as many": 8, "more": 20} {
		older := filtered(t, nil, upTo(10)...)
		ahead := filtered(t, older, func() (all []int) {
			for i := range 8 {
				all = append(all, 500+7*i)
			}
			return all
		}()...)
		now := filtered(t, older.with(ahead, "filters/"), upTo(10 + lost)[10:]...)
		for _, snapshots := range []image{now, ahead} { // as they are, and put back once more
			fs := now.with(snapshots, "filters/").disk(t, "", nil)
			n, err := Open(filterConfig(fs))
			must1(t, err)
			deniesNone(t, n, 10+lost)
			<-n.Loaded()
			deniesNone(t, n, 10+lost)
			for _, f := range n.filters() {
				if s := f.set.Stats(); s.Repaired > 0 || !s.Ready {
					t.Errorf("%s, %s: %+v", name, f.name, s)
				}
			}
			mustClose(t, n)
		}
	}
}

// A backup has no snapshots, and what is restored of it builds its filter anew
// under a key of its own.
func TestBackupLeavesFiltersOut(t *testing.T) {
	fs := vfs.NewMem()
	b := newBackedUp(t, fs)
	must1(t, errors.Join(b.n.keys.save(), b.n.views.save()))
	must1(t, b.backup("another"))
	for path := range readTree(t, fs, "another") {
		if strings.Contains(path, "filter") {
			t.Errorf("the backup has %s", path)
		}
	}
	c, _, err := restore(b.c, "another", "restored", nil)
	must1(t, err)
	own, err := fs.Stat(c.filterKeyPath())
	if err != nil || own.Size() == 0 {
		t.Errorf("the restored archive has no filter key of its own: %v", err)
	}
	c.Lease = 1
	n, err := Open(c)
	must1(t, err)
	defer mustClose(t, n)
	if !n.keys.set.Ready() || !n.views.set.Ready() {
		t.Error("the restore did not leave a filter")
	}
	<-n.Loaded()
	holds(t, n, b.puts)
	for _, f := range n.filters() {
		if s := f.set.Stats(); s.Repaired > 0 {
			t.Errorf("%s: %+v", f.name, s)
		}
	}
}
