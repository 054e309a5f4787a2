package daemon

import (
	"strings"
	"testing"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/jobs"
)

// What an archive says itself that it lost is accounted for once, and again after
// a repair, also if that left as many stubs as there were: they may stand for
// other records.
func TestOwnLossIsOneOfItsProcess(t *testing.T) {
	told := bus.Member{ID: "archive-a", Boot: "1", Stubs: 5, Accepted: 1}
	first := ownLoss(&told)
	if again := ownLoss(&told); again != first || first.Archive != told.ID {
		t.Errorf("%+v, then %+v", first, again)
	}
	if first.Boot != "" {
		t.Errorf("%+v is to be told to the roster, which trusts the archive", first)
	}
	seen := map[jobs.Loss]bool{first: true}
	for name, change := range map[string]func(*bus.Member){
		"repaired":         func(m *bus.Member) { m.Boot = "2" },
		"one is back":      func(m *bus.Member) { m.Stubs = 4 },
		"a new generation": func(m *bus.Member) { m.Accepted = 2 },
	} {
		m := told
		change(&m)
		if l := ownLoss(&m); seen[l] {
			t.Errorf("%s: %+v again", name, l)
		}
	}
}

// While two processes use one id, neither is to be accepted: one has to stop.
func TestAdviceAboutTwoProcessesIsToStopOne(t *testing.T) {
	waiting := &bus.Waiting{Generation: 3, Key: "KEY"}
	for name, tc := range map[string]struct {
		state   string
		twin    *bus.Twin
		waiting *bus.Waiting
		says    []string
	}{
		"of one generation":   {bus.StateQuarantined, &bus.Twin{Generation: 2, Boot: "b"}, nil, []string{"boot a (generation 2) and boot b (generation 2)", "Stop the one"}},
		"one is newer":        {bus.StateQuarantined, &bus.Twin{Generation: 3, Boot: "b"}, waiting, []string{"boot b (generation 3)", "Stop one of the two"}},
		"one is newer, lost":  {bus.StateLost, &bus.Twin{Generation: 3, Boot: "b"}, waiting, []string{"Stop one of the two"}},
		"one is older":        {bus.StateQuarantined, &bus.Twin{Generation: 1, Boot: "b"}, nil, []string{"Stop the second"}},
		"the first has ended": {bus.StateUnaccepted, &bus.Twin{Generation: 3, Boot: "b"}, waiting, []string{"accept archive-a/g3"}},
	} {
		got := advice(&bus.Member{ID: "archive-a", State: tc.state, Generation: 2, Boot: "a", Accepted: 2, Twin: tc.twin, Waiting: tc.waiting, Lost: &bus.Loss{}})
		for _, want := range tc.says {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", name, got, want)
			}
		}
	}
}
