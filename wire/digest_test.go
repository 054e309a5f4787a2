package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const helloHex = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // sha256 of "hello"

var helloDigest = Digest(sha256.Sum256([]byte("hello")))

func helloBase64(enc *base64.Encoding) string { return enc.EncodeToString(helloDigest[:]) }

func TestParseDigestTakesTheListedForms(t *testing.T) {
	mixed := strings.ToUpper(helloHex[:31]) + helloHex[31:]
	for _, in := range []string{
		helloHex, strings.ToUpper(helloHex), mixed,
		"sha256:" + helloHex, "sha256:" + mixed,
		"sha256-" + helloBase64(base64.StdEncoding),
		" \t\r\n\v\f" + helloHex + " \t\r\n\v\f",
		"\nsha256-" + helloBase64(base64.StdEncoding) + "\n",
	} {
		d, err := ParseDigest(in)
		if err != nil || d != helloDigest {
			t.Errorf("ParseDigest(%q) = %s, %v", in, d, err)
		}
		if d.String() != helloHex {
			t.Errorf("%q prints as %q", in, d)
		}
	}
}

// All zeros is how a Digest says "none"; as text it is a digest like any other,
// which the Check of each payload refuses as missing.
func TestParseDigestTakesZeros(t *testing.T) {
	if d, err := ParseDigest(strings.Repeat("0", 64)); err != nil || !d.IsZero() {
		t.Errorf("got %s, %v", d, err)
	}
}

func TestParseDigestRefusals(t *testing.T) {
	std := helloBase64(base64.StdEncoding)
	spare := std[:42] // the 43rd character carries 4 bits of digest and 2 spare ones
	tests := []struct {
		name, in string
		offset   int
		says     []string
	}{
		{"empty", "", 0, []string{"length 0", "empty"}},
		{"blank", " \n", 2, []string{"length 0", "empty"}},
		{"md5", helloHex[:32], 32, []string{"length 32", "MD5"}},
		{"sha1", helloHex[:40], 40, []string{"length 40", "SHA-1"}},
		{"sha224", helloHex[:56], 56, []string{"length 56", "SHA-224"}},
		{"one pair short", helloHex[:62], 62, []string{"length 62", "64 hex"}},
		{"one short", helloHex[:63], 63, []string{"length 63", "64 hex"}},
		{"one long", helloHex + "0", 64, []string{"length 65", "64 hex"}},
		{"one pair long", helloHex + "00", 64, []string{"length 66", "64 hex"}},
		{"sha384", helloHex + helloHex[:32], 64, []string{"length 96", "SHA-384"}},
		{"sha512", helloHex + helloHex, 64, []string{"length 128", "SHA-512"}},
		{"short after blanks", "  " + helloHex[:40] + " ", 42, []string{"length 40", "SHA-1"}},
		{"letter", helloHex[:10] + "g" + helloHex[11:], 10, []string{"length 64", "'g'"}},
		{"letter in the second place", helloHex[:11] + "g" + helloHex[12:], 11, []string{"length 64", "'g'"}},
		{"letter after blanks", "\t" + helloHex[:10] + "g" + helloHex[11:], 11, []string{"length 64", "'g'"}},
		{"inner blank", helloHex[:32] + " " + helloHex[32:], 32, []string{"length 65", "' '"}},
		{"foreign blank", "\u00a0" + helloHex, 0, []string{"length 66", `'\u00a0'`}},
		{"nul", helloHex + "\x00", 64, []string{"length 65", `'\x00'`}},
		{"no utf-8", "\xff" + helloHex[1:], 0, []string{"length 64"}},
		{"full-width digit", "２" + helloHex[1:], 0, []string{"'２'"}},
		{"0x", "0x" + helloHex, 1, []string{"length 66", "remove the 0x"}},
		{"0X", "0X" + helloHex, 1, []string{"length 66", "remove the 0x"}},
		{"sha256sum", helloHex + "  scan 1.pdf", 64, []string{"length 76", "a line of sha256sum"}},
		{"sha256sum binary", helloHex + " *scan.pdf", 64, []string{"a line of sha256sum"}},
		{"sha256sum escaped", `\` + helloHex + `  a\nb`, 65, []string{"a line of sha256sum"}},
		{"sha256sum tab", helloHex + "\tf", 64, []string{"a line of sha256sum"}},
		{"two digests", helloHex + "\n" + helloHex, 64, []string{"length 129", "a line of sha256sum"}},
		{"bsd", "SHA256 (f.pdf) = " + helloHex, 0, []string{"length 81", "BSD"}},
		{"openssl", "SHA2-256(f.pdf)= " + helloHex, 0, []string{"BSD"}},
		{"hex under sri", "sha256-" + helloHex, 7, []string{"length 64", "hex where base64 is expected", "sha256:"}},
		{"sri unpadded", "sha256-" + strings.TrimRight(std, "="), 50, []string{"length 43", "canonical", "sha256-" + std}},
		{"sri url alphabet", "sha256-" + helloBase64(base64.URLEncoding), 13, []string{"canonical", "sha256-" + std}},
		{"sri spare bits 1", "sha256-" + spare + "R=", 49, []string{"canonical", "sha256-" + std}},
		{"sri spare bits 2", "sha256-" + spare + "S=", 49, []string{"canonical"}},
		{"sri spare bits 3", "sha256-" + spare + "T=", 49, []string{"canonical"}},
		{"sri line break", "sha256-" + std[:20] + "\n" + std[20:], 27, []string{"canonical"}},
		{"sri options", "sha256-" + std + "?x", 51, []string{"44 characters"}},
		{"sri empty", "sha256-", 7, []string{"length 0"}},
		{"sri short", "sha256-AAAA", 11, []string{"length 4", "44 characters"}},
		{"prefix empty", "sha256:", 7, []string{"length 0", "64 hex"}},
		{"prefix short", "sha256:" + helloHex[:40], 47, []string{"length 40"}},
		{"prefix and base64", "sha256:" + std, 7, []string{"length 44", "'L'"}},
		{"prefix upper", "SHA256:" + helloHex, 0, []string{"lower case"}},
		{"sri upper", "SHA256-" + std, 0, []string{"lower case"}},
		{"sha512 sri", "sha512-" + std, 0, []string{"sha512"}},
		{"sha1 prefix", "sha1:" + helloHex[:40], 0, []string{"sha1"}},
		{"bare base64", std, 0, []string{"length 44", "base64 without a prefix"}},
		{"bare base64url", strings.TrimRight(helloBase64(base64.URLEncoding), "="), 0, []string{"length 43", "base64 without a prefix"}},
		{"url", "https://zap.example/x", 0, []string{"'h'", "64 hex"}},
		{"ellipsis", "…", 0, []string{"length 3", "'…'"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := ParseDigest(tt.in)
			e := wantError(t, err, "", tt.says...)
			if !d.IsZero() {
				t.Errorf("a refused text gave %s", d)
			}
			if e.Offset != tt.offset {
				t.Errorf("offset %d, want %d: %v", e.Offset, tt.offset, e)
			}
			checkOffset(t, tt.in, e)
		})
	}
}

// checkOffset checks that the offset of a refusal lies in the text or at its end.
func checkOffset(t testing.TB, in string, e *Error) {
	t.Helper()
	if e.Offset < 0 || e.Offset > len(in) {
		t.Errorf("%q: offset %d of %d: %v", in, e.Offset, len(in), e)
	}
	if !utf8.ValidString(e.Msg) || len(e.Msg) > 300 {
		t.Errorf("%d bytes of message, or not UTF-8: %q", len(e.Msg), e.Msg)
	}
}

func TestDigestTextRoundTrip(t *testing.T) {
	type pair struct {
		Digest Digest   `json:"d"`
		ID     RecordID `json:"id"`
	}
	in := pair{helloDigest, RecordID{0xab}}
	out, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"d":"%s","id":"ab%s"}`, helloHex, strings.Repeat("0", 62)); string(out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
	var back pair
	if err := json.Unmarshal(out, &back); err != nil || back != in {
		t.Errorf("got %v, %v", back, err)
	}
}

func TestDigestFieldsTakeTheListedForms(t *testing.T) {
	d, err := Decode[Digest]([]byte(`"sha256-` + helloBase64(base64.StdEncoding) + `"`))
	if err != nil || d != helloDigest {
		t.Errorf("got %s, %v", d, err)
	}
}

func TestRefusedTextLeavesTheValueAlone(t *testing.T) {
	d, id := helloDigest, RecordID(helloDigest)
	if d.UnmarshalText([]byte("zz")) == nil || id.UnmarshalText([]byte("zz")) == nil {
		t.Fatal("accepted")
	}
	if d != helloDigest || id != RecordID(helloDigest) {
		t.Error("changed")
	}
}

func TestParseRecordIDTakesHexOnly(t *testing.T) {
	for _, in := range []string{helloHex, strings.ToUpper(helloHex)} {
		if id, err := ParseRecordID(in); err != nil || id.String() != helloHex || id.IsZero() {
			t.Errorf("%q: %s, %v", in, id, err)
		}
	}
	for _, in := range []string{"", " " + helloHex, "sha256:" + helloHex, helloHex[:63], helloHex + "0", "g" + helloHex[1:]} {
		_, err := ParseRecordID(in)
		checkOffset(t, in, wantError(t, err, "", "a record id"))
	}
}

// listedForms is the contract's list, written a second time as patterns.
var listedForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?:sha256:)?([0-9A-Fa-f]{64})$`),
	regexp.MustCompile(`^sha256-([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)$`),
}

// oracleDigest reads s by the patterns.
func oracleDigest(s string) (d []byte, ok bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	if m := listedForms[0].FindStringSubmatch(s); m != nil {
		d, err := hex.DecodeString(m[1])
		return d, err == nil
	}
	if m := listedForms[1].FindStringSubmatch(s); m != nil {
		d, err := base64.StdEncoding.Strict().DecodeString(m[1])
		return d, err == nil
	}
	return nil, false
}

func FuzzParseDigest(f *testing.F) {
	std := helloBase64(base64.StdEncoding)
	for _, s := range []string{
		"", "…", helloHex, strings.ToUpper(helloHex), helloHex[:40], helloHex + "  f.pdf", "SHA256 (f) = " + helloHex,
		"sha256:" + helloHex, "sha256-" + std, "sha256-" + helloHex, "sha256-" + std[:42] + "R=", "0x" + helloHex, std,
		"sha512-" + std, `\` + helloHex + "  f", "\u00a0" + helloHex, "sha256-" + std[:20] + "\n" + std[20:],
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, ok := oracleDigest(s)
		d, err := ParseDigest(s)
		if ok != (err == nil) || ok && !bytes.Equal(d[:], want) {
			t.Fatalf("ParseDigest(%q) = %s, %v; the patterns say %x, %v", s, d, err, want, ok)
		}
		if err != nil {
			e := wantError(t, err, "", "length ")
			checkOffset(t, s, e)
			return
		}
		if again, err := ParseDigest(d.String()); err != nil || again != d {
			t.Fatalf("%q prints as %q, which reads as %s, %v", s, d, again, err)
		}
	})
}
