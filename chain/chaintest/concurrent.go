package chaintest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/verae/archive/chain"
)

func hundredGoroutines(t *testing.T, f Factory) {
	c := open(t, f)
	const n = 100
	var (
		wg    sync.WaitGroup
		start = make(chan struct{})
		ids   = Entries(0, n)
		seals [n]chain.Seal
		certs [n]string
		errs  [n]error
	)
	for i := range n {
		ids[i].Digest = Digest(0)
		wg.Go(func() {
			<-start
			got, err := c.Ledger.Register(t.Context(), ids[i:i+1])
			if err != nil {
				errs[i] = err
				return
			}
			seals[i] = got[0]
			certs[i], errs[i] = c.Ledger.Certificate(t.Context(), got[0])
		})
	}
	close(start)
	wg.Wait()
	owner := -1
	for i := range n {
		if errs[i] != nil {
			t.Fatalf("goroutine %d: %v", i, errs[i])
		}
		same(t, seals[0], seals[i])
		if certs[i] != certs[0] {
			t.Fatalf("goroutine %d holds another certificate", i)
		}
		if seals[0].JobID == ids[i].JobID {
			owner = i
		}
	}
	if owner < 0 || seals[0].SubmissionID != ids[owner].SubmissionID || seals[0].FileID != ids[owner].FileID {
		t.Errorf("the seal %+v mixes the ids of several entries", seals[0])
	}
	if err := Verify(certs[0], seals[0], c.VerifierKey); err != nil {
		t.Error(err)
	}
	if next := register(t, c.Ledger, Entry(1))[0]; next.LeafIndex != 1 {
		t.Errorf("%d goroutines made %d leaves of one digest", n, next.LeafIndex)
	}
}

func overlappingCalls(t *testing.T, f Factory) {
	c := open(t, f)
	const digests, callers, calls = 40, 16, 8
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = map[int]chain.Seal{}
	)
	for w := range callers {
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		wg.Go(func() {
			for range calls {
				var entries []chain.Entry
				var numbers []int
				for range 1 + rng.IntN(6) {
					numbers = append(numbers, rng.IntN(digests))
					entries = append(entries, Entry(numbers[len(numbers)-1]))
				}
				seals, err := c.Ledger.Register(t.Context(), entries)
				if err != nil || len(seals) != len(entries) {
					t.Errorf("%d seals for %d entries, %v", len(seals), len(entries), err)
					return
				}
				mu.Lock()
				for i, n := range numbers {
					if first, ok := seen[n]; ok && first != seals[i] {
						t.Errorf("document %d has two seals:\n%+v\n%+v", n, first, seals[i])
					}
					seen[n] = seals[i]
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	leaves := make([]bool, len(seen))
	for n, s := range seen {
		if s.LeafIndex >= int64(len(seen)) || leaves[s.LeafIndex] || s.Digest != Digest(n) {
			t.Fatalf("%d digests, but document %d has leaf %d", len(seen), n, s.LeafIndex)
		}
		leaves[s.LeafIndex] = true
		same(t, s, lookUp(t, c.Ledger, s.Digest))
	}
}

// cancelledCall: whatever a cancelled call did, looking up and trying again ends
// with one seal.
func cancelledCall(t *testing.T, f Factory) {
	c := open(t, f)
	for n := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan []chain.Seal, 1)
		first := Entry(n)
		go func() {
			defer close(done)
			if seals, err := c.Ledger.Register(ctx, []chain.Entry{first}); err == nil {
				done <- seals
			}
		}()
		if n%3 > 0 { // before, during or after: whichever way the race goes
			cancel()
		}
		seals, answered := <-done
		cancel()
		second := Entry(n)
		got, err := chain.SealOnce(t.Context(), c.Ledger, []chain.Entry{second})
		if err != nil {
			t.Fatal(err)
		}
		if answered {
			same(t, seals[0], got[0])
		}
		if got[0].JobID != first.JobID && got[0].JobID != second.JobID {
			t.Errorf("document %d belongs to a job that nobody named", n)
		}
	}
	if s := register(t, c.Ledger, Entry(1000))[0]; s.LeafIndex != 50 {
		t.Errorf("50 digests made %d leaves", s.LeafIndex)
	}
}
