package vault

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/verae/archive/internal/fault"
)

// The layout of sealed bytes; see the package comment.
const (
	sealedMagic   = "VERAESM"
	sealedVersion = 1

	offKeyID      = len(sealedMagic) + 1
	offNonce      = offKeyID + idSize
	offCRC        = offNonce + chacha20poly1305.NonceSizeX
	offCiphertext = offCRC + crcSize
)

// Overhead is how much longer sealed bytes are than their plaintext, in bytes.
const Overhead = offCiphertext + chacha20poly1305.Overhead

// Seal encrypts plaintext for the tenant of c, whose key is made and stored
// first if there is none. The result is Overhead bytes longer, shares no memory
// with plaintext, and differs on every call: seal once and keep the bytes. A
// plaintext above MaxPlaintext is refused as fault.Invalid.
func (v *Vault) Seal(ctx context.Context, c Context, plaintext []byte) ([]byte, error) {
	if len(plaintext) > MaxPlaintext {
		return nil, fault.New(fault.Invalid, "METADATA_TOO_LARGE",
			"vault: %d bytes to seal; at most %d are taken", len(plaintext), MaxPlaintext).InField("privateMetadata")
	}
	ring, err := v.keyringOf(ctx, c.TenantID, true)
	if err != nil {
		return nil, err
	}
	var nonce [chacha20poly1305.NonceSizeX]byte
	rand.Read(nonce[:])
	return seal(ring.newest(), nonce, c, plaintext), nil
}

// seal is Seal with every choice made.
func seal(k tenantKey, nonce [chacha20poly1305.NonceSizeX]byte, c Context, plaintext []byte) []byte {
	out := make([]byte, 0, len(plaintext)+Overhead)
	out = append(append(out, sealedMagic...), sealedVersion)
	out = append(append(out, k.id[:]...), nonce[:]...)
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	return k.seal.Seal(out, nonce[:], plaintext, c.bind(out))
}

// bind returns the associated data of a record's sealed bytes.
func (c Context) bind(sealed []byte) []byte {
	data := append(make([]byte, 0, 256), sealed[:offNonce]...)
	data = appendField(data, string(c.TenantID))
	data = appendField(data, c.SHA256[:])
	data = appendField(data, string(c.Kind))
	data = appendField(data, string(c.SubmissionID))
	return binary.BigEndian.AppendUint64(data, uint64(c.Part))
}

// Open returns the plaintext of sealed bytes that were made with the same
// context.
//
// Bytes that were cut, changed, or sealed for another record are fault.Corrupt
// (SEALED_DAMAGED or SEALED_TAMPERED). Bytes under a key that the tenant does not
// have are fault.NotFound (KEY_FORGOTTEN): the key was forgotten, or it never
// was this tenant's, which nobody is told apart. Bytes of a newer version are
// fault.Internal (SEALED_VERSION).
func (v *Vault) Open(ctx context.Context, c Context, sealed []byte) ([]byte, error) {
	id, err := keyIDOf(sealed)
	if err != nil {
		v.metrics.failed(err)
		return nil, err
	}
	ring, err := v.keyringOf(ctx, c.TenantID, false)
	if err != nil {
		return nil, err
	}
	var key tenantKey
	found := false
	if ring != nil {
		key, found = ring.find(id)
	}
	if !found {
		err := fault.New(fault.NotFound, "KEY_FORGOTTEN", "vault: the key of this private metadata is not there any more")
		v.metrics.failed(err)
		return nil, err
	}
	plaintext, err := key.seal.Open(nil, sealed[offNonce:offCRC], sealed[offCiphertext:], c.bind(sealed))
	if err != nil {
		err := fault.New(fault.Corrupt, "SEALED_TAMPERED", "vault: the sealed bytes were changed, or sealed for another record")
		v.metrics.failed(err)
		return nil, err
	}
	return plaintext, nil
}

// keyIDOf checks the frame of sealed bytes and returns the id of their key.
func keyIDOf(sealed []byte) (keyID, error) {
	damaged := func(what string) error {
		return fault.New(fault.Corrupt, "SEALED_DAMAGED", "vault: sealed bytes %s", what)
	}
	switch {
	case len(sealed) < Overhead:
		return keyID{}, damaged("are cut short")
	case len(sealed) > MaxPlaintext+Overhead:
		return keyID{}, damaged("are longer than any that were made")
	case string(sealed[:len(sealedMagic)]) != sealedMagic:
		return keyID{}, damaged("do not begin as such")
	case crc32.Checksum(sealed[:offCRC], castagnoli) != binary.BigEndian.Uint32(sealed[offCRC:]):
		return keyID{}, damaged("have a changed header")
	case sealed[len(sealedMagic)] != sealedVersion:
		return keyID{}, fault.New(fault.Internal, "SEALED_VERSION",
			"vault: the bytes were sealed by a newer program (format %d); run that one", sealed[len(sealedMagic)])
	}
	return keyID(sealed[offKeyID:offNonce]), nil
}
