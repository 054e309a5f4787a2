// Package vault encrypts private metadata to its tenant.
//
// Every tenant has a key of its own, made when it is first needed and kept in a
// directory outside any log: records can not be deleted, but a key can, and then
// nobody reads what it sealed. Archives, the network and the job store see only
// what [Vault.Seal] returns. Each tenant key lies in one file, wrapped by a
// key-encryption key (KEK) from a file that only the operator's account may
// read; it is made at the first start. Whoever has a copy of the directory
// without the KEK file has nothing, so keep the two in different backups.
//
// # Promises
//
// A key is on disk, under its final name, before the first byte is sealed with
// it. A key is never overwritten, also not by a second process. A lost or
// exchanged KEK file stops the start: a new one in its place would be worth
// nothing and hide the loss. No key and no plaintext is ever logged, put into an
// error, or written to disk in clear.
//
// # Sealed bytes
//
//	offset  size  field
//	0       7     "VERAESM"
//	7       1     version, 1
//	8       16    key id
//	24      24    nonce, random
//	48      4     CRC-32C of bytes 0 to 47, big endian
//	52      n     ciphertext, as long as the plaintext
//	52+n    16    Poly1305 tag
//
// The cipher is XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03) under
// HKDF-SHA256(tenant key, no salt, "verae-vault/1 seal"). Associated data are
// bytes 0 to 23 and then, each after its length as 8 bytes big endian: tenant id,
// the 32 bytes of the SHA-256, kind, submission id, and the part as 8 bytes big
// endian. So a ciphertext that is moved to another record does not open. The
// checksum tells a damaged key id, which could not be found, from a forgotten
// key.
//
// # Files
//
// "vault" marks the directory and names its KEK; "kek" is the KEK unless it was
// put elsewhere; "tenants" has one file for each tenant, named by
// SHA-256("verae-vault/1 tenant file" || tenant id). Their layout is in
// keyfile.go and kek.go. A new layout takes a new version number and old files
// stay readable.
package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// MaxPlaintext is the largest plaintext Seal takes, in bytes: the largest body
// a record may have.
const MaxPlaintext = wire.MaxBody

// ErrClosed is returned by all methods after Close.
var ErrClosed = errors.New("vault: closed")

// Config says where a vault is.
type Config struct {
	// Dir is the directory of the vault. It must not be inside any append-only
	// store, nor in the backups of one: a forgotten key would come back.
	Dir string

	// KEKFile is the file of the key-encryption key; empty means "kek" in Dir.
	// Put it on another volume to make copies of Dir worthless.
	KEKFile string

	// Create makes the directory, the KEK file and the marker if they are not
	// there. It never replaces anything: with it, a vault that has lost its KEK
	// is refused all the same.
	Create bool

	// Log gets one line for every tenant key that is made. Nil discards.
	Log *slog.Logger
}

// Context is what a ciphertext is bound to: the record it is the body of. Seal
// and Open must be given the same.
type Context struct {
	TenantID     wire.TenantID
	SHA256       wire.Digest
	Kind         wire.Kind
	SubmissionID wire.SubmissionID
	Part         int
}

// A Vault holds the keys of the tenants. All methods may be called from many
// goroutines.
type Vault struct {
	tenantsDir disk
	kek        *kek
	log        *slog.Logger
	metrics    *metrics
	unlock     func() error

	flights singleflight.Group // loads and makes the keys of one tenant once
	flying  sync.WaitGroup     // flights under way; Add only while not closed

	mu     sync.RWMutex // guards closed and keys
	closed bool
	keys   map[wire.TenantID]*keyring // the tenants that were used; never without a key
}

// Open opens a vault, and makes it if c.Create is set. It refuses a directory
// that is no vault (fault.NotFound, VAULT_MISSING), a vault with lost parts
// (fault.Corrupt, VAULT_MARKER), a missing, damaged or
// exchanged KEK file (fault.Corrupt, VAULT_KEK), files that others than their
// owner may use (fault.Internal, VAULT_PERMISSIONS), and a directory that
// somebody has open (fault.Conflict, VAULT_LOCKED). The messages say what to do.
func Open(c Config) (*Vault, error) {
	if c.Dir == "" {
		return nil, errors.New("vault: no directory is given")
	}
	kekFile := c.KEKFile
	if kekFile == "" {
		kekFile = filepath.Join(c.Dir, kekName)
	}
	if err := prepare(c); err != nil {
		return nil, err
	}
	unlock, err := lock(c.Dir)
	if err != nil {
		return nil, err
	}
	v, err := open(places{
		dir:     osDisk(c.Dir),
		tenants: osDisk(filepath.Join(c.Dir, tenantsName)),
		kek:     osDisk(filepath.Dir(kekFile)),
		kekName: filepath.Base(kekFile),
	}, c.Create, c.Log)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	v.unlock = unlock
	return v, nil
}

// prepare makes the directories of a new vault. Those of a vault that was made
// before are never made again: if they are gone, so are the keys.
func prepare(c Config) error {
	_, err := os.Stat(filepath.Join(c.Dir, markerName))
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("vault: %w", err)
	case c.Create:
		if err := makeDir(filepath.Join(c.Dir, tenantsName)); err != nil {
			return fmt.Errorf("vault: make %s: %w", c.Dir, err)
		}
		return nil
	}
	if _, err := os.Stat(filepath.Join(c.Dir, tenantsName)); err != nil {
		return missing(c.Dir)
	}
	return nil
}

// places are the directories of a vault.
type places struct {
	dir, tenants, kek disk
	kekName           string
}

// check looks at the permissions of the directories and removes what unfinished
// writes left there. The outer directory may well be made by hand, with the
// write permission for the group that many systems give by default; the inner
// one is always ours.
func check(p places) error {
	for _, d := range []struct {
		disk
		loose fs.FileMode
	}{{p.dir, 0o002}, {p.tenants, 0o022}} {
		err := d.Private(d.loose)
		if errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Corrupt, "VAULT_MARKER", "vault: the directory %s is gone; put it back from a backup of the vault", d)
		}
		if err == nil {
			err = sweep(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open is Open on any disk, without the lock.
func open(p places, create bool, log *slog.Logger) (*Vault, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	k, err := openKEK(p, create)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Vault{
		tenantsDir: p.tenants,
		kek:        k,
		log:        log,
		metrics:    newMetrics(),
		unlock:     func() error { return nil },
		keys:       map[wire.TenantID]*keyring{},
	}, nil
}

func missing(dir string) error {
	return fault.New(fault.NotFound, "VAULT_MISSING",
		"vault: %s is no vault; make it once with create, or check the path", dir)
}

// Close waits for keys that are just being made, forgets the cached ones and
// releases the directory. Nothing is lost without it.
func (v *Vault) Close() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil
	}
	v.closed, v.keys = true, nil
	v.mu.Unlock()
	v.flying.Wait()
	return v.unlock()
}
