package vault

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
)

const (
	keySize = 32 // bytes of every key
	idSize  = 16 // bytes of key ids
)

// secret is key material. It is held by pointer everywhere, so that printing
// what holds it shows an address, and prints as nothing itself.
type secret [keySize]byte

// Format keeps every verb of fmt from printing the key.
func (*secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// LogValue keeps the key out of logs.
func (*secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// Format prints a vault as "vault" whatever the verb: what it holds is for nobody
// to read, and reflection would not take its locks.
func (*Vault) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("vault")) }

// LogValue does for logs what Format does for fmt.
func (*Vault) LogValue() slog.Value { return slog.StringValue("vault") }

// derive returns HKDF-SHA256 of key without salt.
func derive(key []byte, info string) *secret {
	out, err := hkdf.Key(sha256.New, key, nil, info, keySize)
	if err != nil {
		panic("vault: hkdf: " + err.Error()) // only for outputs of 8 KiB and more
	}
	return (*secret)(out)
}

// appendField appends v after its length, so that no two lists of fields give
// the same bytes.
func appendField[T ~string | ~[]byte](b []byte, v T) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(v)))
	return append(b, v...)
}
