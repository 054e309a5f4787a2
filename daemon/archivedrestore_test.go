package daemon

import (
	"context"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// fleetOf is what a restore can hear: archives, and perhaps an aggregator.
type fleetOf struct {
	alive      []wire.ArchiveID
	remembered []wire.Remembered
	silent     error // of the archives
	noRoster   error // of the aggregator
	asked      int   // times that the aggregator was asked apart
}

func (f *fleetOf) Alive() []wire.ArchiveID { return f.alive }

func (f *fleetOf) Remembered(context.Context, wire.ArchiveID) ([]wire.Remembered, error) {
	return f.remembered, f.silent
}

func (f *fleetOf) Roster(context.Context) (wire.RosterReply, error) {
	f.asked++
	return wire.RosterReply{}, f.noRoster
}

// A restore goes on when anybody says what he remembers, were it nothing, and
// asks nobody twice who told something.
func TestRestoreAsksWhoRemembers(t *testing.T) {
	silence := fault.New(fault.Transient, "TIMEOUT", "nobody answers")
	for name, tc := range map[string]struct {
		fleet fleetOf
		asked int
		fails bool
	}{
		"an archive remembers":               {fleet: fleetOf{alive: []wire.ArchiveID{"b"}, remembered: make([]wire.Remembered, 1), noRoster: silence}},
		"an archive remembers nothing":       {fleet: fleetOf{alive: []wire.ArchiveID{"b"}, noRoster: silence}},
		"an aggregator remembers, and alone": {fleet: fleetOf{remembered: make([]wire.Remembered, 2)}},
		"an aggregator remembers nothing":    {fleet: fleetOf{}, asked: 1},
		"nobody is there":                    {fleet: fleetOf{noRoster: silence}, asked: 1, fails: true},
		"nobody answers":                     {fleet: fleetOf{alive: []wire.ArchiveID{"b"}, silent: silence, noRoster: silence}, fails: true},
	} {
		list, err := askAll(t.Context(), &tc.fleet, "a")
		if (fault.CodeOf(err) == "NOBODY_ANSWERS") != tc.fails || tc.fails != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if len(list) != len(tc.fleet.remembered) || tc.fleet.asked != tc.asked {
			t.Errorf("%s: %d memories, the aggregator was asked %d times more", name, len(list), tc.fleet.asked)
		}
	}
}
