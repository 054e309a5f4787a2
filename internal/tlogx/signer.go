package tlogx

import (
	"crypto/ed25519"
	"fmt"

	"golang.org/x/mod/sumdb/note"
)

// NewSigner returns what signs the checkpoints of the log with an origin by its
// Ed25519 key, for [Checkpoint.Sign]. [NewVerifier] verifies them.
func NewSigner(origin string, key ed25519.PrivateKey) (note.Signer, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("tlogx: the key of %s has no public part", origin)
	}
	v, err := NewVerifier(origin, public)
	if err != nil {
		return nil, err
	}
	return signer{v.Name(), v.KeyHash(), key}, nil
}

type signer struct {
	name string
	hash uint32
	key  ed25519.PrivateKey
}

// Name is note.Signer.Name.
func (s signer) Name() string { return s.name }

// KeyHash is note.Signer.KeyHash.
func (s signer) KeyHash() uint32 { return s.hash }

// Sign is note.Signer.Sign.
func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }
