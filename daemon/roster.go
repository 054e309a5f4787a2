package daemon

import "github.com/verae/archive/bus"

// initRoster makes an empty roster.
func initRoster(path string) error {
	r, err := bus.OpenRoster(bus.RosterConfig{Path: path, Create: true})
	if err != nil {
		return err
	}
	return r.Close()
}
