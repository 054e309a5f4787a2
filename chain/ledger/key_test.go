package ledger

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// TestOnlyItsOwnKeyOpensALedger: with any other key file the log would go on
// under signatures that nobody who holds a certificate can tie to it.
func TestOnlyItsOwnKeyOpensALedger(t *testing.T) {
	l, cfg := newLedger(t)
	h := held{}
	h.register(t, l, 1, 2)
	closeLedger(t, l)
	mine, err := pebblex.ReadFile(cfg.FS, l.cfg.keyFile(), maxKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	other, err := generateKey(DefaultOrigin)
	if err != nil {
		t.Fatal(err)
	}
	renamed, err := generateKey("example.com/other")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  string
		kind fault.Kind
	}{
		"another key":    {other.text, fault.Conflict},
		"another origin": {renamed.text, fault.Conflict},
		"cut":            {string(mine[:len(mine)-8]), fault.Corrupt},
		"empty":          {"", fault.Corrupt},
		"public key":     {l.VerifierKey(), fault.Corrupt},
		"not a key":      {"PRIVATE+KEY+a", fault.Corrupt},
	} {
		if err := pebblex.WriteFile(cfg.FS, l.cfg.keyFile(), []byte(c.key), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(cfg)
		if !fault.Is(err, c.kind) || fault.CodeOf(err) != "LEDGER_KEY" {
			t.Errorf("%s: %v (%v)", name, err, fault.KindOf(err))
		}
		if len(c.key) > 20 && strings.Contains(err.Error(), c.key[len(c.key)-20:]) && name != "public key" {
			t.Errorf("%s: the message shows the key: %v", name, err)
		}
	}
	removeAll(t, cfg.FS, l.cfg.keyFile())
	_, err = Open(cfg)
	wantCode(t, err, fault.Corrupt, "LEDGER_KEY", "missing")
	wantCode(t, Init(cfg), fault.Conflict, "LEDGER_EXISTS", "key file back")

	if err := pebblex.WriteFile(cfg.FS, l.cfg.keyFile(), mine, 0o600); err != nil {
		t.Fatal(err)
	}
	h.check(t, openLedger(t, cfg))
}

func TestKeyFileIsPrivate(t *testing.T) {
	cfg := testConfig(vfs.Default)
	cfg.Dir = t.TempDir()
	initLedger(t, cfg)
	info, err := os.Stat(filepath.Join(cfg.Dir, "ledger.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	err = filepath.WalkDir(cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".new") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
