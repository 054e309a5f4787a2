package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// Lookup implements chain.Ledger. A ledger that may have lost seals can not deny
// one: what it does not find is then Transient, LEDGER_STOPPED or
// LEDGER_UNWITNESSED. For the end of a start's probation it waits, as long as ctx
// allows. What it finds it answers at once.
func (l *Ledger) Lookup(ctx context.Context, digest wire.Digest) (chain.Seal, bool, error) {
	s, ok, err := l.find(digest)
	if !ok && err == nil && l.held.Load() != nil {
		if err := l.awaitStart(ctx); err != nil {
			return chain.Seal{}, false, err
		}
		s, ok, err = l.find(digest) // others may have sealed it since
	}
	if ok || err != nil {
		return s, ok, err
	}
	return chain.Seal{}, false, l.Ready()
}

func (l *Ledger) find(digest wire.Digest) (chain.Seal, bool, error) {
	if err := l.enter(); err != nil {
		return chain.Seal{}, false, err
	}
	defer l.mu.RUnlock()
	return l.lookup(digest)
}

// lookup reads one seal; the store is held open by the caller.
func (l *Ledger) lookup(digest wire.Digest) (chain.Seal, bool, error) {
	r, err := l.newSealReader()
	if err != nil {
		return chain.Seal{}, false, err
	}
	s, ok, err := r.get(digest)
	if err := errors.Join(err, r.close()); err != nil {
		return chain.Seal{}, false, err
	}
	if !ok || !l.durable(s) {
		return chain.Seal{}, false, nil
	}
	return s, true, nil
}

// durable reports whether a seal that can be read has been synced.
func (l *Ledger) durable(s chain.Seal) bool { return s.BlockIndex < l.head.Load().blocks }

// sealReader reads seal rows. It is an iterator because only that asks the
// filters of the last level: most lookups are of digests that have no seal.
type sealReader struct {
	l  *Ledger
	it *pebble.Iterator
}

func (l *Ledger) newSealReader() (sealReader, error) {
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound:   []byte{prefixSeal},
		UpperBound:   []byte{prefixSeal + 1},
		UseL6Filters: true,
	})
	if err != nil {
		return sealReader{}, fault.Wrap(kindOf(err), fmt.Errorf("ledger: seal rows: %w", err))
	}
	return sealReader{l: l, it: it}, nil
}

func (r sealReader) close() error {
	if err := r.it.Close(); err != nil {
		return fault.Wrap(kindOf(err), fmt.Errorf("ledger: seal rows: %w", err))
	}
	return nil
}

// get returns the seal in a digest's row, if there is one, durable or not.
func (r sealReader) get(digest wire.Digest) (chain.Seal, bool, error) {
	there, err := pebblex.Has(r.it, sealKey(digest))
	if err != nil {
		return chain.Seal{}, false, fault.Wrap(kindOf(err), fmt.Errorf("ledger: seal of %s: %w", digest, err))
	}
	if !there {
		return chain.Seal{}, false, nil
	}
	row, err := r.it.ValueAndErr()
	if err != nil {
		return chain.Seal{}, false, fault.Wrap(kindOf(err), fmt.Errorf("ledger: seal of %s: %w", digest, err))
	}
	s, err := decodeSeal(digest, r.l.cfg.Origin, row)
	if err != nil {
		return chain.Seal{}, false, fault.Wrap(fault.Corrupt, err)
	}
	return s, true, nil
}

// all sorts the digests of entries into known and absent. It is for the
// committer, to whom every row that can be read is durable.
func (r sealReader) all(entries []chain.Entry, known map[wire.Digest]chain.Seal, absent map[wire.Digest]struct{}) error {
	for _, e := range entries {
		s, ok, err := r.get(e.Digest)
		switch {
		case err != nil:
			return err
		case !ok:
			absent[e.Digest] = struct{}{}
		case !r.l.durable(s):
			return damaged("%s has a seal in block %d, which is not there", e.Digest, s.BlockIndex)
		default:
			known[e.Digest] = s
		}
	}
	return nil
}
