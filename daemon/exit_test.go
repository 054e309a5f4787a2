package daemon

import (
	"testing"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/serve"
)

// A store that fails ends the process with one code, whoever ends it.
func TestTheExitCodeOfAFailedStoreIsOne(t *testing.T) {
	if pebblex.ExitCode != serve.ExitStoreFailed {
		t.Errorf("pebblex exits with %d, the programs with %d", pebblex.ExitCode, serve.ExitStoreFailed)
	}
}
