package vault

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// Names in the directory of a vault.
const (
	kekName     = "kek"
	markerName  = "vault"
	tenantsName = "tenants"
	lockName    = "lock"
)

// The KEK file and the marker are lines of text, so that they can be kept in a
// password manager or on paper:
//
//	verae-kek-1   <64 hex: the key>         <16 hex: checksum>
//	verae-vault-1 <32 hex: id of its KEK>   <16 hex: checksum>
//
// with single blanks. The checksum is the start of the SHA-256 of the line
// before its last blank.
const (
	kekMagic    = "verae-kek-1"
	markerMagic = "verae-vault-1"
)

// kek is the key-encryption key: it wraps the keys of the tenants and nothing
// else.
type kek struct {
	id   [idSize]byte // names the key without giving it away
	wrap *secret      // the key that wraps
}

func newKEK(key []byte) *kek {
	sum := sha256.Sum256(append([]byte("verae-vault/1 kek id"), key...))
	return &kek{id: [idSize]byte(sum[:idSize]), wrap: derive(key, "verae-vault/1 wrap")}
}

// openKEK returns the KEK of a vault. The marker, written last, says that the
// vault was made and which KEK it has: from then on no other is accepted.
func openKEK(p places, create bool) (*kek, error) {
	text, err := p.dir.Read(markerName)
	if errors.Is(err, fs.ErrNotExist) {
		return initKEK(p, create)
	}
	if err != nil {
		return nil, fmt.Errorf("vault: read the marker: %w", err)
	}
	// It may have got its name from a start that failed before the name was
	// durable.
	if err := p.dir.Sync(); err != nil {
		return nil, fmt.Errorf("vault: sync %s: %w", p.dir, err)
	}
	id, ok := parseLine(markerMagic, idSize, text)
	if !ok {
		return nil, fault.New(fault.Corrupt, "VAULT_MARKER",
			"vault: the file %q in %s is damaged; put it back from a backup of the directory", markerName, p.dir)
	}
	k, err := readKEK(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badKEK(p, "is missing")
	}
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(k.id[:], id) {
		return nil, badKEK(p, "holds another key than the one this vault was made with")
	}
	return k, nil
}

func badKEK(p places, what string) error {
	return fault.New(fault.Corrupt, "VAULT_KEK",
		"vault: the key-encryption key in %q (in %s) %s; put the right file back from its backup: without it no private metadata can be read, and a new key does not help",
		p.kekName, p.kek, what)
}

// initKEK makes what a new vault needs, or goes on where an earlier start was
// cut off. It never runs on a vault that has keys.
func initKEK(p places, create bool) (*kek, error) {
	names, err := p.tenants.Names()
	if err != nil {
		return nil, fmt.Errorf("vault: list %s: %w", p.tenants, err)
	}
	if len(names) > 0 {
		return nil, fault.New(fault.Corrupt, "VAULT_MARKER",
			"vault: %s holds tenants' keys but not the file %q that belongs to them; put it back from a backup of the directory", p.dir, markerName)
	}
	if !create {
		return nil, missing(p.dir.String())
	}
	k, err := readKEK(p)
	if errors.Is(err, fs.ErrNotExist) {
		k, err = makeKEK(p)
	}
	if err != nil {
		return nil, err
	}
	// So may the KEK, if it was found here.
	if err := p.kek.Sync(); err != nil {
		return nil, fmt.Errorf("vault: sync %s: %w", p.kek, err)
	}
	return k, writeNew(p.dir, markerName, formatLine(markerMagic, k.id[:]))
}

func readKEK(p places) (*kek, error) {
	text, err := p.kek.Read(p.kekName)
	if err != nil {
		return nil, err
	}
	key, ok := parseLine(kekMagic, keySize, text)
	if !ok {
		return nil, badKEK(p, "is damaged")
	}
	return newKEK(key), nil
}

func makeKEK(p places) (*kek, error) {
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	if err := writeNew(p.kek, p.kekName, formatLine(kekMagic, key)); err != nil {
		return nil, err
	}
	return newKEK(key), nil
}

func formatLine(magic string, payload []byte) []byte {
	line := magic + " " + hex.EncodeToString(payload)
	return []byte(line + " " + lineSum(line) + "\n")
}

// parseLine is the inverse of formatLine; white space around the line, as
// editors leave it, is allowed.
func parseLine(magic string, size int, text []byte) (payload []byte, ok bool) {
	line := strings.TrimSpace(string(text))
	at := strings.LastIndexByte(line, ' ')
	if at < 0 || line[at+1:] != lineSum(line[:at]) {
		return nil, false
	}
	digits, ok := strings.CutPrefix(line[:at], magic+" ")
	if !ok {
		return nil, false
	}
	payload, err := hex.DecodeString(digits)
	return payload, err == nil && len(payload) == size
}

func lineSum(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:8])
}
