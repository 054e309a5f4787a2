package vault

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"path/filepath"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// Files lists what a copy of the vault in dir needs, relative to it and with
// slashes: the marker, the KEK if it lies there, and the tenants' keys. Keys that
// are made later are not in it.
func Files(dir string) (files []string, err error) {
	for _, sub := range []string{"", tenantsName} {
		names, err := osDisk(filepath.Join(dir, sub)).Names()
		if err != nil {
			return nil, fault.New(fault.NotFound, "VAULT_MISSING", "vault: %s is no vault: %w", dir, err)
		}
		for _, name := range names {
			if strings.Contains(name, tempMark) || sub == "" && name != markerName && name != kekName {
				continue
			}
			files = append(files, strings.TrimPrefix(sub+"/"+name, "/"))
		}
	}
	return files, nil
}

// Check reads every tenant's key file and returns how many there are. A file that
// does not match its checksum, or belongs to another KEK, is fault.Corrupt. That
// a key is the one of its tenant shows only when it is used.
func (v *Vault) Check() (tenants int, err error) {
	names, err := v.tenantsDir.Names()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if strings.Contains(name, tempMark) {
			continue
		}
		data, err := v.tenantsDir.Read(name)
		if err != nil {
			return tenants, err
		}
		body := len(data) - crcSize
		sum, err := hex.DecodeString(name)
		switch {
		case err != nil || len(sum) != 32:
			return tenants, fault.New(fault.Corrupt, "KEY_DAMAGED", "vault: %s is no key file", name)
		case body < keyFileHeader+2 || string(data[:len(keyFileMagic)]) != keyFileMagic ||
			crc32.Checksum(data[:body], castagnoli) != binary.BigEndian.Uint32(data[body:]):
			return tenants, fault.New(fault.Corrupt, "KEY_DAMAGED", "vault: the key file %s is damaged; put it back from a backup of the directory", name)
		case keyID(data[len(keyFileMagic):keyFileHeader]) != keyID(v.kek.id):
			return tenants, fault.New(fault.Corrupt, "VAULT_KEK", "vault: the key file %s was wrapped by another key-encryption key than this vault's", name)
		}
		tenants++
	}
	return tenants, nil
}
