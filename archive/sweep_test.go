package archive

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// TestCrashAtEveryOperation takes the power away before one operation after the
// other of a busy archive, from its opening to its end, with flushes and marks
// between them. What was not synced is lost, kept, or half of it is, at random.
// The archive opens again, and has all that it had acknowledged.
func TestCrashAtEveryOperation(t *testing.T) {
	const writers = 3
	records := need.Rounds(8, 60)
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	mem := vfs.NewCrashableMem()
	mustInit(t, testConfig(mem, "archive-a"))
	disk := faultfs.New(mem)
	c := testConfig(disk, "archive-a")
	c.MemTableSize = 64 << 10

	var j journal
	var one sync.Mutex // guards rng and points, and has one crash looked at at a time
	points, kept := 0, 0
	disk.Fail(func(p faultfs.Point) faultfs.Outcome {
		if p.Op == faultfs.OpRead || testing.Short() && p.N%5 > 0 {
			return faultfs.Outcome{}
		}
		one.Lock()
		defer one.Unlock()
		known := j.copy()
		for range need.Rounds(1, 3) {
			percent := []int{0, 50, 100}[rng.IntN(3)]
			survived(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), known)
			points++
			kept += len(known)
		}
		return faultfs.Outcome{}
	})
	for life := range 2 {
		n := mustOpen(t, c)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range records {
					put := wire.Put{PutID: wire.NewPutID(), Checkpoint: i%5 == 4, Record: metadata(alice, digest(fmt.Sprint(life, w, i)), fmt.Sprintf(`{"n":%q}`, strings.Repeat("x", 600*(1+i%4))))}
					ack, err := n.Put(t.Context(), put)
					if err != nil {
						t.Errorf("put: %v", err)
						return
					}
					j.add(put, ack.Seq)
				}
			})
		}
		wg.Wait()
		mustClose(t, n)
	}
	disk.Fail(nil)
	survived(t, mem.CrashClone(vfs.CrashCloneCfg{}), j.copy())
	t.Logf("%d crashes at %d operations, %d acknowledged records looked up, 0 lost (seed %d)", points, disk.Ops(), kept, seed)
	if points < 30 {
		t.Errorf("only %d crashes", points)
	}
}
