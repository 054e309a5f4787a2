package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// ask shows next to a witness that is believed to have seen the log at size
// known, and returns its verified cosignature line and what it has seen.
func (c *Cosigning) ask(ctx context.Context, w Witness, known int64, next tlogx.Checkpoint) (line string, seen int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	verifier, err := tlogx.NewCosignatureVerifier(string(w.ID), w.Key)
	if err != nil {
		return "", known, err
	}
	for range 2 { // the first answer may say what size it has seen
		request, err := c.request(ctx, min(known, next.Size), next)
		if err != nil {
			return "", known, err
		}
		reply, err := c.cfg.Witnesses.Show(ctx, w.ID, request)
		if err != nil {
			return "", known, notOurs(err)
		}
		if reply.Cosignature != "" {
			if _, err := tlogx.OpenCosignature(append(slices.Clone(c.shown), reply.Cosignature...), verifier); err != nil {
				return "", known, fault.New(fault.Transient, "BAD_COSIGNATURE", "ledger: the cosignature of %s does not verify: %w", w.ID, err)
			}
			return reply.Cosignature, next.Size, nil
		}
		if known, err = c.compare(w.ID, reply, next); err != nil {
			return "", known, err
		}
	}
	return "", known, fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %s changed its mind about the size it has seen", w.ID)
}

// notOurs takes from a witness's refusal the power to end the sealing: only a
// checkpoint that this ledger has signed can do that.
func notOurs(err error) error {
	if fault.Is(err, fault.Corrupt) {
		return fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %w", errors.New(err.Error()))
	}
	return err
}

func (c *Cosigning) request(ctx context.Context, known int64, next tlogx.Checkpoint) (wire.WitnessRequest, error) {
	hashes, err := c.cfg.Ledger.Consistency(ctx, known, next.Size)
	if err != nil {
		return wire.WitnessRequest{}, err
	}
	r := wire.WitnessRequest{Key: c.cfg.Ledger.VerifierKey(), Old: known, Proof: make([]wire.Digest, len(hashes)), Checkpoint: string(c.shown)}
	for i, h := range hashes {
		r.Proof[i] = wire.Digest(h)
	}
	return r, nil
}

// compare holds what a witness has seen against the store. Its checkpoint counts
// only if this ledger has signed it.
func (c *Cosigning) compare(id wire.ArchiveID, reply wire.WitnessReply, next tlogx.Checkpoint) (seen int64, err error) {
	if reply.Checkpoint == "" && reply.Size == 0 {
		return 0, nil // it has seen nothing
	}
	l := c.cfg.Ledger
	got, err := tlogx.OpenCheckpoint([]byte(reply.Checkpoint), l.key.verifier)
	if err != nil {
		return 0, fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %s shows a checkpoint that this ledger has not signed: %w", id, err)
	}
	if size := l.head.Load().size; got.Size > size {
		return got.Size, fault.New(fault.Corrupt, "LEDGER_ROLLED_BACK", "ledger: the store has %d leaves, but archive %s has seen a checkpoint over %d that was signed; the store was rolled back: restore the newer one, sealing on would fork the log", size, id, got.Size)
	}
	root, err := c.root(got.Size)
	if err != nil {
		return got.Size, err
	}
	if root != got.Root {
		return got.Size, fault.New(fault.Corrupt, "LEDGER_FORKED", "ledger: archive %s has seen a signed checkpoint over %d leaves that the store does not contain: it belongs to another history; restore the right store", id, got.Size)
	}
	if got.Size > next.Size {
		return got.Size, fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %s has seen a newer checkpoint meanwhile", id)
	}
	return got.Size, nil
}

func (c *Cosigning) root(size int64) (tlog.Hash, error) {
	l := c.cfg.Ledger
	if err := l.enter(); err != nil {
		return tlog.Hash{}, err
	}
	defer l.mu.RUnlock()
	root, err := tlog.TreeHash(size, hashReader(l.db))
	if err != nil {
		return root, fault.Wrap(kindOf(err), fmt.Errorf("ledger: root at size %d: %w", size, err))
	}
	return root, nil
}
