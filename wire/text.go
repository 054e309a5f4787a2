package wire

import (
	"bytes"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode/utf8"
)

// index is the path of a list element.
func index(i int) string { return fmt.Sprintf("[%d]", i) }

// checkUUID refuses what is not a UUID in the lower case that every payload has
// after Decode.
func checkUUID(s, what string) *Error {
	id, err := parseUUID(s, what)
	if err == nil && id != s {
		err = refuse("", "%s is written in lower case", what)
	}
	return err
}

// checkText admits printable UTF-8. These texts end up in headers, terminals
// and file dialogs, where a control character is an attack or an accident.
func checkText(s string, most int) *Error {
	if len(s) > most {
		return refuse("", "%d bytes; at most %d are taken", len(s), most)
	}
	if !utf8.ValidString(s) {
		return &Error{Offset: firstInvalid([]byte(s)), Msg: "not valid UTF-8"}
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }); i >= 0 {
		return &Error{Offset: i, Msg: "a control character"}
	}
	return nil
}

// cidPrefixes are how the bytes of an admitted CID begin: version 1, codec raw
// or dag-pb, multihash sha2-256 with 32 bytes.
var cidPrefixes = [][]byte{{0x01, 0x55, 0x12, 0x20}, {0x01, 0x70, 0x12, 0x20}}

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// checkCID admits the one canonical spelling of a CIDv1 over SHA-256: multibase
// "b" and lower-case base32. Package blob reads CIDs with the IPFS library; this
// keeps what can never be one out of records.
func checkCID(s string) *Error {
	const want = "give a bare CIDv1 in lower-case base32, raw or dag-pb over sha2-256"
	text, ok := strings.CutPrefix(s, "b")
	if !ok || len(text) != base32Lower.EncodedLen(36) {
		return refuse("", "%s; %s", show(s), want)
	}
	raw, err := base32Lower.DecodeString(text)
	if err != nil || base32Lower.EncodeToString(raw) != text {
		return refuse("", "%s; %s", show(s), want)
	}
	for _, p := range cidPrefixes {
		if bytes.HasPrefix(raw, p) {
			return nil
		}
	}
	return refuse("", "%s; %s", show(s), want)
}
