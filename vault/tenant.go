package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/verae/archive/wire"
)

// keyringOf returns the keys of a tenant; if there are none, it makes the first
// one when create is set and returns nil otherwise. It waits for the disk, at
// most until ctx ends; a key that is being made then is made all the same.
func (v *Vault) keyringOf(ctx context.Context, tenant wire.TenantID, create bool) (*keyring, error) {
	if tenant == "" {
		return nil, errors.New("vault: no tenant is given")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ring, err := v.cached(tenant)
	if ring != nil || err != nil {
		return ring, err
	}
	// One flight a tenant, and one more that only looks: it must not make a key
	// for somebody who only wanted to read.
	flight := "look " + string(tenant)
	if create {
		flight = "make " + string(tenant)
	}
	done := v.flights.DoChan(flight, func() (any, error) {
		if !v.takeOff() {
			return nil, ErrClosed
		}
		defer v.flying.Done()
		ring, err := v.fetch(tenant, create)
		if ring != nil && err == nil {
			v.keep(tenant, ring)
		}
		return ring, err
	})
	select {
	case r := <-done:
		ring, _ := r.Val.(*keyring)
		return ring, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (v *Vault) cached(tenant wire.TenantID) (*keyring, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.closed {
		return nil, ErrClosed
	}
	return v.keys[tenant], nil
}

// takeOff announces work on the disk, for which Close waits.
func (v *Vault) takeOff() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.closed {
		v.flying.Add(1)
	}
	return !v.closed
}

func (v *Vault) keep(tenant wire.TenantID, ring *keyring) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.keys[tenant] = ring
	}
}

// fetch reads the keys of a tenant from the disk, or makes them.
func (v *Vault) fetch(tenant wire.TenantID, create bool) (*keyring, error) {
	ring, err := v.load(tenant)
	if ring != nil || err != nil || !create {
		return ring, err
	}
	made := makeKeyring()
	switch err := writeNew(v.tenantsDir, tenantFile(tenant), made.encode(v.kek, tenant)); {
	case errors.Is(err, fs.ErrExist):
		return v.load(tenant) // another process was first: its key is the key
	case err != nil:
		return nil, err
	}
	v.metrics.made.Inc()
	v.log.Info("made the key of a tenant", "tenant", tenant)
	return made, nil
}

// load returns the stored keys of a tenant, or nil if there are none.
func (v *Vault) load(tenant wire.TenantID) (*keyring, error) {
	data, err := v.tenantsDir.Read(tenantFile(tenant))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("vault: read a tenant's key: %w", err)
	}
	ring, err := decodeKeyring(v.kek, tenant, data)
	if err != nil {
		return nil, err
	}
	// Its content was durable before it got its name; whether the name is, is not
	// known if the write that gave it failed or another process is at it.
	if err := v.tenantsDir.Sync(); err != nil {
		return nil, fmt.Errorf("vault: sync %s: %w", v.tenantsDir, err)
	}
	return ring, nil
}
