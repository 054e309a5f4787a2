package ledger

import (
	"context"
	"errors"
	"os"
	"time"

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
	return fault.New(fault.Transient, "LEDGER_UNWITNESSED", "ledger: it was restored, and neither seals anything new nor denies a seal until an archive has cosigned what it holds; start the archives")
}

// startWait is the short probation of every start. A ledger that is opened from
// an older copy of everything, its guard included, can not tell; its witnesses
// can, but have to be heard first. A seal given out before that could take the
// place of one that is lost.
type startWait struct {
	over chan struct{} // closed by release
}

// errHeld answers a call that must wait for the end of the start's probation.
var errHeld = errors.New("ledger: held at the start")

// hold begins the probation of a start. One that was restored has the stricter
// one already, which no time ends.
func (l *Ledger) hold() {
	if !l.unwitnessed.Load() {
		l.held.Store(&startWait{over: make(chan struct{})})
	}
}

// release ends the probation of a start.
func (l *Ledger) release() {
	if w := l.held.Swap(nil); w != nil {
		close(w.over)
	}
}

// awaitStart returns without error once the start's probation is over.
func (l *Ledger) awaitStart(ctx context.Context) error {
	w := l.held.Load()
	if w == nil {
		return nil
	}
	select {
	case <-w.over:
		return nil
	case <-l.stopped:
		return l.stopError()
	case <-ctx.Done():
		return fault.New(fault.Transient, "LEDGER_UNWITNESSED", "ledger: it has just started, and waits for the archives to cosign what it holds: %w", ctx.Err())
	}
}

// probed answers the calls that would need a new seal while the ledger is on
// probation, and returns the others.
func (l *Ledger) probed(calls []*call, known map[wire.Digest]chain.Seal) []*call {
	var instead error
	switch {
	case l.unwitnessed.Load():
		instead = errUnwitnessed()
	case l.held.Load() != nil:
		instead = errHeld
	default:
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
		c.answer <- answer{err: instead}
	}
	return rest
}

// endProbation ends the probation of the ledger, if it is on one: that of a
// restore when there are witnesses and all of them have cosigned what is shown,
// that of a start as endStart says. begun is when the round began that asked.
func (c *Cosigning) endProbation(begun time.Time) error {
	l := c.cfg.Ledger
	restored := l.unwitnessed.Load()
	if !restored && l.held.Load() == nil {
		return nil
	}
	all := c.cfg.Witnesses.Present()
	var missing []wire.ArchiveID
	for _, w := range all {
		if c.lines[w.ID] == "" {
			missing = append(missing, w.ID)
		}
	}
	switch {
	case !restored:
		c.endStart(begun, len(all), missing)
		return nil
	case len(all) == 0 || len(missing) > 0:
		return nil
	}
	return l.witnessed()
}

// endStart ends the probation of a start when every enrolled archive has
// cosigned, or StartWait after the start: those heard by then have been asked,
// and who does not cosign can not keep the ledger from sealing.
func (c *Cosigning) endStart(begun time.Time, heard int, missing []wire.ArchiveID) {
	late := begun.Sub(c.started) >= c.cfg.StartWait
	switch {
	case len(missing) == 0 && heard >= c.cfg.Enrolled:
	case !late:
		return
	case heard == 0:
		c.cfg.Log.Warn("no archive was heard since the start: the ledger seals, and nobody has said whether it holds all that it sealed before", "enrolled", c.cfg.Enrolled)
	case len(missing) > 0:
		c.cfg.Log.Warn("archives that are there have not cosigned what the ledger holds: it seals, and they may know of more seals", "archives", missing)
	default:
		c.cfg.Log.Info("the archives that are there have cosigned what the ledger holds; others were not heard", "heard", heard, "enrolled", c.cfg.Enrolled)
	}
	c.cfg.Ledger.release()
}
