package wire

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"
)

// hexGuess names the hash functions by the number of hex characters they print.
var hexGuess = map[int]string{
	32:  "MD5",
	40:  "SHA-1",
	56:  "SHA-224",
	96:  "SHA-384",
	128: "SHA-512",
}

// otherPrefixes are algorithm names before ":" or "-" that are not SHA-256.
var otherPrefixes = []string{"md5", "sha1", "sha224", "sha384", "sha512", "sha3-256", "blake2b", "blake3"}

// explainDigest says why s is no SHA-256. The guesses go from the most specific
// form to the least; each names the fix.
func explainDigest(s string) *Error {
	left := strings.TrimLeft(s, asciiSpace)
	off := len(s) - len(left)
	t := strings.TrimRight(left, asciiSpace)
	lower := strings.ToLower(t)
	if t == "" {
		return &Error{Offset: off, Msg: "length 0, the text is empty; a SHA-256 has 64 hexadecimal characters"}
	}
	if rest, ok := strings.CutPrefix(t, prefixSRI); ok {
		return explainSRI(rest, off+len(prefixSRI))
	}
	if rest, ok := strings.CutPrefix(t, prefixHex); ok {
		return explainHex(rest, off+len(prefixHex), "a SHA-256 after sha256:")
	}
	for _, name := range otherPrefixes {
		if rest, ok := strings.CutPrefix(lower, name); ok && rest != "" && (rest[0] == ':' || rest[0] == '-') {
			return digestError(t, off, "a %s digest by its prefix; a SHA-256 is needed", name)
		}
	}
	switch {
	case strings.HasPrefix(lower, prefixHex), strings.HasPrefix(lower, prefixSRI):
		return digestError(t, off, "write the prefix sha256 in lower case")
	case strings.HasPrefix(lower, "0x"):
		return digestError(t, off+1, "remove the 0x")
	case isSumLine(t):
		return digestError(t, off+sumLineEnd(t), "a line of sha256sum; give only its 64 hexadecimal characters")
	case isTagLine(lower):
		return digestError(t, off, "a BSD checksum line; give only the 64 hexadecimal characters after the equals sign")
	case isBase64Digest(t):
		return digestError(t, off+firstNonHex(t), "base64 without a prefix; write sha256- before padded standard base64, or give hexadecimal")
	}
	return explainHex(t, off, "a SHA-256")
}

// explainSRI says why text after "sha256-" is not the base64 of a SHA-256.
func explainSRI(rest string, off int) *Error {
	if firstNonHex(rest) == len(rest) && (len(rest) == hexLen || hexGuess[len(rest)] != "") {
		return digestError(rest, off, "hex where base64 is expected: write sha256: before hexadecimal")
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		raw, err := enc.DecodeString(rest)
		if err != nil || len(raw) != len(Digest{}) {
			continue
		}
		want := base64.StdEncoding.EncodeToString(raw)
		return digestError(rest, off+commonPrefix(rest, want), "not the canonical padded standard base64 of a SHA-256, which would be %s%s", prefixSRI, want)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
	bad := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune(alphabet, r) })
	if bad < 0 {
		bad = min(len(rest), base64.StdEncoding.EncodedLen(len(Digest{})))
	}
	return digestError(rest, off+bad, "after sha256- come 44 characters of padded standard base64")
}

// explainHex says why t is not 64 hex characters; what names the thing wanted.
func explainHex(t string, off int, what string) *Error {
	bad := firstNonHex(t)
	if bad < len(t) {
		r, _ := utf8.DecodeRuneInString(t[bad:])
		return digestError(t, off+bad, "%q is not hexadecimal; %s has 64 hexadecimal characters", r, what)
	}
	if name, ok := hexGuess[len(t)]; ok {
		return digestError(t, off+min(bad, hexLen), "perhaps a %s; %s has 64 hexadecimal characters", name, what)
	}
	return digestError(t, off+min(bad, hexLen), "%s has 64 hexadecimal characters", what)
}

// digestError puts the length before the reason.
func digestError(t string, off int, format string, args ...any) *Error {
	return &Error{Offset: off, Msg: fmt.Sprintf("length %d, ", len(t)) + fmt.Sprintf(format, args...)}
}

// firstNonHex returns the index of the first byte of t that is not hexadecimal,
// or len(t).
func firstNonHex(t string) int {
	for i := range len(t) {
		if hexValue[t[i]] == 0xff {
			return i
		}
	}
	return len(t)
}

// commonPrefix returns the length of the longest common prefix of a and b.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// sumLineEnd returns where the digest of a line of sha256sum ends. The tool
// begins a line with a backslash when it had to escape the file name.
func sumLineEnd(t string) int {
	if strings.HasPrefix(t, `\`) {
		return 1 + hexLen
	}
	return hexLen
}

// isSumLine reports whether t is 64 hex characters, white space and a name.
func isSumLine(t string) bool {
	end := sumLineEnd(t)
	return len(t) > end && firstNonHex(t[end-hexLen:]) == hexLen && strings.ContainsRune(asciiSpace, rune(t[end]))
}

// isTagLine reports whether a lower-cased t is "sha256 (name) = hex" as BSD
// tools and sha256sum --tag print it, or the closer spelling of openssl dgst.
func isTagLine(t string) bool {
	for _, head := range []string{"sha256 (", "sha256(", "sha2-256(", "sha2-256 ("} {
		if strings.HasPrefix(t, head) {
			return strings.Contains(t, ")= ") || strings.Contains(t, ") = ")
		}
	}
	return false
}

// isBase64Digest reports whether t is base64 of 32 bytes in some alphabet.
func isBase64Digest(t string) bool {
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if raw, err := enc.DecodeString(t); err == nil && len(raw) == len(Digest{}) {
			return true
		}
	}
	return false
}
