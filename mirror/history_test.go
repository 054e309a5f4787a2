package mirror

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verae/archive/internal/need"
)

// TestLaw6NoMirrorDeniesWhatWasAcknowledged lives many histories.
func TestLaw6NoMirrorDeniesWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	first, rounds := uint64(1), need.Rounds(2_000, 1_000_000)
	var acked, asked, believed atomic.Uint64
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= uint64(rounds) || t.Failed() {
					return
				}
				h := live(first+i, "")
				if h.lie != "" {
					t.Error(h.lie)
				}
				acked.Add(uint64(h.acked))
				asked.Add(uint64(h.asked))
				believed.Add(uint64(h.believed))
			}
		})
	}
	wg.Wait()
	t.Logf("%d histories from seed %d: %d puts acknowledged, %d questions, %d of them answered from a believed mirror, 0 denied", rounds, first, acked.Load(), asked.Load(), believed.Load())
	if believed.Load() < asked.Load()/5 {
		t.Errorf("mirrors were believed in %d of %d questions: there is nothing to show", believed.Load(), asked.Load())
	}
}

// TestHistoriesSeeABrokenRule: each rule is needed, and the histories would show
// that it is missing. Where that takes luck, from is a seed that has it.
func TestHistoriesSeeABrokenRule(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule string
		from uint64
		what string
	}{
		{"grace", 0, "an archive acknowledges at once after a restart"},
		{"gate", 0, "an archive waits for nobody"},
		{"need", 500, "a lease is relied on before the mirror has what was there when it was given"},
		{"sent", 7_300, "a lease is counted from when it came"},
		{"share", 0, "a lease is relied on for longer than it is"},
		{"order", 0, "what is added is told after it was acknowledged"},
		{"gap", 0, "what did not come is passed over"},
		{"follow", 0, "a copy claims more than was in the filter when it was begun"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			for seed := tc.from; seed < tc.from+20_000; seed++ {
				if h := live(seed, tc.rule); h.lie != "" {
					t.Log(h.lie)
					return
				}
			}
			t.Errorf("nobody sees in 20,000 histories that %s", tc.what)
		})
	}
}
