package chaintest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Outcome is how a call of a [Faulty] ledger ends.
type Outcome int

// The two failures are those a caller can not tell apart.
const (
	Works       Outcome = iota
	FailsBefore         // an error, and nothing happened
	FailsAfter          // an error, and all of it happened
)

// ErrInjected is inside every error of a Faulty ledger; its kind is Transient.
var ErrInjected = errors.New("chaintest: injected failure")

// Faulty is a ledger in front of another one that fails on command and counts.
// Set the fields before the first call.
type Faulty struct {
	Ledger chain.Ledger
	// OnRegister decides over the call'th call of Register, from 1; nil: it works.
	OnRegister func(call int64) Outcome
	// OnLookup decides over the call'th call of Lookup, from 1; nil: it works.
	OnLookup func(call int64) Outcome

	registers, lookups, certificates atomic.Int64
}

var _ chain.Ledger = (*Faulty)(nil)

// Calls returns how often each method was called.
func (f *Faulty) Calls() (registers, lookups, certificates int64) {
	return f.registers.Load(), f.lookups.Load(), f.certificates.Load()
}

// Register registers with the ledger behind, or fails as told.
func (f *Faulty) Register(ctx context.Context, entries []chain.Entry) ([]chain.Seal, error) {
	how := decide(f.OnRegister, f.registers.Add(1))
	if how == FailsBefore {
		return nil, fault.Wrap(fault.Transient, ErrInjected)
	}
	seals, err := f.Ledger.Register(ctx, entries)
	if how == FailsAfter && err == nil {
		return nil, fault.Wrap(fault.Transient, ErrInjected)
	}
	return seals, err
}

// Lookup asks the ledger behind, or fails as told.
func (f *Faulty) Lookup(ctx context.Context, digest wire.Digest) (chain.Seal, bool, error) {
	if decide(f.OnLookup, f.lookups.Add(1)) != Works {
		return chain.Seal{}, false, fault.Wrap(fault.Transient, ErrInjected)
	}
	return f.Ledger.Lookup(ctx, digest)
}

// Certificate asks the ledger behind.
func (f *Faulty) Certificate(ctx context.Context, s chain.Seal) (string, error) {
	f.certificates.Add(1)
	return f.Ledger.Certificate(ctx, s)
}

func decide(script func(int64) Outcome, call int64) Outcome {
	if script == nil {
		return Works
	}
	return script(call)
}
