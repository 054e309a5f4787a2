package bloom

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// owner does all that an owner of a store may do to its filter, in any order.
type owner struct {
	mem     *vfs.MemFS
	set     *Set
	stored  [][32]byte
	durable int // how many of them no crash takes back

	rebuild *Rebuild
	scanned [][32]byte // what the rebuild has to be given, and has not been yet
	given   [][32]byte
}

func (o *owner) open(t *rapid.T) {
	store := Store{Identity: identity, Last: uint64(len(o.stored))}
	s, r, err := Load(disk{o.mem}, snapshots, fleet, store)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range o.stored[r.Seq:] {
		s.Add(k)
	}
	s.Complete()
	o.set, o.rebuild = s, nil
}

// TestNothingIsDeniedInAnyOrder runs random histories of adds, rebuilds that are
// given up, fail or succeed, snapshots, scrubs, rot in memory and on disk, and
// power cuts: no stored key is denied, but for the one whose bit rotted, until the
// scrub.
func TestNothingIsDeniedInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := uint64(0)
		mem := vfs.NewCrashableMem()
		if err := mem.MkdirAll(snapshots, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := (disk{mem}).SyncDir(""); err != nil {
			t.Fatal(err)
		}
		o := &owner{mem: mem}
		o.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				batch := make([][32]byte, rapid.IntRange(1, 400).Draw(t, "keys"))
				for i := range batch {
					next++
					batch[i] = key(next)
					o.set.Add(batch[i])
				}
				o.stored = append(o.stored, batch...)
				if rapid.Bool().Draw(t, "durable") {
					o.durable = len(o.stored)
				}
			},
			"start": func(t *rapid.T) {
				r, err := o.set.StartRebuild(uint64(rapid.IntRange(0, 5000).Draw(t, "capacity")))
				if (err != nil) != (o.rebuild != nil) {
					t.Fatalf("rebuilding %v, and another one: %v", o.rebuild != nil, err)
				}
				if err == nil {
					o.rebuild, o.scanned, o.given = r, slices.Clone(o.stored), nil
				}
			},
			"give": func(t *rapid.T) {
				if o.rebuild == nil {
					return
				}
				n := rapid.IntRange(0, len(o.scanned)).Draw(t, "n")
				o.rebuild.AddHash(hashes(o.set, o.scanned[:n]...)...)
				o.given = append(o.given, o.scanned[:n]...)
				o.scanned = o.scanned[n:]
			},
			"swap": func(t *rapid.T) {
				if o.rebuild == nil {
					return
				}
				// Too early as often as not. Then the sample, which has all keys, has one
				// that is denied, unless all of them are there by chance.
				err := o.rebuild.Swap(slices.Values(hashes(o.set, o.stored...)))
				if err != nil && len(o.scanned) == 0 {
					t.Fatal(err)
				}
				o.rebuild = nil
			},
			"cancel": func(*rapid.T) {
				if o.rebuild != nil {
					o.rebuild.Cancel()
					o.rebuild = nil
				}
			},
			"save": func(t *rapid.T) {
				if err := o.set.Save(disk{o.mem}, snapshots, mark(uint64(len(o.stored)))); err != nil {
					t.Fatal(err)
				}
			},
			"rot": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{fileCurrent, filePrevious}).Draw(t, "file")
				f, err := o.mem.OpenReadWrite(o.mem.PathJoin(snapshots, name), vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				var b [1]byte
				off := int64(rapid.IntRange(0, 4000).Draw(t, "off"))
				if _, err := f.ReadAt(b[:], off); err != nil {
					return
				}
				b[0] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				if _, err := f.WriteAt(b[:], off); err != nil {
					t.Fatal(err)
				}
			},
			"scrub": func(t *rapid.T) {
				if len(o.stored) == 0 {
					return
				}
				k := rapid.SampledFrom(o.stored).Draw(t, "key")
				g := o.set.state.Load().gens[rapid.IntRange(0, o.set.Generations()-1).Draw(t, "generation")]
				p := g.positions(o.set.Hash(k))[0]
				g.words[p/wordBits] &^= 1 << (p % wordBits)
				gone := 0
				for _, k := range o.stored {
					if o.set.Test(k) == Absent {
						gone++
					}
				}
				// What is mended may mend others: their bit is the same.
				if mended := o.set.Scrub(hashes(o.set, o.stored...)...); mended > gone || mended == 0 && gone > 0 {
					t.Fatalf("%d keys are denied, %d mended", gone, mended)
				}
				if o.set.Stats().Damaged && o.rebuild == nil { // no snapshot is made before it is rebuilt
					r, err := o.set.StartRebuild(0)
					if err != nil {
						t.Fatal(err)
					}
					r.AddHash(hashes(o.set, o.stored...)...)
					if err := r.Swap(slices.Values(hashes(o.set, o.stored...))); err != nil {
						t.Fatal(err)
					}
				} else {
					o.open(t) // as an owner who would rather start anew
				}
			},
			"cut": func(t *rapid.T) {
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				o.mem = o.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				o.stored = o.stored[:o.durable+rng.IntN(len(o.stored)-o.durable+1)]
				o.durable = len(o.stored)
				o.open(t)
			},
			"": func(t *rapid.T) {
				for i, k := range o.stored {
					if o.set.Test(k) != Maybe {
						t.Fatalf("record %d of %d is denied", i+1, len(o.stored))
					}
				}
			},
		})
	})
}
