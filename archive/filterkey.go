package archive

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

const (
	maxFilterKey  = 1 << 10 // bytes of a file
	filterKeyName = "verae-filter-key/1"
)

func (c Config) filterKeyPath() string { return c.FS.PathJoin(c.Dir, "filter.key") }

// NewFilterKey makes the key of a filter and returns it as the text of a file:
// 32 hex digits, a space, and the id of the key in 8 hex digits.
func NewFilterKey() string {
	var key [16]byte
	rand.Read(key[:]) // never fails: crypto/rand crashes the program instead
	return filterKeyText(key)
}

func filterKeyText(key [16]byte) string { return fmt.Sprintf("%x %08x\n", key, idOfFilterKey(key)) }

// filterKeyID returns the id of the filter's key as hellos and files write it, or
// "" if the filter has one for this once.
func (n *Node) filterKeyID() string {
	if id := n.keys.set.SecretID(); id != 0 {
		return fmt.Sprintf("%08x", id)
	}
	return ""
}

// idOfFilterKey names a key. It follows from the key, so that two keys never go by
// one name: a filter that is taken for one under another key denies what is
// stored.
func idOfFilterKey(key [16]byte) uint32 {
	sum := sha256.Sum256(append([]byte(filterKeyName), key[:]...))
	return max(binary.BigEndian.Uint32(sum[:]), 1) // 0 stands for no key
}

// ParseFilterKey reads the text of a file that NewFilterKey made, or one with the
// 32 digits alone. The error, of kind fault.Invalid, never shows them.
func ParseFilterKey(text []byte) (bloom.Secret, error) {
	parts := bytes.Fields(text)
	if len(parts) < 1 || len(parts) > 2 {
		return bloom.Secret{}, fault.New(fault.Invalid, "FILTER_KEY", "the filter key has %d words, not 32 hex digits and an id; openssl rand -hex 16 makes one", len(parts))
	}
	s := bloom.Secret{}
	if n, err := hex.Decode(s.Key[:], cut(parts[0], 2*len(s.Key))); err != nil || n != len(s.Key) || len(parts[0]) != 2*len(s.Key) {
		return bloom.Secret{}, fault.New(fault.Invalid, "FILTER_KEY", "the filter key is not 32 hex digits, but %d characters; openssl rand -hex 16 makes one", len(parts[0]))
	}
	s.ID = idOfFilterKey(s.Key)
	if id := fmt.Sprintf("%08x", s.ID); len(parts) == 2 && string(bytes.ToLower(parts[1])) != id {
		return bloom.Secret{}, fault.New(fault.Invalid, "FILTER_KEY", "the filter key has the id %s, and something else stands behind it: one of them was changed; put the right key back, or leave out the id", id)
	}
	return s, nil
}

// withFilterKey reads the key file that the configuration names.
func (c Config) withFilterKey() (_ Config, err error) {
	if c.FilterKeyFile != "" {
		c.Bloom.Secret, err = ReadFilterKey(c.FilterKeyFile)
	}
	return c, err
}

// ReadFilterKey reads a fleet's filter key from the file that FILTER_KEY_FILE names,
// which others than its owner must not be able to read. The error is of kind
// fault.Invalid, code FILTER_KEY.
func ReadFilterKey(path string) (s bloom.Secret, err error) {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return s, fault.New(fault.Invalid, "FILTER_KEY", "archive: FILTER_KEY_FILE %s has mode %04o, so others can read it; chmod go-rwx %s, or make another key if they may have", path, info.Mode().Perm(), path)
	}
	var text []byte
	if err == nil {
		text, err = pebblex.ReadFile(nil, path, maxFilterKey)
	}
	if err != nil {
		return s, fault.New(fault.Invalid, "FILTER_KEY", "archive: FILTER_KEY_FILE: %w", err)
	}
	if s, err = ParseFilterKey(text); err != nil {
		return s, fault.New(fault.Invalid, "FILTER_KEY", "archive: FILTER_KEY_FILE %s: %w", path, err)
	}
	return s, nil
}

func cut(b []byte, n int) []byte { return b[:min(len(b), n)] }

// filterSecret returns what the filter's positions are derived under: what the
// configuration says, or else the key of this archive, which is made when there
// is none. A damaged one is replaced, since nothing is lost with it but the time
// to build the filter anew. Where that can not be, the filter gets a secret for
// this once and is not stored.
func (n *Node) filterSecret() bloom.Secret {
	c := n.cfg
	if c.Bloom.Secret.ID != 0 {
		return c.Bloom.Secret
	}
	text, err := pebblex.ReadFile(c.FS, c.filterKeyPath(), maxFilterKey)
	if err == nil {
		var s bloom.Secret
		if s, err = ParseFilterKey(text); err == nil {
			return s
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		c.Log.Warn("the filter key can not be used; another one is made, and the filter built anew", "path", c.filterKeyPath(), "err", err)
	}
	if n.health.readOnly() != nil {
		return bloom.Secret{}
	}
	fresh := NewFilterKey()
	s, err := ParseFilterKey([]byte(fresh))
	if err == nil {
		err = pebblex.WriteFile(c.FS, c.filterKeyPath(), []byte(fresh), keyPerm)
	}
	if err != nil {
		c.Log.Error("the filter key can not be written; the filter is not stored, and the next start builds it anew", "path", c.filterKeyPath(), "err", err)
		return bloom.Secret{}
	}
	return s
}
