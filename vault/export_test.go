package vault

import "github.com/verae/archive/wire"

// KeysOf returns the wrapping key and the stored keys of a tenant.
func KeysOf(v *Vault, tenant wire.TenantID) [][]byte {
	out := [][]byte{v.kek.wrap[:]}
	for _, k := range v.keys[tenant].keys {
		out = append(out, k.root[:])
	}
	return out
}
