package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// call is one call of Register on its way to the committer.
type call struct {
	entries []chain.Entry
	answer  chan answer // takes one answer without blocking
}

type answer struct {
	seals []chain.Seal
	err   error
}

// Register implements chain.Ledger. A call whose digests are all sealed costs no
// write. What is new waits, as long as ctx allows, for the end of the probation
// of a start.
func (l *Ledger) Register(ctx context.Context, entries []chain.Entry) ([]chain.Seal, error) {
	if len(entries) > chain.MaxEntries {
		return nil, fault.New(fault.Invalid, "TOO_MANY_ENTRIES", "ledger: %d entries in one call, at most %d are taken", len(entries), chain.MaxEntries)
	}
	for _, e := range entries {
		if err := e.Check(); err != nil {
			return nil, err
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	for {
		seals, err := l.submit(ctx, entries)
		if !errors.Is(err, errHeld) {
			return seals, err
		}
		if err := l.awaitStart(ctx); err != nil {
			return nil, err
		}
	}
}

// submit has the committer answer one call.
func (l *Ledger) submit(ctx context.Context, entries []chain.Entry) ([]chain.Seal, error) {
	if l.isStopped() {
		return nil, l.stopError()
	}
	c := &call{entries: entries, answer: make(chan answer, 1)}
	if err := l.committer.Submit(ctx, c); err != nil {
		if errors.Is(err, pebblex.ErrClosed) {
			return nil, errClosed()
		}
		return nil, fault.Wrap(fault.Transient, fmt.Errorf("ledger: nothing was registered: %w", err))
	}
	return l.await(ctx, c)
}

// await returns the answer to a call that was submitted. An answer that is there
// goes before every reason not to wait for it.
func (l *Ledger) await(ctx context.Context, c *call) ([]chain.Seal, error) {
	var instead error
	select {
	case a := <-c.answer:
		return a.seals, a.err
	case <-l.stopped:
		instead = l.stopError()
	case <-ctx.Done():
		instead = fault.Wrap(fault.Transient, fmt.Errorf("ledger: gone before the answer, the digests may be sealed: %w", ctx.Err()))
	}
	select {
	case a := <-c.answer:
		return a.seals, a.err
	default:
		return nil, instead
	}
}

// stop ends all sealing: after a failed commit nobody knows what the store
// holds, and another block could contradict it.
func (l *Ledger) stop(err error) {
	l.stopOnce.Do(func() {
		l.stopErr = err
		l.metrics.stopped.Set(1)
		close(l.stopped)
		l.cfg.Log.Error("the ledger seals no more until it is opened anew", "err", err)
	})
}

func (l *Ledger) isStopped() bool {
	select {
	case <-l.stopped:
		return true
	default:
		return false
	}
}

// stopError is Transient: the digests of a call that got it are sealed whole or
// not at all, and after the restart a lookup tells.
func (l *Ledger) stopError() error {
	return fault.New(fault.Transient, "LEDGER_STOPPED", "ledger: sealing has stopped, open the ledger anew: %w", l.stopErr)
}

// commit answers all calls, with one block for what they bring that is new.
func (l *Ledger) commit(calls []*call) {
	if l.isStopped() {
		refuse(calls, l.stopError())
		return
	}
	known, absent, calls := l.resolve(calls)
	calls = l.probed(calls, known)
	if fresh := gather(calls, absent); len(fresh) > 0 {
		if err := l.seal(fresh, known); err != nil {
			l.stop(err)
			refuse(calls, l.stopError())
			return
		}
	}
	for _, c := range calls {
		seals := make([]chain.Seal, len(c.entries))
		for i, e := range c.entries {
			seals[i] = known[e.Digest]
		}
		l.metrics.entries.Add(float64(len(seals)))
		c.answer <- answer{seals: seals}
	}
}

func refuse(calls []*call, err error) {
	for _, c := range calls {
		c.answer <- answer{err: err}
	}
}

// resolve looks up the digests of all calls: known are those that have a seal,
// absent those that certainly have none. A call for which that fails is answered
// with the error and left out of the calls returned.
func (l *Ledger) resolve(calls []*call) (known map[wire.Digest]chain.Seal, absent map[wire.Digest]struct{}, good []*call) {
	known, absent = make(map[wire.Digest]chain.Seal), make(map[wire.Digest]struct{})
	r, err := l.newSealReader()
	if err != nil {
		refuse(calls, err)
		return known, absent, nil
	}
	good = make([]*call, 0, len(calls))
	for _, c := range calls {
		if err := r.all(c.entries, known, absent); err != nil {
			c.answer <- answer{err: err}
			continue
		}
		good = append(good, c)
	}
	if err := r.close(); err != nil {
		refuse(good, err)
		return known, absent, nil
	}
	return known, absent, good
}

// gather returns the first entry of every absent digest.
func gather(calls []*call, absent map[wire.Digest]struct{}) []chain.Entry {
	fresh := make([]chain.Entry, 0, len(absent))
	for _, c := range calls {
		for _, e := range c.entries {
			if _, wanted := absent[e.Digest]; wanted {
				delete(absent, e.Digest)
				fresh = append(fresh, e)
			}
		}
	}
	return fresh
}
