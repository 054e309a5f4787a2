package vault_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/vault"
)

// made returns the directory of a closed vault with one key and what it sealed.
func made(t *testing.T) (dir string, sealed []byte) {
	t.Helper()
	dir = t.TempDir()
	v := open(t, vault.Config{Dir: dir, Create: true})
	sealed = seal(t, v, record("acme"))
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, sealed
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLossIsRefusedAndExplained(t *testing.T) {
	for _, c := range []struct {
		name  string
		harm  func(t *testing.T, dir string)
		kind  fault.Kind
		code  string
		words []string
	}{
		{"KEK missing", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "kek"))) },
			fault.Corrupt, "VAULT_KEK", []string{`"kek"`, "is missing", "backup"}},
		{"KEK exchanged", func(t *testing.T, dir string) {
			other, _ := made(t)
			data, err := os.ReadFile(filepath.Join(other, "kek"))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, "kek"), data, 0o600))
		}, fault.Corrupt, "VAULT_KEK", []string{"another key", "backup"}},
		{"KEK damaged", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "kek"), 20) },
			fault.Corrupt, "VAULT_KEK", []string{"damaged", "backup"}},
		{"KEK empty", func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, "kek"), 0)) },
			fault.Corrupt, "VAULT_KEK", []string{"damaged"}},
		{"marker missing", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "vault"))) },
			fault.Corrupt, "VAULT_MARKER", []string{"backup"}},
		{"marker damaged", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "vault"), 16) },
			fault.Corrupt, "VAULT_MARKER", []string{"damaged"}},
		{"marker of another vault", func(t *testing.T, dir string) {
			other, _ := made(t)
			must(t, os.Rename(filepath.Join(other, "vault"), filepath.Join(dir, "vault")))
		}, fault.Corrupt, "VAULT_KEK", nil},
		{"tenants gone", func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "tenants"))) },
			fault.Corrupt, "VAULT_MARKER", []string{"tenants", "backup"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := made(t)
			c.harm(t, dir)
			for _, create := range []bool{false, true} {
				v, err := vault.Open(vault.Config{Dir: dir, Create: create})
				if err == nil {
					v.Close()
				}
				wantFault(t, err, c.kind, c.code)
				for _, w := range c.words {
					if err == nil || !strings.Contains(err.Error(), w) {
						t.Errorf("%v does not say %q", err, w)
					}
				}
			}
		})
	}
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	data[at] ^= 1
	must(t, os.WriteFile(path, data, 0o600))
}

func TestOnlyCreateMakesAVault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	for range 2 {
		_, err := vault.Open(vault.Config{Dir: dir})
		wantFault(t, err, fault.NotFound, "VAULT_MISSING")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a refused start made the directory")
	}
	if _, err := vault.Open(vault.Config{}); err == nil {
		t.Error("a vault without a directory opened")
	}
}

func TestAnOperatorsKEKIsTakenAndKept(t *testing.T) {
	dir, _ := made(t)
	kek, err := os.ReadFile(filepath.Join(dir, "kek"))
	must(t, err)
	file := filepath.Join(t.TempDir(), "my.key")
	// Pasted by hand: blanks and line ends around it.
	must(t, os.WriteFile(file, []byte(" "+string(kek)+"\r\n\n"), 0o600))
	c := vault.Config{Dir: filepath.Join(t.TempDir(), "v"), KEKFile: file, Create: true}
	v := open(t, c)
	sealed := seal(t, v, record("acme"))
	must(t, v.Close())
	if got := strings.Join(files(t, c.Dir), " "); got != "lock tenants vault" {
		t.Errorf("the directory has %q, want no KEK in it", got)
	}
	c.Create = false
	if _, err := open(t, c).Open(t.Context(), record("acme"), sealed); err != nil {
		t.Error(err)
	}
}

func TestAKEKInANewFileIsMadeWhereItIsWanted(t *testing.T) {
	c := vault.Config{Dir: t.TempDir(), KEKFile: filepath.Join(t.TempDir(), "other.key"), Create: true}
	seal(t, open(t, c), record("acme"))
	info, err := os.Stat(c.KEKFile)
	must(t, err)
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	c = vault.Config{Dir: t.TempDir(), KEKFile: filepath.Join(t.TempDir(), "no", "such", "dir"), Create: true}
	if v, err := vault.Open(c); err == nil {
		v.Close()
		t.Error("a KEK was made in a directory that does not exist")
	}
}

func TestLooseFilesAreRefused(t *testing.T) {
	tenantFile := func(t *testing.T, dir string) string {
		return filepath.Join(dir, "tenants", files(t, filepath.Join(dir, "tenants"))[0])
	}
	for _, c := range []struct {
		name string
		path func(t *testing.T, dir string) string
		mode os.FileMode
		ok   bool
	}{
		{"KEK for the group", func(_ *testing.T, dir string) string { return filepath.Join(dir, "kek") }, 0o640, false},
		{"KEK for all", func(_ *testing.T, dir string) string { return filepath.Join(dir, "kek") }, 0o604, false},
		{"KEK read-only", func(_ *testing.T, dir string) string { return filepath.Join(dir, "kek") }, 0o400, true},
		{"marker for the group", func(_ *testing.T, dir string) string { return filepath.Join(dir, "vault") }, 0o660, false},
		{"keys for the group", tenantFile, 0o640, false},
		{"directory of keys", func(_ *testing.T, dir string) string { return filepath.Join(dir, "tenants") }, 0o770, false},
		{"directory for all", func(_ *testing.T, dir string) string { return dir }, 0o777, false},
		{"directory for the group", func(_ *testing.T, dir string) string { return dir }, 0o775, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, sealed := made(t)
			must(t, os.Chmod(c.path(t, dir), c.mode))
			v, err := vault.Open(vault.Config{Dir: dir})
			if err == nil {
				defer v.Close()
				_, err = v.Open(t.Context(), record("acme"), sealed)
			}
			if c.ok {
				must(t, err)
				return
			}
			wantFault(t, err, fault.Internal, "VAULT_PERMISSIONS")
			if err == nil || !strings.Contains(err.Error(), "chmod") {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}

func TestDamagedAndMovedKeyFilesAreCorrupt(t *testing.T) {
	dir, sealed := made(t)
	tenants := filepath.Join(dir, "tenants")
	acme := filepath.Join(tenants, files(t, tenants)[0])
	good, err := os.ReadFile(acme)
	must(t, err)
	check := func(name string) {
		t.Helper()
		v := open(t, vault.Config{Dir: dir})
		defer v.Close()
		_, err := v.Open(t.Context(), record("acme"), sealed)
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "put") {
			t.Errorf("%s: %v, want Corrupt and what to do", name, err)
		}
		// Nor is a new key made in its place.
		if _, err := v.Seal(t.Context(), record("acme"), nil); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: Seal = %v, want Corrupt", name, err)
		}
	}
	for i := 0; i < len(good); i += 5 {
		flip(t, acme, i)
		check("flipped")
		must(t, os.WriteFile(acme, good, 0o600))
	}
	for _, n := range []int{0, 8, 30, len(good) - 1} {
		must(t, os.WriteFile(acme, good[:n], 0o600))
		check("cut")
	}
	must(t, os.WriteFile(acme, good, 0o600))

	v := open(t, vault.Config{Dir: dir})
	seal(t, v, record("globex"))
	must(t, v.Close())
	for _, name := range files(t, tenants) {
		if other := filepath.Join(tenants, name); other != acme {
			must(t, os.Rename(other, acme))
		}
	}
	check("another tenant's file")
}
