package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// keysCmd keeps the file of API keys. It works on the file, not through the
// server: whoever may write it decides who may call.
type keysCmd struct {
	File   string    `name:"file" type:"path" env:"API_KEYS_FILE" required:"" help:"The aggregator's file of API keys; it is made if it is not there."`
	Create keyCreate `cmd:"" help:"Make a key and print it, once."`
	List   keyList   `cmd:"" help:"List the keys, without their secrets."`
	Revoke keyRevoke `cmd:"" help:"Remove a key; it is refused within a second."`
}

type keyCreate struct {
	Tenant  string        `arg:"" help:"Tenant the key acts for."`
	Scopes  []string      `default:"stamp,read,files" help:"What it may do: stamp, read, files, hooks, admin."`
	Tenants []string      `help:"Further tenants whose files the key may fetch, separated by commas; only with --scopes files."`
	Name    string        `help:"A note on what it is for."`
	Expires time.Duration `help:"How long it is valid; 0: for ever."`
}

// Run makes a key.
func (c *keyCreate) Run(s *session, keys *keysCmd) error {
	tenant, err := wire.ParseTenantID(c.Tenant)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	spec := edge.KeySpec{TenantID: tenant, Name: c.Name}
	for _, scope := range c.Scopes {
		spec.Scopes = append(spec.Scopes, edge.Scope(scope))
	}
	for _, t := range c.Tenants {
		further, err := wire.ParseTenantID(t)
		if err != nil {
			return fault.Wrap(fault.Invalid, err)
		}
		spec.Tenants = append(spec.Tenants, further)
	}
	if c.Expires != 0 {
		spec.Expires = time.Now().Add(c.Expires)
	}
	text, key, err := edge.CreateKey(keys.File, spec)
	if err != nil {
		return err
	}
	made := map[string]any{"key": text, "id": key.ID, "tenantId": key.TenantID, "scopes": key.Scopes}
	if len(key.Tenants) > 0 {
		made["tenants"] = key.Tenants
	}
	return s.print(made, func() { s.line(text) })
}

type keyList struct{}

// Run lists the keys.
func (keyList) Run(s *session, keys *keysCmd) error {
	list, err := edge.ListKeys(keys.File)
	if err != nil {
		return err
	}
	for _, k := range list {
		fields := []any{k.ID, k.TenantID, k.Scopes, k.Name}
		if len(k.Tenants) > 0 {
			fields = slices.Insert(fields, 3, any(k.Tenants))
		}
		if err := s.print(k, func() { s.line(fields...) }); err != nil {
			return err
		}
	}
	return nil
}

type keyRevoke struct {
	ID string `arg:"" help:"Id of the key, as listed."`
}

// Run removes a key.
func (c *keyRevoke) Run(s *session, keys *keysCmd) error {
	if err := edge.RevokeKey(keys.File, c.ID); err != nil {
		return fmt.Errorf("revoke %s: %w", c.ID, err)
	}
	return s.print(map[string]string{"revoked": c.ID}, func() { s.line("revoked", c.ID) })
}
