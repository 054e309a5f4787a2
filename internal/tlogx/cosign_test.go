package tlogx_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/verae/archive/internal/tlogx"
)

func cosigner(t testing.TB, name string, seed byte) *tlogx.Cosigner {
	t.Helper()
	c, err := tlogx.NewCosigner(name, ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(seed), ed25519.SeedSize))))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func signedCheckpoint(t testing.TB) (text string, signed []byte, log note.Verifier) {
	t.Helper()
	s, v := keys(t, origin)
	c := tlogx.Checkpoint{Origin: origin, Size: 42, Root: leaf(1)}
	signed, err := c.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	return c.Text(), signed, v
}

// The library is the second reader of the format: it verifies ours, and its
// verifier key names our hash.
func TestAnotherLibraryVerifiesACosignature(t *testing.T) {
	text, signed, log := signedCheckpoint(t)
	c := cosigner(t, "archive-a", 'a')
	public := ed25519.NewKeyFromSeed([]byte(strings.Repeat("a", ed25519.SeedSize))).Public().(ed25519.PublicKey)
	vkey := fmt.Sprintf("archive-a+%08x+%s", c.Verifier().KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{4}, public...)))
	theirs, err := fnote.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1767323045, 999)
	cosigned := append(signed, c.Cosign(text, at)...)
	n, err := note.Open(cosigned, note.VerifierList(log, theirs))
	if err != nil || len(n.Sigs) != 2 {
		t.Fatalf("%v, %+v", err, n)
	}
	for _, v := range []note.Verifier{theirs, c.Verifier()} {
		got, err := tlogx.OpenCosignature(cosigned, v)
		if err != nil || !got.Equal(at.Truncate(time.Second)) {
			t.Errorf("%v, %v", got, err)
		}
	}
	if got, err := tlogx.OpenCheckpoint(cosigned, log); err != nil || got.Size != 42 {
		t.Errorf("the log's own signature: %+v, %v", got, err)
	}
}

func TestCosignatureIsOfOneCheckpointNameAndTime(t *testing.T) {
	text, signed, _ := signedCheckpoint(t)
	c := cosigner(t, "archive-a", 'a')
	line := c.Cosign(text, time.Unix(1767323045, 0))
	for name, v := range map[string]note.Verifier{
		"another key":  cosigner(t, "archive-a", 'b').Verifier(),
		"another name": cosigner(t, "archive-b", 'a').Verifier(),
	} {
		if _, err := tlogx.OpenCosignature(append(signed, line...), v); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for i := range line {
		bad := []byte(line)
		bad[i] ^= 1
		if _, err := tlogx.OpenCosignature(append(signed, bad...), c.Verifier()); err == nil {
			t.Errorf("flip at byte %d of the line was accepted", i)
		}
	}
	other := strings.Replace(string(signed), "\n42\n", "\n43\n", 1)
	if _, err := tlogx.OpenCosignature([]byte(other+line), c.Verifier()); err == nil {
		t.Error("a cosignature of another size was accepted")
	}
}

func TestCosignerRefusesWhatCanNotBeAName(t *testing.T) {
	for _, name := range []string{"", "a b", "a+b", "A"} {
		if _, err := tlogx.NewCosigner(name, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	if _, err := tlogx.NewCosignatureVerifier("archive-a", nil); err == nil {
		t.Error("an empty key was accepted")
	}
}
