package tlogx_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	fproof "github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
)

const origin = "example.com/log-1"

func keys(t testing.TB, name string) (note.Signer, note.Verifier) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	return s, v
}

func TestCheckpointIsWhatWasSigned(t *testing.T) {
	s, v := keys(t, origin)
	_, stranger := keys(t, origin)
	want := tlogx.Checkpoint{Origin: origin, Size: 42, Root: leaf(1)}
	signed, err := want.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tlogx.OpenCheckpoint(signed, v)
	if err != nil || got != want {
		t.Fatalf("opened %+v, %v", got, err)
	}
	again, err := want.Sign(s)
	if err != nil || string(again) != string(signed) {
		t.Errorf("a second signature differs: %v", err)
	}
	if _, err := tlogx.OpenCheckpoint(signed, stranger); err == nil {
		t.Error("another key of the same name was accepted")
	}
	for i := range signed {
		bad := []byte(string(signed))
		bad[i] ^= 1
		if c, err := tlogx.OpenCheckpoint(bad, v); err == nil {
			t.Errorf("flip at byte %d gave %+v", i, c)
		}
	}
}

func TestCheckpointUnderAnotherNameIsRefused(t *testing.T) {
	s, v := keys(t, "example.com/other")
	signed, err := tlogx.Checkpoint{Origin: origin, Size: 1, Root: leaf(0)}.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tlogx.OpenCheckpoint(signed, v); err == nil {
		t.Error("the key of one log signed for another")
	}
}

func TestCheckpointTextHasOneSpelling(t *testing.T) {
	h := leaf(0).String()
	good := origin + "\n7\n" + h + "\n"
	if c, err := tlogx.ParseCheckpoint(good); err != nil || c.Text() != good {
		t.Fatalf("%+v, %v", c, err)
	}
	for name, text := range map[string]string{
		"empty":          "",
		"no origin":      "\n7\n" + h + "\n",
		"leading zero":   origin + "\n07\n" + h + "\n",
		"plus":           origin + "\n+7\n" + h + "\n",
		"negative":       origin + "\n-7\n" + h + "\n",
		"too large":      origin + "\n9223372036854775808\n" + h + "\n",
		"short root":     origin + "\n7\n" + h[:40] + "\n",
		"loose base64":   origin + "\n7\n" + h[:42] + "B=\n",
		"carriage":       origin + "\n7\n" + h[:20] + "\r" + h[20:] + "\n",
		"extension line": good + "more\n",
		"no newline":     strings.TrimSuffix(good, "\n"),
	} {
		if c, err := tlogx.ParseCheckpoint(text); err == nil && c.Text() != text {
			t.Errorf("%s: accepted as %+v", name, c)
		} else if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOriginsAreChecked(t *testing.T) {
	for _, good := range []string{"a", "verae.local/ledger", "example.com/a/b-c_d.e", strings.Repeat("a", 128)} {
		if err := tlogx.CheckOrigin(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "https://example.com", "example.com/", "/x", "a//b", "Example.com", "a b", "a+b", "a\nb", "é.example",
		".example", "example.", "a/-b", "a:1", strings.Repeat("a", 129),
	} {
		if err := tlogx.CheckOrigin(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func sample(t testing.TB) (tlogx.Proof, []byte, note.Verifier) {
	t.Helper()
	s, v := keys(t, origin)
	m := &memory{t: t}
	var e tlogx.Edge
	for i := range int64(5) {
		e.Append(leaf(i), m.put)
	}
	signed, err := tlogx.Checkpoint{Origin: origin, Size: 5, Root: e.Root()}.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := tlog.ProveRecord(5, 2, m.reader())
	if err != nil {
		t.Fatal(err)
	}
	record := []byte("leaf 2")
	return tlogx.Proof{Extra: record, Index: 2, Hashes: hashes, Checkpoint: signed}, record, v
}

func TestProofTextIsReadByTheSecondImplementation(t *testing.T) {
	p, record, v := sample(t)
	for _, extra := range [][]byte{nil, {}, record} {
		p.Extra = extra
		var other fproof.TLogProof
		if err := other.Unmarshal([]byte(p.Text())); err != nil {
			t.Fatal(err)
		}
		if got := string(other.Marshal()); got != p.Text() {
			t.Errorf("formats writes\n%s\nwe write\n%s", got, p.Text())
		}
		back, err := tlogx.ParseProof(p.Text())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, back); diff != "" {
			t.Error(diff)
		}
		c, err := back.Verify(record, v)
		if err != nil || c.Size != 5 {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

// TestTamperedProofIsRefused flips every bit of a proof and its leaf.
func TestTamperedProofIsRefused(t *testing.T) {
	p, record, v := sample(t)
	p.Extra = nil // unauthenticated by specification
	text := p.Text()
	for i := range len(text) * 8 {
		bad := []byte(text)
		bad[i/8] ^= 1 << (i % 8)
		q, err := tlogx.ParseProof(string(bad))
		if err != nil {
			continue
		}
		if _, err := q.Verify(record, v); err == nil {
			t.Errorf("flip of bit %d verifies:\n%s", i, bad)
		}
	}
	if _, err := p.Verify([]byte("leaf 3"), v); err == nil {
		t.Error("another leaf verifies")
	}
	if _, err := p.Verify(nil, v); err == nil {
		t.Error("no leaf verifies")
	}
}

func TestProofTextHasOneSpelling(t *testing.T) {
	p, _, _ := sample(t)
	text := p.Text()
	for name, bad := range map[string]string{
		"empty":               "",
		"other version":       strings.Replace(text, "@v1", "@v2", 1),
		"no index":            strings.Replace(text, "index 2\n", "", 1),
		"leading zero":        strings.Replace(text, "index 2", "index 02", 1),
		"negative index":      strings.Replace(text, "index 2", "index -2", 1),
		"extra twice":         strings.Replace(text, "extra ", "extra AA==\nextra ", 1),
		"loose extra":         strings.Replace(text, "extra ", "extra QQ", 1),
		"carriage in extra":   strings.Replace(text, "extra b", "extra b\r", 1),
		"carriage return":     strings.ReplaceAll(text, "\n", "\r\n"),
		"no checkpoint":       strings.SplitAfter(text, "\n\n")[0],
		"too many hashes":     fmt.Sprintf("c2sp.org/tlog-proof@v1\nindex 0%s\n\nx\n", strings.Repeat("\n"+leaf(0).String(), 64)),
		"larger than the cap": text + strings.Repeat("x", tlogx.MaxProofSize),
	} {
		if _, err := tlogx.ParseProof(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	full := fmt.Sprintf("c2sp.org/tlog-proof@v1\nindex 0%s\n\nx\n", strings.Repeat("\n"+leaf(0).String(), 63))
	if _, err := tlogx.ParseProof(full + strings.Repeat("x", tlogx.MaxProofSize-len(full))); err != nil {
		t.Errorf("a proof at both limits: %v", err)
	}
}

func FuzzParseProof(f *testing.F) {
	p, _, v := sample(f)
	f.Add(p.Text())
	p.Extra = nil
	f.Add(p.Text())
	f.Add("c2sp.org/tlog-proof@v1\nindex 0\n\nx\n")
	f.Add("c2sp.org/tlog-proof@v1\nextra " + base64.StdEncoding.EncodeToString([]byte("x")) + "\nindex 9\n\nx\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := tlogx.ParseProof(text)
		if err != nil {
			return
		}
		if p.Text() != text {
			t.Errorf("two spellings: %q and %q", text, p.Text())
		}
		if _, err := p.Verify([]byte("no such leaf"), v); err == nil {
			t.Error("a leaf verified that was never appended")
		}
	})
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add(origin + "\n7\n" + leaf(0).String() + "\n")
	f.Add("x\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := tlogx.ParseCheckpoint(text)
		if err == nil && c.Text() != text {
			t.Errorf("two spellings: %q and %q", text, c.Text())
		}
	})
}
