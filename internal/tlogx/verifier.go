package tlogx

import (
	"crypto/ed25519"
	"fmt"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// NewVerifier returns what verifies the checkpoints of the log with an origin by
// its Ed25519 public key, for [OpenCheckpoint].
func NewVerifier(origin string, public ed25519.PublicKey) (note.Verifier, error) {
	if err := CheckOrigin(origin); err != nil {
		return nil, fmt.Errorf("tlogx: %w", err)
	}
	text, err := note.NewEd25519VerifierKey(origin, public)
	if err != nil {
		return nil, fmt.Errorf("tlogx: the key of %s: %w", origin, err)
	}
	v, err := note.NewVerifier(text)
	if err != nil {
		return nil, fmt.Errorf("tlogx: the key of %s: %w", origin, err)
	}
	return v, nil
}

// CheckConsistency reports why later does not continue the tree of earlier, both
// of one log, by an RFC 6962 consistency proof. Two checkpoints of one size need
// no proof: their roots are equal or the log is forked.
func CheckConsistency(earlier, later Checkpoint, proof [][]byte) error {
	switch {
	case earlier.Origin != later.Origin:
		return fmt.Errorf("tlogx: checkpoints of %s and of %s say nothing about each other", earlier.Origin, later.Origin)
	case later.Size < earlier.Size:
		return fmt.Errorf("tlogx: %s had %d leaves and has %d", earlier.Origin, earlier.Size, later.Size)
	case later.Size == earlier.Size && later.Root != earlier.Root:
		return fmt.Errorf("tlogx: %s has two roots at %d leaves", earlier.Origin, earlier.Size)
	case earlier.Size == 0 || later.Size == earlier.Size:
		return nil
	}
	hashes := make(tlog.TreeProof, len(proof))
	for i, h := range proof {
		if len(h) != tlog.HashSize {
			return fmt.Errorf("tlogx: hash %d of a consistency proof has %d bytes", i, len(h))
		}
		hashes[i] = tlog.Hash(h)
	}
	if err := tlog.CheckTree(hashes, later.Size, later.Root, earlier.Size, earlier.Root); err != nil {
		return fmt.Errorf("tlogx: the tree of %s at %d leaves is not continued at %d: %w", earlier.Origin, earlier.Size, later.Size, err)
	}
	return nil
}
