package tlogx

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// A cosignature/v1 (c2sp.org/tlog-cosignature) is a witness's statement that at
// a time a checkpoint was the newest it knew of its log, and consistent with all
// it had seen before.
const (
	algCosignature  = 0x04 // signature type of Ed25519 cosignatures
	cosignatureSize = 8 + ed25519.SignatureSize
)

// Cosigner signs checkpoints of others under the name of a witness.
type Cosigner struct {
	key ed25519.PrivateKey
	cosignatures
}

// NewCosigner returns the cosigner of the witness with a name and a key.
func NewCosigner(name string, key ed25519.PrivateKey) (*Cosigner, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("tlogx: not an Ed25519 key")
	}
	v, err := newCosignatures(name, public)
	return &Cosigner{key, v}, err
}

// Verifier returns what verifies the cosigner's signatures.
func (c *Cosigner) Verifier() note.Verifier { return c.cosignatures }

// Cosign returns the signature line, with its end of line, that is appended to a
// signed checkpoint whose note text is text. Seconds are what at counts.
func (c *Cosigner) Cosign(text string, at time.Time) string {
	seconds := uint64(max(at.Unix(), 0))
	b := binary.BigEndian.AppendUint32(nil, c.hash)
	b = binary.BigEndian.AppendUint64(b, seconds)
	b = append(b, ed25519.Sign(c.key, cosigned(text, seconds))...)
	return "— " + c.name + " " + base64.StdEncoding.EncodeToString(b) + "\n"
}

// cosigned is the message that is signed.
func cosigned(text string, seconds uint64) []byte {
	return []byte("cosignature/v1\ntime " + strconv.FormatUint(seconds, 10) + "\n" + text)
}

// cosignatures verifies the cosignatures of one witness.
type cosignatures struct {
	name   string
	hash   uint32
	public ed25519.PublicKey
}

// NewCosignatureVerifier returns a verifier of the cosignatures by the witness
// with a name and a public key, for note.Open.
func NewCosignatureVerifier(name string, public ed25519.PublicKey) (note.Verifier, error) {
	return newCosignatures(name, public)
}

func newCosignatures(name string, public ed25519.PublicKey) (cosignatures, error) {
	if err := CheckOrigin(name); err != nil {
		return cosignatures{}, fmt.Errorf("tlogx: the name of a witness: %w", err)
	}
	if len(public) != ed25519.PublicKeySize {
		return cosignatures{}, fmt.Errorf("tlogx: a public key of %d bytes", len(public))
	}
	h := sha256.New()
	h.Write([]byte(name + "\n"))
	h.Write([]byte{algCosignature})
	h.Write(public)
	return cosignatures{name, binary.BigEndian.Uint32(h.Sum(nil)), public}, nil
}

// Name implements note.Verifier.
func (v cosignatures) Name() string { return v.name }

// KeyHash implements note.Verifier.
func (v cosignatures) KeyHash() uint32 { return v.hash }

// Verify implements note.Verifier.
func (v cosignatures) Verify(msg, sig []byte) bool {
	return len(sig) == cosignatureSize &&
		ed25519.Verify(v.public, cosigned(string(msg), binary.BigEndian.Uint64(sig)), sig[8:])
}

// OpenCosignature verifies that signed has a cosignature by witness and returns
// its time, in whole seconds. Signatures by others are ignored.
func OpenCosignature(signed []byte, witness note.Verifier) (time.Time, error) {
	n, err := note.Open(signed, note.VerifierList(witness))
	if err != nil {
		return time.Time{}, fmt.Errorf("tlogx: cosignature of %s: %w", witness.Name(), err)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64)
	if err != nil || len(raw) != 4+cosignatureSize {
		return time.Time{}, fmt.Errorf("tlogx: cosignature of %s is not in its one form", witness.Name())
	}
	return time.Unix(int64(binary.BigEndian.Uint64(raw[4:])), 0).UTC(), nil
}
