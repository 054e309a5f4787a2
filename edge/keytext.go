package edge

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// The text of an API key, 66 characters:
//
//	vk_live_ <id, 8> _ <secret, 43> _ <checksum, 6>
//
// The secret is 32 random bytes, and the checksum the CRC-32 (IEEE) of all that
// stands before its underscore, both in base62 (0-9A-Za-z) as big-endian
// numbers of fixed width. The checksum tells a mistyped key from a wrong one
// without a look at the key file, and lets scanners for leaked secrets find
// keys with few false alarms. The id is public: it may be logged.
const (
	keyPrefix      = "vk_live_"
	keyIDLength    = 8
	keySecretWidth = 43 // base62 digits that hold 256 bits
	keySumWidth    = 6  // base62 digits that hold 32 bits
	keyLength      = len(keyPrefix) + keyIDLength + 1 + keySecretWidth + 1 + keySumWidth
)

const base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// keyText is a key as its owner holds it. It is never stored nor logged.
type keyText struct {
	id   string
	hash [sha256.Size]byte // of the whole text; what the key file keeps
}

// newKeyText makes a key with a random id and secret, and returns its text.
func newKeyText() (string, keyText) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the program instead
	id := strings.ToLower(rand.Text()[:keyIDLength])
	body := keyPrefix + id + "_" + base62(secret[:], keySecretWidth)
	text := body + "_" + keySum(body)
	return text, keyText{id: id, hash: sha256.Sum256([]byte(text))}
}

// parseKeyText reads the text of a key. It says nothing about whether such a
// key exists. The errors never repeat the text.
func parseKeyText(text string) (keyText, error) {
	if !strings.HasPrefix(text, keyPrefix) {
		return keyText{}, malformedKey("it does not start with %q", keyPrefix)
	}
	if len(text) != keyLength {
		return keyText{}, malformedKey("it has %d characters where a key has %d; part of it may be missing", len(text), keyLength)
	}
	body, sum := text[:keyLength-keySumWidth-1], text[keyLength-keySumWidth:]
	id := body[len(keyPrefix):][:keyIDLength]
	if text[len(keyPrefix)+keyIDLength] != '_' || text[len(body)] != '_' || strings.Trim(id, keyIDDigits) != "" {
		return keyText{}, malformedKey("its parts are not where they belong")
	}
	if sum != keySum(body) {
		return keyText{}, malformedKey("its checksum does not match, so at least one character is wrong")
	}
	return keyText{id: id, hash: sha256.Sum256([]byte(text))}, nil
}

// keyIDDigits are the characters of key ids: RFC 4648 base32 in lower case.
const keyIDDigits = "abcdefghijklmnopqrstuvwxyz234567"

func malformedKey(format string, args ...any) error {
	return fault.New(fault.Denied, codeKeyMalformed, "the API key is mistyped: %s; paste the whole key once more", fmt.Sprintf(format, args...))
}

// keySum is the checksum of what stands before it in a key.
func keySum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return base62([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, keySumWidth)
}

// base62 writes a big-endian number with a fixed number of digits, which must
// be enough for it.
func base62(number []byte, width int) string {
	n, radix, digit := new(big.Int).SetBytes(number), big.NewInt(int64(len(base62Digits))), new(big.Int)
	out := make([]byte, width)
	for i := range out {
		n.DivMod(n, radix, digit)
		out[width-1-i] = base62Digits[digit.Int64()]
	}
	return string(out)
}
