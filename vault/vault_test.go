package vault_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// canary is plaintext that must never be found on disk, in logs or in errors.
const canary = `{"price":"canary-8d1f6c"}`

func record(tenant wire.TenantID) vault.Context {
	return vault.Context{
		TenantID: tenant, SHA256: wire.Digest{1, 2, 3}, Kind: wire.KindPrivateMetadata,
		SubmissionID: "0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a4b", Part: 1,
	}
}

func open(t *testing.T, c vault.Config) *vault.Vault {
	t.Helper()
	v, err := vault.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func seal(t *testing.T, v *vault.Vault, c vault.Context) []byte {
	t.Helper()
	sealed, err := v.Seal(t.Context(), c, []byte(canary))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// wantFault checks kind and code of err and that it gives nothing away.
func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if !fault.Is(err, kind) || fault.CodeOf(err) != code {
		t.Errorf("error %v (%v %s), want %v %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
	if err != nil && strings.Contains(err.Error(), "canary") {
		t.Errorf("the error shows the plaintext: %v", err)
	}
}

func TestSealedBytesOpenOnlyForTheirRecord(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	c := record("acme")
	sealed := seal(t, v, c)
	if got, err := v.Open(t.Context(), c, sealed); err != nil || string(got) != canary {
		t.Fatalf("Open = %q, %v", got, err)
	}
	if len(sealed) != len(canary)+vault.Overhead {
		t.Errorf("%d bytes sealed from %d, want %d more", len(sealed), len(canary), vault.Overhead)
	}
	if again := seal(t, v, c); bytes.Equal(again, sealed) {
		t.Error("sealing twice gave the same bytes")
	}
	for name, change := range map[string]func(*vault.Context){
		"sha256":       func(c *vault.Context) { c.SHA256[31] ^= 1 },
		"kind":         func(c *vault.Context) { c.Kind = "note" },
		"submissionId": func(c *vault.Context) { c.SubmissionID = "" },
		"part":         func(c *vault.Context) { c.Part = 0 },
		"fields moved": func(c *vault.Context) { c.Kind, c.SubmissionID = c.Kind+"0", c.SubmissionID[1:] },
	} {
		other := c
		change(&other)
		_, err := v.Open(t.Context(), other, sealed)
		t.Run(name, func(t *testing.T) { wantFault(t, err, fault.Corrupt, "SEALED_TAMPERED") })
	}
}

func TestAnotherTenantIsToldNothing(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	sealed := seal(t, v, record("acme"))
	_, err := v.Open(t.Context(), record("globex"), sealed)
	wantFault(t, err, fault.NotFound, "KEY_FORGOTTEN")
	without := err.Error()
	seal(t, v, record("globex")) // now globex has a key of its own
	_, err = v.Open(t.Context(), record("globex"), sealed)
	wantFault(t, err, fault.NotFound, "KEY_FORGOTTEN")
	if err.Error() != without {
		t.Errorf("errors differ: %q, %q", err, without)
	}
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	c := record("acme")
	sealed := seal(t, v, c)
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 0x10
		if _, err := v.Open(t.Context(), c, bad); !fault.Is(err, fault.Corrupt) {
			t.Fatalf("byte %d changed: %v, want Corrupt", i, err)
		}
	}
	for n := range sealed {
		if _, err := v.Open(t.Context(), c, sealed[:n]); !fault.Is(err, fault.Corrupt) {
			t.Fatalf("cut to %d bytes: %v, want Corrupt", n, err)
		}
	}
	_, err := v.Open(t.Context(), c, append(bytes.Clone(sealed), 0))
	wantFault(t, err, fault.Corrupt, "SEALED_TAMPERED")
}

func TestPlaintextLimitIsExact(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	c := record("acme")
	for _, n := range []int{0, 1, vault.MaxPlaintext} {
		plain := bytes.Repeat([]byte("x"), n)
		sealed, err := v.Seal(t.Context(), c, plain)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if len(sealed) > wire.MaxSealedBody {
			t.Errorf("%d bytes sealed are %d, more than the body of a record may have", n, len(sealed))
		}
		if got, err := v.Open(t.Context(), c, sealed); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes do not come back: %v", n, err)
		}
	}
	_, err := v.Seal(t.Context(), c, make([]byte, vault.MaxPlaintext+1))
	wantFault(t, err, fault.Invalid, "METADATA_TOO_LARGE")
	_, err = v.Open(t.Context(), c, make([]byte, vault.MaxPlaintext+vault.Overhead+1))
	wantFault(t, err, fault.Corrupt, "SEALED_DAMAGED")
}

func TestKeysSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := vault.Config{Dir: dir, Create: true}
	v := open(t, c)
	sealed := seal(t, v, record("acme"))
	sum, err := v.MAC("acme", "fingerprint", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{false, true} {
		c.Create = create
		v := open(t, c)
		if got, err := v.Open(t.Context(), record("acme"), sealed); err != nil || string(got) != canary {
			t.Errorf("create %v: Open = %q, %v", create, got, err)
		}
		if again, err := v.MAC("acme", "fingerprint", []byte("x")); err != nil || again != sum {
			t.Errorf("create %v: the MAC changed over a restart: %v", create, err)
		}
		v.Close()
	}
}

func TestMACDependsOnTenantPurposeAndData(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	seen := map[[32]byte]string{}
	for _, tenant := range []wire.TenantID{"acme", "globex"} {
		for _, purpose := range []string{"", "a", "ab"} {
			for _, data := range []string{"", "b", "c"} {
				sum, err := v.MAC(tenant, purpose, []byte(data))
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("%s/%s/%s", tenant, purpose, data)
				if seen[sum] != "" {
					t.Errorf("%s and %s have one MAC", name, seen[sum])
				}
				seen[sum] = name
			}
		}
	}
}

func TestConcurrentFirstUseMakesOneKey(t *testing.T) {
	dir := t.TempDir()
	v := open(t, vault.Config{Dir: dir, Create: true})
	const n = 32
	sums := make([][32]byte, n)
	sealed := make([][]byte, n)
	errs := make([]error, 2*n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { sums[i], errs[i] = v.MAC("acme", "p", nil) })
		wg.Go(func() { sealed[i], errs[n+i] = v.Seal(context.Background(), record("acme"), []byte(canary)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if sums[i] != sums[0] {
			t.Fatal("two keys were used")
		}
		if _, err := v.Open(t.Context(), record("acme"), sealed[i]); err != nil {
			t.Fatal(err)
		}
	}
	if got := files(t, filepath.Join(dir, "tenants")); len(got) != 1 {
		t.Errorf("key files %q, want one", got)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestReadersMakeNoKeys(t *testing.T) {
	dir := t.TempDir()
	v := open(t, vault.Config{Dir: dir, Create: true})
	sealed := seal(t, v, record("acme"))
	for i := range 100 {
		_, err := v.Open(t.Context(), record(wire.TenantID(fmt.Sprintf("t%d", i))), sealed)
		wantFault(t, err, fault.NotFound, "KEY_FORGOTTEN")
	}
	if got := files(t, filepath.Join(dir, "tenants")); len(got) != 1 {
		t.Errorf("%d key files, want acme's", len(got))
	}
}

func TestNothingSecretIsOnDiskOrInTheLog(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	v := open(t, vault.Config{Dir: dir, Create: true, Log: log})
	const tenant = "tenant-canary"
	seal(t, v, record(tenant))
	if _, err := v.MAC(tenant, "p", []byte(canary)); err != nil {
		t.Fatal(err)
	}
	log.Info("everything", "vault", v, "text", fmt.Sprintf("%v %+v %#v", v, v, v))
	line, err := os.ReadFile(filepath.Join(dir, "kek"))
	if err != nil {
		t.Fatal(err)
	}
	kek, err := hex.DecodeString(strings.Fields(string(line))[1])
	if err != nil {
		t.Fatal(err)
	}
	secrets := append(vault.KeysOf(v, tenant), kek, []byte("canary-8d1f6c"))
	if got := out.String(); shows(got, secrets) || !strings.Contains(got, "tenant="+tenant) {
		t.Errorf("log %q", got)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		allowed := secrets
		if filepath.Base(path) == "kek" {
			allowed = append(vault.KeysOf(v, tenant), []byte("canary-8d1f6c"))
		}
		if shows(string(data), allowed) || strings.Contains(path+string(data), "canary") {
			t.Errorf("a secret or the tenant's name is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// shows reports whether text has one of the secrets, raw, in hex, or as fmt
// prints bytes.
func shows(text string, secrets [][]byte) bool {
	for _, s := range secrets {
		for _, form := range []string{string(s), hex.EncodeToString(s), strings.Trim(fmt.Sprint(s), "[]")} {
			if strings.Contains(text, form) {
				return true
			}
		}
	}
	return false
}

func TestCloseEndsTheVault(t *testing.T) {
	dir := t.TempDir()
	v := open(t, vault.Config{Dir: dir, Create: true})
	sealed := seal(t, v, record("acme"))
	if _, err := vault.Open(vault.Config{Dir: dir}); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "VAULT_LOCKED" {
		t.Errorf("opening it twice: %v, want VAULT_LOCKED", err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Errorf("second Close = %v", err)
	}
	_, sealErr := v.Seal(t.Context(), record("acme"), nil)
	_, openErr := v.Open(t.Context(), record("acme"), sealed)
	_, macErr := v.MAC("acme", "p", nil)
	for _, err := range []error{sealErr, openErr, macErr} {
		if !errors.Is(err, vault.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	}
	open(t, vault.Config{Dir: dir})
}

func TestCallersWhoLeftGetTheirOwnError(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Seal(ctx, record("acme"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Seal = %v", err)
	}
	if _, err := v.Seal(t.Context(), vault.Context{}, nil); err == nil || fault.KindOf(err) != fault.Internal {
		t.Errorf("Seal without a tenant = %v, want Internal", err)
	}
}

func TestMetricsCountKeysAndFailures(t *testing.T) {
	v := open(t, vault.Config{Dir: t.TempDir(), Create: true})
	sealed := seal(t, v, record("acme"))
	_, _ = v.Open(t.Context(), record("globex"), sealed)
	_, _ = v.Open(t.Context(), record("acme"), sealed[1:])
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(v.Metrics()...)
	want := `
# HELP verae_vault_open_failures_total Private metadata that could not be opened, by reason.
# TYPE verae_vault_open_failures_total counter
verae_vault_open_failures_total{reason="key_forgotten"} 1
verae_vault_open_failures_total{reason="sealed_damaged"} 1
# HELP verae_vault_tenant_keys_made_total Tenant keys that this process made.
# TYPE verae_vault_tenant_keys_made_total counter
verae_vault_tenant_keys_made_total 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
