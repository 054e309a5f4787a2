package daemon

import (
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
