package world

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/wire"
)

// devKeysFile holds the texts of the development keys, which the aggregator's
// own file does not. It is readable by its owner alone.
const devKeysFile = "dev-keys.json"

// devKeys returns the development keys of tenants, and makes those that are
// missing.
func devKeys(dir, keysFile string, tenants []wire.TenantID) (map[wire.TenantID]string, error) {
	path := filepath.Join(dir, devKeysFile)
	keys := map[wire.TenantID]string{}
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("world: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(data, &keys); err != nil {
			return nil, fmt.Errorf("world: %s: %w", path, err)
		}
	}
	for _, t := range tenants {
		if keys[t] != "" {
			continue
		}
		text, _, err := edge.CreateKey(keysFile, edge.KeySpec{TenantID: t, Name: "development", Scopes: edge.Scopes()})
		if err != nil {
			return nil, fmt.Errorf("world: key of %s: %w", t, err)
		}
		keys[t] = text
	}
	if data, err = json.MarshalIndent(keys, "", "  "); err != nil {
		return nil, fmt.Errorf("world: %w", err)
	}
	return keys, WriteFile(path, data)
}

// filterKey makes the key of the fleet's filters if it is not there.
func filterKey(path string) error {
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		return err
	}
	return WriteFile(path, []byte(archive.NewFilterKey()))
}

// WriteFile replaces a file in one step, readable by its owner alone: a reader
// sees the old content or the new one, whole.
func WriteFile(path string, data []byte) error {
	half := path + ".new"
	if err := os.WriteFile(half, data, 0o600); err != nil {
		return fmt.Errorf("world: %w", err)
	}
	if err := os.Rename(half, path); err != nil {
		return fmt.Errorf("world: %w", err)
	}
	return nil
}
