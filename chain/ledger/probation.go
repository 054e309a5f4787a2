package ledger

import (
	"errors"
	"os"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// restoredText is what is in the file that puts a ledger on probation.
const restoredText = "verae-restored/1: no witness has cosigned what this ledger was restored to\n"

// restoredFile is a file that is there from a restore until witnesses have
// cosigned what was restored. Whoever restored it may not know of seals that the
// witnesses know of; until then nothing is sealed that would take their places.
func (c Config) restoredFile() string { return c.path("ledger.restored") }

// beginProbation looks whether the ledger was restored and not witnessed yet.
func (l *Ledger) beginProbation() error {
	there, err := l.cfg.exists(l.cfg.restoredFile())
	if there {
		l.unwitnessed.Store(true)
		l.cfg.Log.Warn("the ledger was restored: it seals nothing new until the archives that are there have cosigned what it holds")
	}
	return err
}

// witnessed ends the probation.
func (l *Ledger) witnessed() error {
	if err := l.cfg.FS.Remove(l.cfg.restoredFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := pebblex.SyncDir(l.cfg.FS, l.cfg.Dir); err != nil {
		return err
	}
	l.unwitnessed.Store(false)
	l.cfg.Log.Info("the archives have cosigned what the ledger was restored to; it seals again")
	return nil
}

func errUnwitnessed() error {
	return fault.New(fault.Transient, "LEDGER_UNWITNESSED", "ledger: it was restored, and seals nothing new until an archive has cosigned what it holds; start the archives")
}

// probed answers the calls that would need a new seal while the ledger is on
// probation, and returns the others.
func (l *Ledger) probed(calls []*call, known map[wire.Digest]chain.Seal) []*call {
	if !l.unwitnessed.Load() {
		return calls
	}
	rest := calls[:0:0]
	for _, c := range calls {
		sealed := true
		for _, e := range c.entries {
			_, ok := known[e.Digest]
			sealed = sealed && ok
		}
		if sealed {
			rest = append(rest, c)
			continue
		}
		c.answer <- answer{err: errUnwitnessed()}
	}
	return rest
}

// endProbation ends the probation of the ledger if there are witnesses and all
// of them have cosigned what is shown.
func (c *Cosigning) endProbation() error {
	if !c.cfg.Ledger.unwitnessed.Load() {
		return nil
	}
	all := c.cfg.Witnesses.Present()
	for _, w := range all {
		if c.lines[w.ID] == "" {
			return nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	return c.cfg.Ledger.witnessed()
}
