package vault

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A tenant's key file:
//
//	offset  size  field
//	0       7     "VERAETK"
//	7       1     version, 1
//	8       16    id of the KEK
//	24      2     n, how many keys follow, big endian; at least 1
//	26      88n   keys, oldest first
//	26+88n  4     CRC-32C of all bytes before, big endian
//
// and each key:
//
//	0       16    key id: its number from 1 as 4 bytes big endian, 12 random bytes
//	16      24    nonce, random
//	40      48    the key, sealed with XChaCha20-Poly1305 under the wrapping key
//
// Associated data are bytes 0 to 23 of the file, the tenant id after its length
// (8 bytes big endian), and the key id: a file put in the place of another
// tenant's does not open.
const (
	keyFileMagic  = "VERAETK\x01"
	keyFileHeader = len(keyFileMagic) + idSize
	keyEntrySize  = idSize + chacha20poly1305.NonceSizeX + keySize + chacha20poly1305.Overhead
	crcSize       = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keyID names one key of one tenant for ever. The random part makes a key that
// was made after another was forgotten a different key.
type keyID [idSize]byte

// A keyring holds the keys of one tenant, oldest first, never empty. It is not
// changed after it was made.
type keyring struct {
	keys []tenantKey
}

type tenantKey struct {
	id   keyID
	root *secret     // what is stored; all other keys derive from it
	seal cipher.AEAD // under the key derived for sealing
}

func newTenantKey(id keyID, root *secret) tenantKey {
	return tenantKey{id: id, root: root, seal: aead(derive(root[:], "verae-vault/1 seal"))}
}

func aead(key *secret) cipher.AEAD {
	a, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic("vault: " + err.Error()) // only for keys of another size
	}
	return a
}

// newest is the key that seals.
func (r *keyring) newest() tenantKey { return r.keys[len(r.keys)-1] }

// find returns the key with the given id.
func (r *keyring) find(id keyID) (tenantKey, bool) {
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return tenantKey{}, false
}

// makeKeyring returns a keyring with one new key.
func makeKeyring() *keyring {
	var id keyID
	root := new(secret)
	rand.Read(id[4:]) // never fails
	rand.Read(root[:])
	binary.BigEndian.PutUint32(id[:], 1)
	return &keyring{[]tenantKey{newTenantKey(id, root)}}
}

// tenantFile is the name of a tenant's key file. It does not show the tenant's
// id to a look at the directory, but is no secret either.
func tenantFile(tenant wire.TenantID) string {
	sum := sha256.Sum256([]byte("verae-vault/1 tenant file" + string(tenant)))
	return hex.EncodeToString(sum[:])
}

// encode returns the key file of a tenant.
func (r *keyring) encode(k *kek, tenant wire.TenantID) []byte {
	out := append([]byte(keyFileMagic), k.id[:]...)
	out = binary.BigEndian.AppendUint16(out, uint16(len(r.keys)))
	wrap := aead(k.wrap)
	for _, key := range r.keys {
		nonce := make([]byte, chacha20poly1305.NonceSizeX)
		rand.Read(nonce)
		out = append(append(out, key.id[:]...), nonce...)
		out = wrap.Seal(out, nonce, key.root[:], wrapData(k, tenant, key.id))
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// decodeKeyring is the inverse of encode.
func decodeKeyring(k *kek, tenant wire.TenantID, data []byte) (*keyring, error) {
	name := tenantFile(tenant)
	damaged := fault.New(fault.Corrupt, "KEY_DAMAGED",
		"vault: the key file %s is damaged; put it back from a backup of the directory", name)
	body := len(data) - crcSize
	if body < keyFileHeader+2 || string(data[:len(keyFileMagic)]) != keyFileMagic ||
		crc32.Checksum(data[:body], castagnoli) != binary.BigEndian.Uint32(data[body:]) {
		return nil, damaged
	}
	if keyID(data[len(keyFileMagic):keyFileHeader]) != keyID(k.id) {
		return nil, fault.New(fault.Corrupt, "VAULT_KEK",
			"vault: the key file %s was wrapped by another key-encryption key than this vault's; put back the files that belong together", name)
	}
	n := int(binary.BigEndian.Uint16(data[keyFileHeader:]))
	entries := data[keyFileHeader+2 : body]
	if n == 0 || len(entries) != n*keyEntrySize {
		return nil, damaged
	}
	ring := &keyring{keys: make([]tenantKey, 0, n)}
	wrap := aead(k.wrap)
	for ; len(entries) > 0; entries = entries[keyEntrySize:] {
		id := keyID(entries[:idSize])
		nonce := entries[idSize : idSize+chacha20poly1305.NonceSizeX]
		root, err := wrap.Open(nil, nonce, entries[idSize+len(nonce):keyEntrySize], wrapData(k, tenant, id))
		if err != nil {
			return nil, damaged
		}
		ring.keys = append(ring.keys, newTenantKey(id, (*secret)(root)))
	}
	return ring, nil
}

func wrapData(k *kek, tenant wire.TenantID, id keyID) []byte {
	data := append([]byte(keyFileMagic), k.id[:]...)
	data = appendField(data, string(tenant))
	return append(data, id[:]...)
}
