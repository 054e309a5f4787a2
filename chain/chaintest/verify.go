package chaintest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tlogproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/verae/archive/chain"
)

// Verify checks offline that certificate proves s under the log's public key,
// given as name+hash+base64. It is a second implementation of the whole chain of
// trust, on other libraries than the ledgers use: it exists to disagree.
func Verify(certificate string, s chain.Seal, verifierKey string) error {
	p, head, err := parse(certificate, verifierKey)
	if err != nil {
		return err
	}
	if head.origin != s.Origin || head.size != uint64(s.TreeSize) || p.Index != uint64(s.LeafIndex) {
		return fmt.Errorf("chaintest: certificate of leaf %d in size %d of %s, seal of leaf %d in size %d of %s",
			p.Index, head.size, head.origin, s.LeafIndex, s.TreeSize, s.Origin)
	}
	leaf := leafOf(s)
	if !bytes.Equal(p.ExtraData, leaf) {
		return fmt.Errorf("chaintest: the certificate carries the leaf %q, the seal makes %q", p.ExtraData, leaf)
	}
	var path [][]byte
	for _, h := range p.Hashes {
		path = append(path, h[:])
	}
	err = proof.VerifyInclusion(rfc6962.DefaultHasher, p.Index, head.size, rfc6962.DefaultHasher.HashLeaf(leaf), path, head.root)
	if err != nil {
		return fmt.Errorf("chaintest: inclusion of leaf %d: %w", p.Index, err)
	}
	return nil
}

// leafOf writes the leaf of a seal by the specification in package chain.
func leafOf(s chain.Seal) []byte {
	return fmt.Appendf(nil, "verae-seal/v1\n%s\n%d\n", hex.EncodeToString(s.Digest[:]), s.Time.UnixNano())
}

// treeHead is a verified checkpoint.
type treeHead struct {
	origin string
	size   uint64
	root   []byte
}

func parse(certificate, verifierKey string) (p tlogproof.TLogProof, head treeHead, err error) {
	if err := p.Unmarshal([]byte(certificate)); err != nil {
		return p, head, fmt.Errorf("chaintest: %w", err)
	}
	if string(p.Marshal()) != certificate {
		return p, head, errors.New("chaintest: the certificate is not in canonical form")
	}
	head, err = openCheckpoint(string(p.Checkpoint), verifierKey)
	return p, head, err
}

// headOf returns the verified checkpoint in a certificate.
func headOf(certificate, verifierKey string) (treeHead, error) {
	_, head, err := parse(certificate, verifierKey)
	return head, err
}

// openCheckpoint verifies a signed note of exactly one signature
// (c2sp.org/signed-note) and reads it as a checkpoint.
func openCheckpoint(signed, verifierKey string) (head treeHead, err error) {
	name, keyID, key, err := readKey(verifierKey)
	if err != nil {
		return head, err
	}
	text, sig, ok := strings.Cut(signed, "\n\n")
	text += "\n"
	sig, prefixed := strings.CutPrefix(sig, "— "+name+" ")
	sig, ended := strings.CutSuffix(sig, "\n")
	raw, err := base64.StdEncoding.DecodeString(sig)
	if !ok || !prefixed || !ended || err != nil || base64.StdEncoding.EncodeToString(raw) != sig || len(raw) != 4+ed25519.SignatureSize || !bytes.Equal(raw[:4], keyID) {
		return head, fmt.Errorf("chaintest: the checkpoint is not signed by %s alone", name)
	}
	if !ed25519.Verify(key, []byte(text), raw[4:]) {
		return head, errors.New("chaintest: the signature on the checkpoint is wrong")
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[0] != name {
		return head, fmt.Errorf("chaintest: the checkpoint %q is not of %s", text, name)
	}
	head.origin = lines[0]
	if head.size, err = strconv.ParseUint(lines[1], 10, 63); err != nil {
		return head, fmt.Errorf("chaintest: tree size: %w", err)
	}
	if head.root, err = base64.StdEncoding.DecodeString(lines[2]); err != nil {
		return head, fmt.Errorf("chaintest: root: %w", err)
	}
	return head, nil
}

// readKey takes a verifier key apart: the key id is the start of
// SHA-256(name, newline, type, key), the type 1 is Ed25519.
func readKey(verifierKey string) (name string, id []byte, key ed25519.PublicKey, err error) {
	parts := strings.SplitN(verifierKey, "+", 3)
	if len(parts) != 3 {
		return "", nil, nil, fmt.Errorf("chaintest: %q is not a verifier key", verifierKey)
	}
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != 1 {
		return "", nil, nil, fmt.Errorf("chaintest: %q is not an Ed25519 verifier key", verifierKey)
	}
	sum := sha256.Sum256(append([]byte(parts[0]+"\n"), raw...))
	if hex.EncodeToString(sum[:4]) != parts[1] {
		return "", nil, nil, fmt.Errorf("chaintest: the hash in %q is not that of the key", verifierKey)
	}
	return parts[0], sum[:4], raw[1:], nil
}
