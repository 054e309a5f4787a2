package edge

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// mustKey makes a key in a file.
func mustKey(t *testing.T, path string, spec KeySpec) (string, Key) {
	t.Helper()
	text, key, err := CreateKey(path, spec)
	if err != nil {
		t.Fatal(err)
	}
	return text, key
}

func readSpec() KeySpec { return KeySpec{TenantID: acme, Scopes: []Scope{ScopeRead}} }

func TestKeyTextShape(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text, want := newKeyText()
		if len(text) != keyLength || !strings.HasPrefix(text, "vk_live_"+want.id+"_") || strings.Count(text, "_") != 4 {
			t.Fatalf("key %q with id %q", text, want.id)
		}
		got, err := parseKeyText(text)
		if err != nil || got != want {
			t.Fatalf("key %q reads as %+v, %v; want %+v", text, got, err, want)
		}
		if seen[text] || seen[want.id] {
			t.Fatal("a key came twice")
		}
		seen[text], seen[want.id] = true, true
	}
}

// The format is frozen: keys are in other people's hands.
func TestKeyTextIsFrozen(t *testing.T) {
	const text = "vk_live_abcdefgh_0000000000000000000000000000000000000000001_0ThKMU"
	if got := keySum(text[:keyLength-keySumWidth-1]); got != text[keyLength-keySumWidth:] {
		t.Fatalf("the checksum of %s is %s", text, got)
	}
	got, err := parseKeyText(text)
	if err != nil || got.id != "abcdefgh" || got.hash != digestOf(text) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, c := range []struct {
		number []byte
		width  int
		want   string
	}{{[]byte{0}, 2, "00"}, {[]byte{61}, 2, "0z"}, {[]byte{62}, 2, "10"}, {[]byte{255, 255, 255, 255}, 6, "4gfFC3"}} {
		if got := base62(c.number, c.width); got != c.want {
			t.Errorf("%v: %s, want %s", c.number, got, c.want)
		}
	}
}

// Any single mistake is told from a wrong key.
func TestMistypedKeyIsToldWithoutALookup(t *testing.T) {
	text, _ := newKeyText()
	wrong := []string{"", "vk_live_", text[1:], text[:len(text)-1], text + "x", strings.ToLower(text), "sk" + text[2:], strings.ReplaceAll(text, "_", "-")}
	for i := range text {
		c := byte('x')
		if text[i] == c {
			c = 'y'
		}
		wrong = append(wrong, text[:i]+string(c)+text[i+1:])
		if i > 0 && text[i] != text[i-1] {
			swapped := []byte(text)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			wrong = append(wrong, string(swapped))
		}
	}
	for _, w := range wrong {
		_, err := parseKeyText(w)
		if !fault.Is(err, fault.Denied) || fault.CodeOf(err) != codeKeyMalformed {
			t.Errorf("%q: %v", w, err)
		}
		if w != "" && len(w) > 20 && strings.Contains(err.Error(), w[8:]) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
}

func TestKeyFileHoldsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "keys.json")
	text, key := mustKey(t, path, KeySpec{Name: "zap", TenantID: acme, Scopes: []Scope{ScopeStamp, ScopeRead}, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), text[17:]) {
		t.Errorf("the file holds the secret: %s", data)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	var list []map[string]any
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{
		"id": key.ID, "name": "zap", "tenantId": "acme", "scopes": []any{"stamp", "read"}, "sha256": digestOf(text).String(),
		"createdAt": string(key.Created), "expiresAt": "2030-01-02T03:04:05.000000000Z",
	}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	listed, err := ListKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Key{key}, listed); diff != "" {
		t.Error(diff)
	}
}

func TestKeySpecIsChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	for name, spec := range map[string]KeySpec{
		"no tenant":       {Scopes: []Scope{ScopeRead}},
		"public tenant":   {TenantID: wire.Public, Scopes: []Scope{ScopeRead}},
		"no scope":        {TenantID: acme},
		"unknown scope":   {TenantID: acme, Scopes: []Scope{"root"}},
		"tenants of read": {TenantID: acme, Tenants: []wire.TenantID{other}, Scopes: []Scope{ScopeRead}},
		"many tenants":    {TenantID: acme, Tenants: make([]wire.TenantID, MaxKeyTenants+1), Scopes: []Scope{ScopeFiles}},
		"bad tenant":      {TenantID: acme, Tenants: []wire.TenantID{"a b"}, Scopes: []Scope{ScopeFiles}},
		"long name":       {Name: strings.Repeat("n", MaxKeyName+1), TenantID: acme, Scopes: []Scope{ScopeRead}},
	} {
		if text, _, err := CreateKey(path, spec); !fault.Is(err, fault.Invalid) || text != "" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a refused key left a file: %v", err)
	}
	mustKey(t, path, KeySpec{Name: strings.Repeat("n", MaxKeyName), TenantID: acme, Tenants: []wire.TenantID{other}, Scopes: []Scope{ScopeFiles}})
}

func TestDamagedKeyFileIsRefused(t *testing.T) {
	key := func(change string) string {
		return `{"id":"abcdefgh","tenantId":"acme","scopes":["read"],"sha256":"` + sha256OfHello + `","createdAt":""` + change + `}`
	}
	for name, content := range map[string]string{
		"empty": "", "null": "null", "an object": "{}", "cut": `[` + key(""), "trailing": `[] []`, "duplicate key": `[` + key(`,"id":"abcdefgh"`) + `]`,
		"same id":    `[` + key("") + "," + key("") + `]`,
		"no hash":    `[` + strings.Replace(key(""), sha256OfHello, strings.Repeat("0", 64), 1) + `]`,
		"bad hash":   `[` + strings.Replace(key(""), sha256OfHello, "x", 1) + `]`,
		"bad id":     `[` + strings.Replace(key(""), "abcdefgh", "abc", 1) + `]`,
		"bad scope":  `[` + strings.Replace(key(""), "read", "everything", 1) + `]`,
		"no scopes":  `[` + strings.Replace(key(""), `"read"`, "", 1) + `]`,
		"bad tenant": `[` + strings.Replace(key(""), "acme", "a b", 1) + `]`,
		"bad expiry": `[` + key(`,"expiresAt":"soon"`) + `]`,
	} {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeyring(path, nil); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := CreateKey(path, readSpec()); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: a key was added: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Errorf("%s: the file was changed: %q, %v", name, after, err)
		}
	}
}

func TestKeyFileWritableByOthersIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	mustKey(t, path, readSpec())
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o444: true, 0o620: false, 0o602: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeyring(path, nil); (err == nil) != ok {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestMissingKeyFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := OpenKeyring(path, nil); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), path) {
		t.Errorf("open: %v", err)
	}
	if err := RevokeKey(path, "abcdefgh"); !fault.Is(err, fault.NotFound) {
		t.Errorf("revoke: %v", err)
	}
}

// Processes and goroutines that change one file take turns and lose nothing.
func TestKeyFileLosesNoKeyToARace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	const n = 16
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, _, err := CreateKey(path, readSpec()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if keys, err := ListKeys(path); err != nil || len(keys) != n {
		t.Errorf("%d keys of %d: %v", len(keys), n, err)
	}
}

func TestAuthenticate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.json")
		text, key := mustKey(t, path, readSpec())
		brief, _ := mustKey(t, path, KeySpec{TenantID: acme, Scopes: []Scope{ScopeRead}, Expires: time.Now().Add(time.Minute)})
		ring, err := OpenKeyring(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ring.Authenticate(t.Context(), text)
		if err != nil || got.ID != key.ID || got.TenantID != acme || !got.May(ScopeRead) || got.May(ScopeAdmin) {
			t.Fatalf("got %+v, %v", got, err)
		}
		// A good checksum over a wrong secret, under a known and an unknown id.
		forged := func(id string) string {
			body := keyPrefix + id + "_" + strings.Repeat("0", keySecretWidth)
			return body + "_" + keySum(body)
		}
		_, known := ring.Authenticate(t.Context(), forged(key.ID))
		_, unknown := ring.Authenticate(t.Context(), forged("aaaaaaaa"))
		if fault.CodeOf(known) != codeKeyUnknown || known.Error() != unknown.Error() {
			t.Errorf("wrong secret: %v; unknown id: %v", known, unknown)
		}
		if _, err := ring.Authenticate(t.Context(), brief); err != nil {
			t.Errorf("before it expires: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := ring.Authenticate(t.Context(), brief); fault.CodeOf(err) != codeKeyExpired {
			t.Errorf("when it expires: %v", err)
		}
	})
}

// A change of the file is in force after keyPoll, and a damaged file changes
// nothing but readiness.
func TestKeyringFollowsItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.json")
		first, key := mustKey(t, path, readSpec())
		log := &logBuffer{}
		ring, err := OpenKeyring(path, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		valid := func(text string) bool {
			_, err := ring.Authenticate(t.Context(), text)
			return err == nil
		}
		second, _ := mustKey(t, path, readSpec())
		if valid(second) {
			t.Error("the file was read again too soon; the test shows nothing")
		}
		time.Sleep(keyPoll)
		if !valid(second) || !valid(first) {
			t.Error("a new key is not in force")
		}
		if err := RevokeKey(path, key.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keyPoll)
		if valid(first) || !valid(second) {
			t.Error("a revoked key is in force")
		}
		for i, harm := range []func() error{
			func() error { return os.WriteFile(path, []byte("[{"), 0o600) },
			func() error { return os.Remove(path) },
			func() error { return os.WriteFile(path, []byte("[]"), 0o600) },
		} {
			if err := harm(); err != nil {
				t.Fatal(err)
			}
			if i == 2 { // an empty list is a good file, but anybody could have written it
				if err := os.Chmod(path, 0o602); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				time.Sleep(keyPoll)
				if !valid(second) {
					t.Error("a damaged file changed the keys")
				}
				if ring.Ready(t.Context()) == nil {
					t.Error("ready with a damaged file")
				}
			}
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
			t.Errorf("%d errors logged: %s", n, log)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		third, _ := mustKey(t, path, readSpec())
		time.Sleep(keyPoll)
		if !valid(third) || valid(second) {
			t.Error("the mended file is not in force")
		}
		if err := ring.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func FuzzParseKeyText(f *testing.F) {
	text, _ := newKeyText()
	for _, seed := range []string{text, "", "vk_live_", text[:30], strings.Repeat("_", keyLength)} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "keys.json")
	if _, _, err := CreateKey(path, readSpec()); err != nil {
		f.Fatal(err)
	}
	ring, err := OpenKeyring(path, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseKeyText(text)
		if err != nil && fault.CodeOf(err) != codeKeyMalformed {
			t.Fatal(err)
		}
		if err == nil && (len(text) != keyLength || len(k.id) != keyIDLength) {
			t.Fatalf("%q was taken as %+v", text, k)
		}
		if _, err := ring.Authenticate(context.Background(), text); !fault.Is(err, fault.Denied) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// Whoever may fetch a tenant's files does so with a key of his own tenant, or one
// that lists him; one that is expired or revoked fetches nothing.
func TestFetchesFilesOfTheTenantsOfLiveKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	mustKey(t, path, readSpec())
	_, worker := mustKey(t, path, KeySpec{TenantID: "ocr", Tenants: []wire.TenantID{other}, Scopes: []Scope{ScopeFiles}})
	mustKey(t, path, KeySpec{TenantID: "late", Scopes: []Scope{ScopeFiles}, Expires: time.Now().Add(-time.Hour)})
	mustKey(t, path, KeySpec{TenantID: "own", Scopes: []Scope{ScopeStamp, ScopeFiles}})
	for _, revoked := range []bool{false, true} {
		if revoked {
			if err := RevokeKey(path, worker.ID); err != nil {
				t.Fatal(err)
			}
		}
		ring, err := OpenKeyring(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for tenant, want := range map[wire.TenantID]bool{acme: false, "ocr": !revoked, other: !revoked, "late": false, "own": true, "nobody": false} {
			if got := ring.FetchesFiles(tenant); got != want {
				t.Errorf("revoked %v, tenant %s: %v, want %v", revoked, tenant, got, want)
			}
		}
	}
}
