package blob

import (
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	cidlib "github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/verae/archive/internal/fault"
)

var (
	someDigest = sha256.Sum256([]byte("hello world"))
	rawCID     = CID{Digest: someDigest, Raw: true}
	nodeCID    = CID{Digest: someDigest}
)

// bases are the one-letter names of the multibases that carry a CID. The two of
// base 64 with "/" (m, M) are refused: a slash begins a path.
const bases = "bBfFcCvVtTkKzZuU"

func inBase(t testing.TB, c CID, base byte) string {
	t.Helper()
	enc, err := cidlib.ExtractEncoding(string(base) + "x")
	if err != nil {
		t.Fatalf("base %q: %v", base, err)
	}
	s, err := c.lib().StringOfBase(enc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asV0(c CID) string { return cidlib.NewCidV0(c.lib().Hash()).String() }

// TestBlockIsFoundUnderEverySpelling is CI-01: all names of a block lead to the
// same value, and the answer is canonical.
func TestBlockIsFoundUnderEverySpelling(t *testing.T) {
	for _, c := range []CID{rawCID, nodeCID} {
		names := []string{"/ipfs/" + c.String()}
		for i := range len(bases) {
			names = append(names, inBase(t, c, bases[i]))
		}
		if !c.Raw {
			names = append(names, asV0(c), "/ipfs/"+asV0(c))
		}
		for _, name := range names {
			got, err := ParseAnyCID(name)
			if err != nil || got != c {
				t.Errorf("ParseAnyCID(%s) = %v, %v; want %v", name, got, err, c)
			}
			if _, err := ParseCID(name); (err == nil) != (name == c.String()) {
				t.Errorf("ParseCID(%s): %v; only the canonical form may stand in a contract", name, err)
			}
		}
	}
}

func TestCIDRoundTrip(t *testing.T) {
	for _, s := range []string{
		"bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
		"bafybeigmix7t42i6jacydtquhet7srwvgpizfg7gjbq7627d35mjomtu64",
	} {
		c, err := ParseCID(s)
		if err != nil || c.String() != s {
			t.Errorf("ParseCID(%s).String() = %s, %v", s, c, err)
		}
		if c.Raw != strings.HasPrefix(s, "bafk") {
			t.Errorf("%s: Raw = %v", s, c.Raw)
		}
	}
	if rawCID.String() != "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e" {
		t.Errorf("the raw CID of a digest is %s", rawCID)
	}
}

func libCID(codec, hash uint64, digest []byte) string {
	sum, err := multihash.Encode(digest, hash)
	if err != nil {
		panic(err)
	}
	return cidlib.NewCidV1(codec, sum).String()
}

// oddCID is a text that is no CID for contracts.
type oddCID struct {
	name, in, hint string
	readsToo       bool // the readers' parser takes it
}

// inBase32 spells bytes as a CID would be.
func inBase32(b []byte) string {
	return "b" + base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding).EncodeToString(b)
}

// overlong is the CID of some digest with one of its four numbers (version, codec,
// hash function, length) spelt in a byte more than it needs.
func overlong(at int) string {
	b := []byte{}
	for i, n := range []byte{1, 0x55, 0x12, 0x20} {
		if i == at {
			b = append(b, n|0x80, 0)
		} else {
			b = append(b, n)
		}
	}
	return inBase32(append(b, someDigest[:]...))
}

// oddCIDs are the samples of CI-02, CI-03 and F15, and their like.
func oddCIDs(t testing.TB) []oddCID {
	good := rawCID.String()
	digest := someDigest[:]
	return []oddCID{
		{"empty", "", "empty", false},
		{"empty digest", "bafkreaa", "digest of 0 bytes", false},
		{"20-byte digest", libCID(cidlib.Raw, multihash.SHA2_256, digest[:20]), "digest of 20 bytes", false},
		{"33-byte digest", libCID(cidlib.Raw, multihash.SHA2_256, append(digest[:32:32], 0)), "digest of 33 bytes", false},
		{"sha1", libCID(cidlib.Raw, multihash.SHA1, digest[:20]), "hash function 0x11", false},
		{"sha2-512", libCID(cidlib.Raw, multihash.SHA2_512, append(digest, digest...)), "hash function 0x13", false},
		{"blake2b", libCID(cidlib.Raw, multihash.BLAKE2B_MIN+31, digest), "hash function 0xb220", false},
		{"unknown hash", libCID(cidlib.Raw, 0x3fff, digest), "hash function 0x3fff", false},
		{"identity", "bafkqaaa", "hash function 0x0", false},
		{"dag-cbor", libCID(cidlib.DagCBOR, multihash.SHA2_256, digest), "codec 0x71", false},
		{"unknown codec", libCID(0x300539, multihash.SHA2_256, digest), "codec 0x300539", false},
		{"z before CIDv0", "z" + asV0(nodeCID), "", false},
		{"CIDv0", asV0(nodeCID), nodeCID.String(), true},
		{"lower-case CIDv0", strings.ToLower(asV0(nodeCID)), "lower case", false},
		{"upper case", strings.ToUpper(good), good, true},
		{"mixed case", good[:10] + strings.ToUpper(good[10:]), good, false},
		{"line end", good + "\n", "white space", false},
		{"blank", " " + good, "white space", false},
		{"blank inside", good[:9] + " " + good[9:], "", false},
		{"path", "/ipfs/" + good, "path or query", true},
		{"path twice", "/ipfs//ipfs/" + good, "path or query", false},
		{"path below", "/ipfs/" + good + "/a.pdf", "path or query", false},
		{"trailing slash", good + "/", "path or query", false},
		{"query", good + "?filename=a.pdf", "path or query", false},
		{"URI", "ipfs://" + good, "URL", false},
		{"gateway URL", "https://g.example/ipfs/" + good, "URL", false},
		{"short", good[:len(good)-1], "", false},
		{"long", good + "a", "", false},
		{"bare digest", "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9", "", false},
		{"abbreviated sample", "bafybeigdyrztpnv5q...", "", false},
		{"no base", "Q", "", false},
		{"base 64 with a slash", inBase(t, rawCID, 'm'), "path or query", false},
		{"other base", inBase(t, rawCID, 'f'), good, true},
		{"too long", strings.Repeat("b", maxCIDLen+1), "at most 128", false},
		{"at the limit", strings.Repeat("b", maxCIDLen), "", false},
		{"version of two bytes", overlong(0), "", false},
		{"codec of two bytes", overlong(1), "", false},
		{"hash function of two bytes", overlong(2), "", false},
		{"length of two bytes", overlong(3), "", false},
		{"identity of 36 bytes", libCID(cidlib.Raw, multihash.IDENTITY, append(digest[:32:32], "more"...)), "hash function 0x0", false},
		{"identity of a file", libCID(cidlib.Raw, multihash.IDENTITY, []byte("hello")), "hash function 0x0", false},
		{"identity beyond the cap", libCID(cidlib.Raw, multihash.IDENTITY, append(digest, append(digest, digest...)...)), "at most 128", false},
		{"libp2p key", libCID(cidlib.Libp2pKey, multihash.SHA2_256, digest), "codec 0x72", false},
		{"version 2", inBase32(append([]byte{2, 0x55, 0x12, 0x20}, digest...)), "", false},
		{"bytes behind it", inBase32(append(append([]byte{1, 0x55, 0x12, 0x20}, digest...), 0)), "", false},
		{"nothing but a prefix", "/ipfs/", "path or query", false},
		{"IPNS", "/ipns/" + good, "path or query", false},
	}
}

// TestDecodingIsNotValidation is CI-02, CI-03 and F15: what the library decodes
// or a prefix check would take is refused, for good and with a reason.
func TestDecodingIsNotValidation(t *testing.T) {
	for _, tt := range oddCIDs(t) {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseCID(tt.in)
			checkRefusal(t, err, tt.hint)
			if _, err := ParseAnyCID(tt.in); tt.readsToo != (err == nil) {
				t.Errorf("ParseAnyCID: %v, want taken = %v", err, tt.readsToo)
			} else if err != nil {
				checkRefusal(t, err, "")
			}
		})
	}
}

func checkRefusal(t *testing.T, err error, hint string) {
	t.Helper()
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != CodeBadCID || fault.FieldOf(err) != "cid" {
		t.Fatalf("%v: kind %v, code %s; want invalid, BAD_CID", err, fault.KindOf(err), fault.CodeOf(err))
	}
	if !strings.Contains(err.Error(), hint) {
		t.Errorf("%q does not say %q", err, hint)
	}
	if len(err.Error()) > 600 {
		t.Errorf("the refusal has %d bytes", len(err.Error()))
	}
}

// TestOneBlockUnderEverySpelling is CI-01 over HTTP: every name of a block leads to
// the same bytes, with one look-up, and the answer names the canonical form.
func TestOneBlockUnderEverySpelling(t *testing.T) {
	src := &mapSource{}
	data := []byte("hello world")
	raw := src.addBlock(data)
	src.add(t, data, "", "")
	srv := gateway(t, src)
	node := CID{Digest: raw.Digest}
	names := map[string]CID{asV0(node): node}
	for i := range len(bases) {
		names[inBase(t, raw, bases[i])], names[inBase(t, node, bases[i])] = raw, node
	}
	for name, c := range names {
		src.opens = 0
		resp, body, err := fetch(t, srv, "GET", "/ipfs/"+name+"?format=raw", nil)
		if err != nil || resp.StatusCode != 200 || string(body) != string(data) || src.opens != 1 {
			t.Errorf("%s: %s, %q after %d look-ups, %v", name, resp.Status, body, src.opens, err)
		}
		if resp.Header.Get("X-Ipfs-Path") != "/ipfs/"+c.String() || resp.Header.Get("Etag") != `"`+c.String()+`.raw"` {
			t.Errorf("%s: %v", name, resp.Header)
		}
		if c == node { // no file has this root
			continue
		}
		if resp, body, err = fetch(t, srv, "GET", "/ipfs/"+name, nil); err != nil || resp.StatusCode != 200 || string(body) != string(data) || resp.Header.Get("Ipfs-Uri") != "ipfs://"+c.String() {
			t.Errorf("%s as a file: %s, %q, %v", name, resp.Status, body, err)
		}
	}
}

// TestOddCIDsAreRefusedForGood is CI-02 and CI-03 over HTTP: one refusal, 400, as a
// file and as a block, without a look-up.
func TestOddCIDsAreRefusedForGood(t *testing.T) {
	src := &mapSource{}
	h := NewHandler(HandlerConfig{Source: src})
	for _, odd := range oddCIDs(t) {
		if odd.readsToo || odd.in == probeCID {
			continue
		}
		for _, query := range []string{"", "format=raw"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, &http.Request{Method: "GET", Header: http.Header{}, URL: &url.URL{Path: "/ipfs/" + odd.in, RawQuery: query}})
			if w.Code != 400 || !strings.Contains(w.Body.String(), CodeBadCID) || w.Header().Get("Retry-After") != "" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s %v", odd.name, w.Code, w.Body, w.Header())
			}
		}
	}
	if src.opens > 0 {
		t.Errorf("%d look-ups", src.opens)
	}
}

func FuzzParseCID(f *testing.F) {
	for _, s := range []string{"", "bafkreaa", "bafkqaaa", rawCID.String(), nodeCID.String(), asV0(nodeCID), "/ipfs/" + rawCID.String(), "z" + asV0(nodeCID), rawCID.String() + "\n"} {
		f.Add(s)
	}
	for i := range len(bases) {
		f.Add(inBase(f, rawCID, bases[i]))
	}
	for _, odd := range oddCIDs(f) {
		f.Add(odd.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		strict, err := ParseCID(s)
		if err != nil {
			checkRefusal(t, err, "")
		} else if strict.String() != s {
			t.Errorf("ParseCID took %q for %s", s, strict)
		}
		any, anyErr := ParseAnyCID(s)
		if anyErr != nil {
			checkRefusal(t, anyErr, "")
			if err == nil {
				t.Errorf("the readers' parser refused %q: %v", s, anyErr)
			}
			return
		}
		if again, err := ParseCID(any.String()); err != nil || again != any {
			t.Errorf("%q: %s does not parse back: %v", s, any, err)
		}
	})
}
