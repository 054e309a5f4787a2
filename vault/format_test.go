package vault

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// update rewrites the golden files. They are frozen: only a new version of a
// format may add one.
var update = flag.Bool("update", false, "write missing golden files")

// count returns n bytes counting up from first.
func count(first byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

// The fixed inputs of the golden vectors.
var (
	goldenKEK     = newKEK(count(0x80, keySize))
	goldenKey     = newTenantKey(keyID(append([]byte{0, 0, 0, 1}, count(0xa0, 12)...)), (*secret)(count(0, keySize)))
	goldenNonce   = [chacha20poly1305.NonceSizeX]byte(count(0x40, chacha20poly1305.NonceSizeX))
	goldenContext = Context{
		TenantID: "acme", SHA256: wire.Digest(count(1, 32)), Kind: wire.KindPrivateMetadata,
		SubmissionID: "0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a4b", Part: 258,
	}
	goldenPlaintext = []byte(`{"price": 1152921504606846976}`)
)

// golden compares got with a file of hex lines.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *update {
		if err := os.WriteFile(path, lines(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(lines(got), want) {
		t.Errorf("%s has changed: bytes that were stored could not be read any more\ngot:\n%swant:\n%s", name, lines(got), want)
	}
}

func lines(data []byte) []byte {
	var out bytes.Buffer
	for len(data) > 0 {
		n := min(32, len(data))
		out.WriteString(hex.EncodeToString(data[:n]) + "\n")
		data = data[n:]
	}
	return out.Bytes()
}

func TestSealedFormatIsFrozen(t *testing.T) {
	sealed := seal(goldenKey, goldenNonce, goldenContext, goldenPlaintext)
	golden(t, "sealed.hex", sealed)
	if got := openByHand(t, sealed); !bytes.Equal(got, goldenPlaintext) {
		t.Errorf("read by the documented layout: %q", got)
	}
}

// openByHand opens sealed bytes by the package comment alone: with HChaCha20 and
// the IETF cipher, as the draft defines XChaCha20-Poly1305.
func openByHand(t *testing.T, sealed []byte) []byte {
	t.Helper()
	if string(sealed[:8]) != "VERAESM\x01" || !bytes.Equal(sealed[8:24], goldenKey.id[:]) {
		t.Fatalf("header %x", sealed[:24])
	}
	if binary.BigEndian.Uint32(sealed[48:52]) != crc32.Checksum(sealed[:48], crc32.MakeTable(crc32.Castagnoli)) {
		t.Fatal("checksum")
	}
	key, err := hkdf.Key(sha256.New, count(0, 32), nil, "verae-vault/1 seal", 32)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := chacha20.HChaCha20(key, sealed[24:40])
	if err != nil {
		t.Fatal(err)
	}
	ietf, err := chacha20poly1305.New(sub)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(sealed[:24])
	for _, field := range [][]byte{[]byte("acme"), count(1, 32), []byte("private-metadata"), []byte("0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a4b")} {
		data = append(data, 0, 0, 0, 0, 0, 0, 0, byte(len(field)))
		data = append(data, field...)
	}
	data = append(data, 0, 0, 0, 0, 0, 0, 1, 2)
	plaintext, err := ietf.Open(nil, append(make([]byte, 4), sealed[40:48]...), sealed[52:], data)
	if err != nil {
		t.Fatal(err)
	}
	return plaintext
}

func TestMACIsFrozen(t *testing.T) {
	got := mac(goldenKey, "fingerprint", []byte("data"))
	golden(t, "mac.hex", got[:])
	key, err := hkdf.Key(sha256.New, count(0, 32), nil, "verae-vault/1 mac fingerprint", 32)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("data"))
	if !bytes.Equal(got[:], h.Sum(nil)) {
		t.Error("the MAC is not the documented one")
	}
}

// TestKeyFileFormatIsFrozen reads a stored key file: a new one has random nonces.
func TestKeyFileFormatIsFrozen(t *testing.T) {
	const name = "tenant.hex"
	path := filepath.Join("testdata", name)
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) && *update {
		ring := &keyring{[]tenantKey{goldenKey, newTenantKey(keyID(append([]byte{0, 0, 0, 2}, count(0xb0, 12)...)), (*secret)(count(32, keySize)))}}
		text = lines(ring.encode(goldenKEK, "acme"))
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := decodeKeyring(goldenKEK, "acme", data)
	if err != nil {
		t.Fatal(err)
	}
	if len(ring.keys) != 2 || *ring.keys[0].root != *goldenKey.root || ring.newest().id[3] != 2 || *ring.newest().root != secret(count(32, keySize)) {
		t.Error("the stored keys are not the ones that were put in")
	}
	// Bytes sealed with the older key still open.
	if k, ok := ring.find(goldenKey.id); !ok || k.id != goldenKey.id {
		t.Error("the older key is not found")
	}
	if _, err := decodeKeyring(goldenKEK, "globex", data); !fault.Is(err, fault.Corrupt) {
		t.Errorf("read for another tenant: %v", err)
	}
	if _, err := decodeKeyring(newKEK(count(0, keySize)), "acme", data); fault.CodeOf(err) != "VAULT_KEK" {
		t.Errorf("read with another KEK: %v", err)
	}
}

func TestLinesAreFrozen(t *testing.T) {
	golden(t, "kek.hex", formatLine(kekMagic, count(0x80, keySize)))
	golden(t, "marker.hex", formatLine(markerMagic, goldenKEK.id[:]))
	if got := tenantFile("acme"); got != "b4dc239984bfa65633bd9e97638b7930d7bc7482249133849906a2c1b685a6b1" {
		t.Errorf("the file of tenant acme is %s", got)
	}
}

func TestLinesRoundTripAndRefuse(t *testing.T) {
	line := formatLine(kekMagic, count(0, keySize))
	if got, ok := parseLine(kekMagic, keySize, line); !ok || !bytes.Equal(got, count(0, keySize)) {
		t.Errorf("parseLine(formatLine) = %x, %v", got, ok)
	}
	for _, bad := range []string{
		"", " ", string(line[1:]), string(line) + "x", strings.ToUpper(string(line)),
		strings.Replace(string(line), " ", "  ", 1), string(line) + string(line),
		string(formatLine(markerMagic, count(0, keySize))), string(formatLine(kekMagic, count(0, keySize-1))),
	} {
		if _, ok := parseLine(kekMagic, keySize, []byte(bad)); ok {
			t.Errorf("parseLine takes %q", bad)
		}
	}
}

// FuzzOpen feeds arbitrary sealed bytes: nothing panics, nothing but the real
// ones opens.
func FuzzOpen(f *testing.F) {
	good := seal(goldenKey, goldenNonce, goldenContext, goldenPlaintext)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(good[:Overhead])
	f.Add(append(bytes.Clone(good), 0))
	f.Add([]byte(sealedMagic))
	f.Add([]byte{})
	v := &Vault{metrics: newMetrics(), keys: map[wire.TenantID]*keyring{"acme": {[]tenantKey{goldenKey}}}, tenantsDir: osDisk(f.TempDir())}
	f.Fuzz(func(t *testing.T, sealed []byte) {
		plain, err := v.Open(t.Context(), goldenContext, sealed)
		if err == nil && (!bytes.Equal(sealed, good) || !bytes.Equal(plain, goldenPlaintext)) {
			t.Errorf("forged bytes opened: %x", sealed)
		}
		if err != nil && bytes.Equal(sealed, good) {
			t.Errorf("the real bytes did not open: %v", err)
		}
		if k := fault.KindOf(err); err != nil && k != fault.Corrupt && k != fault.NotFound && fault.CodeOf(err) != "SEALED_VERSION" {
			t.Errorf("%x: %v", sealed, err)
		}
	})
}

// FuzzKeyFile feeds arbitrary key files: nothing panics, and what is read was
// written for this tenant.
func FuzzKeyFile(f *testing.F) {
	ring := &keyring{[]tenantKey{goldenKey}}
	f.Add(ring.encode(goldenKEK, "acme"))
	f.Add([]byte(keyFileMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeKeyring(goldenKEK, "acme", data)
		if err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("%v is not Corrupt", err)
		}
		if err == nil && len(got.keys) == 0 {
			t.Error("a keyring without keys")
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	plaintext := bytes.Repeat([]byte("x"), 1<<10)
	b.SetBytes(int64(len(plaintext)))
	for b.Loop() {
		seal(goldenKey, goldenNonce, goldenContext, plaintext)
	}
}

func BenchmarkMAC(b *testing.B) {
	data := bytes.Repeat([]byte("x"), 1<<10)
	for b.Loop() {
		mac(goldenKey, "fingerprint", data)
	}
}
