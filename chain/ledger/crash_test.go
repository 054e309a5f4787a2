package ledger

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
)

// world is the clients' side of a crash loop: documents they ask for, and what
// they were given.
type world struct {
	mu      sync.Mutex
	given   map[int]receipt
	answers chan struct{} // one for each answered call, while somebody waits
}

// awaitAnswers returns when n more calls have been answered.
func (w *world) awaitAnswers(n int) {
	for range n {
		<-w.answers
	}
}

// snapshot copies what the clients hold.
func (w *world) snapshot() held {
	w.mu.Lock()
	defer w.mu.Unlock()
	return held(maps.Clone(w.given))
}

// client registers documents until ctx ends: some of its own, some that all
// clients want, in calls of one to four entries.
func (w *world) client(ctx context.Context, t *testing.T, l *Ledger, rng *rand.Rand, documents int) {
	for ctx.Err() == nil {
		var numbers []int
		var entries []chain.Entry
		for range 1 + rng.IntN(4) {
			n := rng.IntN(documents)
			numbers, entries = append(numbers, n), append(entries, chaintest.Entry(n))
		}
		seals, err := l.Register(ctx, entries)
		if err != nil {
			return // cancelled; perhaps sealed, perhaps not
		}
		for i, n := range numbers {
			cert, err := l.Certificate(context.WithoutCancel(ctx), seals[i])
			if err != nil {
				t.Errorf("document %d: %v", n, err)
				return
			}
			w.mu.Lock()
			if first, ok := w.given[n]; ok && first != (receipt{seals[i], cert}) {
				t.Errorf("document %d has two receipts:\n%+v\n%+v", n, first.seal, seals[i])
			}
			w.given[n] = receipt{seals[i], cert}
			w.mu.Unlock()
		}
		select {
		case w.answers <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// TestCrashLosesNoReceipt crashes a ledger under load again and again, with a
// random share of what was not synced kept. After each crash the ledger checks
// out, and every receipt that a client held before it is got again, byte for
// byte. Documents that were under way are asked for again by the next round.
func TestCrashLosesNoReceipt(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	const clients = 4
	rng := rand.New(rand.NewPCG(20260301, 1))
	mem := vfs.NewCrashableMem()
	cfg := testConfig(mem)
	cfg.GuardEvery = time.Millisecond
	initLedger(t, cfg)
	w := &world{given: map[int]receipt{}, answers: make(chan struct{}, 1)}
	for round := range rounds {
		l, err := Open(cfg)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := l.Check(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		held(w.given).unchanged(t, l)

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range clients {
			mine := rand.New(rand.NewPCG(rng.Uint64(), 0))
			wg.Go(func() { w.client(ctx, t, l, mine, 30+round) })
		}
		w.awaitAnswers(rng.IntN(30))
		before := w.snapshot()
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rand.New(rand.NewPCG(rng.Uint64(), 0))})
		cancel()
		wg.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		w.given, mem, cfg.FS = before, after, after
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	if len(w.given) < rounds/2 {
		t.Errorf("only %d documents in %d rounds: the load was too light to prove anything", len(w.given), rounds)
	}
}
