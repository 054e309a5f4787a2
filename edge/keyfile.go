package edge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// Scope is something a key may do. Scopes do not imply one another.
type Scope string

// The scopes, as they stand in the key file.
const (
	ScopeStamp Scope = "stamp" // submit timestamps
	ScopeRead  Scope = "read"  // see jobs, receipts and records
	ScopeFiles Scope = "files" // fetch file bytes
	ScopeHooks Scope = "hooks" // manage REST hooks
	ScopeAdmin Scope = "admin" // see the roster
)

// Scopes lists all scopes there are.
func Scopes() []Scope {
	return []Scope{ScopeStamp, ScopeRead, ScopeFiles, ScopeHooks, ScopeAdmin}
}

// Key is one entry of the key file: who may do what with the key whose text
// has this hash. The text itself is nowhere but with its owner.
type Key struct {
	ID       string          `json:"id"`
	Name     string          `json:"name,omitzero"` // for people
	TenantID wire.TenantID   `json:"tenantId"`      // the only tenant the key acts for
	Tenants  []wire.TenantID `json:"tenants,omitempty"`
	Scopes   []Scope         `json:"scopes"`
	SHA256   wire.Digest     `json:"sha256"` // of the key's text
	Created  wire.Time       `json:"createdAt"`
	Expires  wire.Time       `json:"expiresAt,omitzero"` // empty: never
}

// May reports whether the key has scope s.
func (k *Key) May(s Scope) bool { return slices.Contains(k.Scopes, s) }

// FileTenants lists the tenants whose files the key may fetch: its own first.
// The key of an OCR worker serves several tenants.
func (k *Key) FileTenants() []wire.TenantID {
	return append([]wire.TenantID{k.TenantID}, k.Tenants...)
}

// expired reports whether the key has expired at now.
func (k *Key) expired(now time.Time) bool {
	if k.Expires == "" {
		return false
	}
	at, ok := k.Expires.Instant()
	return !ok || !now.Before(at)
}

// check says what is wrong with an entry.
func (k *Key) check() error {
	if len(k.ID) != keyIDLength {
		return fmt.Errorf("id %q does not have %d characters", k.ID, keyIDLength)
	}
	if k.SHA256.IsZero() {
		return errors.New("sha256 is missing")
	}
	for _, t := range k.FileTenants() {
		if _, err := wire.ParseTenantID(string(t)); err != nil {
			return fmt.Errorf("tenantId: %w", err)
		}
	}
	if len(k.Tenants) > MaxKeyTenants {
		return fmt.Errorf("tenants has %d entries, more than %d", len(k.Tenants), MaxKeyTenants)
	}
	if len(k.Tenants) > 0 && !slices.Equal(k.Scopes, []Scope{ScopeFiles}) {
		return fmt.Errorf("only a key whose one scope is %q may list further tenants", ScopeFiles)
	}
	if len(k.Scopes) == 0 {
		return errors.New("scopes is empty")
	}
	for _, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) {
			return fmt.Errorf("scope %q is unknown; scopes are %q", s, Scopes())
		}
	}
	if _, ok := k.Expires.Instant(); k.Expires != "" && !ok {
		return fmt.Errorf("expiresAt %q is not a time as 2027-01-31T00:00:00Z", k.Expires)
	}
	return nil
}

// Limits of a key file.
const (
	MaxKeyTenants  = 16       // further tenants of one key
	MaxKeyFileSize = 16 << 20 // bytes; some 50,000 keys
	MaxKeyName     = 128      // bytes of a key's name
)

// KeySpec says what a new key is to be.
type KeySpec struct {
	Name     string          // for people; may be empty
	TenantID wire.TenantID   // required
	Tenants  []wire.TenantID // further tenants; only for a key with the scope files alone
	Scopes   []Scope         // required
	Expires  time.Time       // zero: never
}

// CreateKey adds a key to the file at path, which it makes if there is none,
// and returns the key's text. The text is told this once and can not be found
// again. When CreateKey returns, the key is durable, and a running server
// honours it within a second. Processes that change one file take turns.
func CreateKey(path string, spec KeySpec) (text string, key Key, err error) {
	if len(spec.Name) > MaxKeyName {
		return "", Key{}, fault.New(fault.Invalid, "KEY_SPEC", "edge: the name of a key may have %d bytes", MaxKeyName).InField("name")
	}
	err = editKeys(path, func(keys []Key) ([]Key, error) {
		var k keyText
		for text, k = newKeyText(); slices.ContainsFunc(keys, func(other Key) bool { return other.ID == k.id }); {
			text, k = newKeyText()
		}
		key = Key{
			ID: k.id, Name: spec.Name, TenantID: spec.TenantID, Tenants: spec.Tenants,
			Scopes: spec.Scopes, SHA256: k.hash, Created: wire.At(time.Now()),
		}
		if !spec.Expires.IsZero() {
			key.Expires = wire.At(spec.Expires)
		}
		if err := key.check(); err != nil {
			return nil, fault.New(fault.Invalid, "KEY_SPEC", "edge: new key: %w", err)
		}
		return append(keys, key), nil
	})
	if err != nil {
		return "", Key{}, err
	}
	return text, key, nil
}

// ListKeys returns the keys of the file at path, in the order of creation. A
// missing file is an error of kind NotFound.
func ListKeys(path string) ([]Key, error) {
	data, err := pebblex.ReadFile(nil, path, MaxKeyFileSize)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "KEY_FILE", "edge: there is no key file %s; creating a first key makes it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("edge: read keys: %w", err)
	}
	return decodeKeys(path, data)
}

// RevokeKey takes the key with the given id out of the file at path. A running
// server refuses the key within a second. An unknown id is an error of kind
// NotFound.
func RevokeKey(path, id string) error {
	return editKeys(path, func(keys []Key) ([]Key, error) {
		rest := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.ID == id })
		if len(rest) == len(keys) {
			return nil, fault.New(fault.NotFound, "KEY_UNKNOWN", "edge: there is no key with the id %q in %s", id, path)
		}
		return rest, nil
	})
}

// editKeys changes the file at path under its lock.
func editKeys(path string, edit func([]Key) ([]Key, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("edge: key file: %w", err)
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return fmt.Errorf("edge: key file: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	keys, err := ListKeys(path)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	keys, err = edit(keys)
	if err != nil {
		return err
	}
	data, err := encodeKeys(keys)
	if err != nil {
		return err
	}
	if err := pebblex.WriteFile(nil, path, data, 0o600); err != nil {
		return fmt.Errorf("edge: key file: %w", err)
	}
	return nil
}

// encodeKeys writes one key a line, so that the file diffs well.
func encodeKeys(keys []Key) ([]byte, error) {
	out := []byte("[")
	for i := range keys {
		line, err := wire.Encode(&keys[i])
		if err != nil {
			return nil, fmt.Errorf("edge: encode keys: %w", err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, '\n'), line...)
	}
	return append(out, "\n]\n"...), nil
}

func decodeKeys(path string, data []byte) ([]Key, error) {
	keys, err := wire.Decode[[]Key](data)
	if err != nil {
		return nil, fault.New(fault.Invalid, "KEY_FILE", "edge: key file %s: %w", path, err)
	}
	seen := map[string]bool{}
	for i := range keys {
		if err := keys[i].check(); err != nil {
			return nil, fault.New(fault.Invalid, "KEY_FILE", "edge: key file %s: entry %d: %w", path, i, err)
		}
		if seen[keys[i].ID] {
			return nil, fault.New(fault.Invalid, "KEY_FILE", "edge: key file %s: entry %d: id %s is there twice", path, i, keys[i].ID)
		}
		seen[keys[i].ID] = true
	}
	return keys, nil
}
