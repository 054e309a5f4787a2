package vault

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"

	"github.com/verae/archive/wire"
)

// MAC returns HMAC-SHA256 of data under a key derived from the tenant's oldest
// key for this purpose alone:
//
//	HKDF-SHA256(tenant key, no salt, "verae-vault/1 mac " || purpose)
//
// Equal data of two tenants, or for two purposes, have nothing in common. The
// result stays the same until the tenant's keys are forgotten. The tenant's key
// is made if there is none.
func (v *Vault) MAC(tenant wire.TenantID, purpose string, data []byte) ([32]byte, error) {
	ring, err := v.keyringOf(context.Background(), tenant, true)
	if err != nil {
		return [32]byte{}, err
	}
	return mac(ring.keys[0], purpose, data), nil
}

func mac(k tenantKey, purpose string, data []byte) (sum [32]byte) {
	h := hmac.New(sha256.New, derive(k.root[:], "verae-vault/1 mac "+purpose)[:])
	h.Write(data)
	h.Sum(sum[:0])
	return sum
}
