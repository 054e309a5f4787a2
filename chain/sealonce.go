package chain

import (
	"context"
	"fmt"
	"slices"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// SealOnce returns the seals of all entries, in their order, sealing what has
// no seal yet. It is the only caller of Register.
//
// It looks up before it registers, so a retry after a lost answer finds what the
// first try did, and it checks that every answer is about the entry it was given
// for: a ledger reached over a network is not believed. Entries may repeat a
// digest and be more than MaxEntries; they then take several calls of Register.
//
// An entry that can not be sealed is fault.Invalid, and nothing is sealed. After
// any other error some entries may be sealed; calling again is safe.
func SealOnce(ctx context.Context, l Ledger, entries []Entry) ([]Seal, error) {
	for i, e := range entries {
		if err := e.Check(); err != nil {
			return nil, fmt.Errorf("entry %d of %d: %w", i+1, len(entries), err)
		}
	}
	known := answers{seals: make(map[wire.Digest]Seal, len(entries)), leaves: make(map[int64]wire.Digest, len(entries))}
	missing, err := known.lookUp(ctx, l, entries)
	if err != nil {
		return nil, err
	}
	for batch := range slices.Chunk(missing, MaxEntries) {
		if err := known.register(ctx, l, batch); err != nil {
			return nil, err
		}
	}
	out := make([]Seal, len(entries))
	for i, e := range entries {
		out[i] = known.seals[e.Digest]
	}
	return out, nil
}

// answers collects what a ledger says, refusing what can not be true.
type answers struct {
	seals  map[wire.Digest]Seal
	leaves map[int64]wire.Digest // whose leaf an index is
}

// lookUp collects the seals that exist and returns the first entry of every
// digest that has none.
func (a *answers) lookUp(ctx context.Context, l Ledger, entries []Entry) (missing []Entry, err error) {
	asked := make(map[wire.Digest]struct{}, len(entries))
	for _, e := range entries {
		if _, twice := asked[e.Digest]; twice {
			continue
		}
		asked[e.Digest] = struct{}{}
		s, ok, err := l.Lookup(ctx, e.Digest)
		if err != nil {
			return nil, fmt.Errorf("chain: look up %s: %w", e.Digest, err)
		}
		if !ok {
			missing = append(missing, e)
			continue
		}
		if err := a.take(e.Digest, s); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func (a *answers) register(ctx context.Context, l Ledger, batch []Entry) error {
	seals, err := l.Register(ctx, batch)
	if err != nil {
		return fmt.Errorf("chain: register %d digests, the first %s: %w", len(batch), batch[0].Digest, err)
	}
	if len(seals) != len(batch) {
		return distrust("%d seals for %d entries", len(seals), len(batch))
	}
	for i, e := range batch {
		if err := a.take(e.Digest, seals[i]); err != nil {
			return err
		}
	}
	return nil
}

// take keeps s as the seal of digest if it can be that.
func (a *answers) take(digest wire.Digest, s Seal) error {
	switch {
	case s.Digest != digest:
		return distrust("asked about %s, answered about %s", digest, s.Digest)
	case s.LeafIndex < 0 || s.BlockIndex < 0 || s.TreeSize <= s.LeafIndex:
		return distrust("%s: leaf %d in block %d of a tree of size %d", digest, s.LeafIndex, s.BlockIndex, s.TreeSize)
	case s.Time.IsZero():
		return distrust("%s: a seal without a time", digest)
	case s.Origin == "":
		return distrust("%s: a seal without an origin", digest)
	case s.JobID == "":
		return distrust("%s: a seal without a job id", digest)
	}
	if other, taken := a.leaves[s.LeafIndex]; taken {
		return distrust("leaf %d given to both %s and %s", s.LeafIndex, other, digest)
	}
	a.seals[digest], a.leaves[s.LeafIndex] = s, digest
	return nil
}

// distrust reports an answer that no honest ledger gives. It is never the
// sender's fault.
func distrust(format string, args ...any) error {
	return fault.New(fault.Internal, "CHAIN_ANSWER", "chain: the ledger's answer does not fit the question: %s", fmt.Sprintf(format, args...))
}
