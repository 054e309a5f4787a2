package bloom

import (
	"math"
	"testing"
)

// True negatives belong in the denominator of the observed rate: without them a
// filter that is hardly ever asked for what it has looks broken.
func TestObservedErrorRateCountsAbsentKeys(t *testing.T) {
	s := filled(Params{Capacity: MinCapacity, ErrorRate: 0.1}, 1000)
	if got := s.Stats(); got.ObservedErrorRate != 0 || got.Suspect {
		t.Errorf("nothing was tested: observed %v, suspect %v", got.ObservedErrorRate, got.Suspect)
	}
	const probes = 20_000
	falsely := uint64(0)
	for i := range uint64(probes) {
		if s.Test(key(1<<40+i)) == Maybe {
			s.Confirm(false)
			falsely++
		}
		if s.Test(key(i%1000)) == Maybe {
			s.Confirm(true)
		}
	}
	got := s.Stats()
	if got.Absent != probes-falsely || got.Maybe != probes+falsely || got.Confirmed != probes || got.FalsePositives != falsely {
		t.Errorf("counted %+v", got)
	}
	if want := float64(falsely) / probes; got.ObservedErrorRate != want || got.Suspect {
		t.Errorf("observed %v, want %v; estimated %v, suspect %v", got.ObservedErrorRate, want, got.EstimatedErrorRate, got.Suspect)
	}
	if math.Abs(got.ObservedErrorRate/got.EstimatedErrorRate-1) > 0.2 {
		t.Errorf("observed %v, estimated %v", got.ObservedErrorRate, got.EstimatedErrorRate)
	}
}

func TestSuspectNeedsEvidence(t *testing.T) {
	for _, tc := range []struct {
		tested, wrong, estimated float64
		want                     bool
	}{
		{10, 3, 0.001, false},
		{10, 10, 0.001, true},
		{1e6, 2000, 0.001, false},
		{1e6, 2500, 0.001, true},
		{1e6, 4, 1e-12, false},
		{1e6, 100, 1, false},
	} {
		if got := suspect(tc.tested, tc.wrong, tc.estimated); got != tc.want {
			t.Errorf("%+v", tc)
		}
	}
}
