package wire

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	hexLen    = 2 * len(Digest{}) // characters of a digest in hex
	prefixHex = "sha256:"         // algorithm prefix before hex
	prefixSRI = "sha256-"         // W3C Subresource Integrity prefix before base64
)

// ParseDigest reads a SHA-256 in one of the published spellings: 64 hex
// characters in any case, the same after "sha256:", or a Subresource Integrity
// token, "sha256-" and padded standard base64 which must be the very text that
// the digest encodes to. ASCII white space around it is dropped.
//
// Order matters: 64 hex characters are also valid base64 of 48 other bytes, so
// base64 is read behind its prefix only. Everything else is an *Error with the
// length, a guess at what the text is, and the offset of the first character
// that does not fit.
func ParseDigest(s string) (Digest, error) {
	t := strings.Trim(s, asciiSpace)
	if d, ok := digestOfHex(t); ok {
		return d, nil
	}
	if rest, found := strings.CutPrefix(t, prefixHex); found {
		if d, ok := digestOfHex(rest); ok {
			return d, nil
		}
	}
	if rest, found := strings.CutPrefix(t, prefixSRI); found {
		if d, ok := digestOfBase64(rest); ok {
			return d, nil
		}
	}
	return Digest{}, explainDigest(s)
}

// asciiSpace is what the C locale calls white space. Other blanks, such as
// U+00A0, are characters that do not belong there.
const asciiSpace = " \t\n\v\f\r"

// digestOfHex reads exactly 64 hex characters in any case.
func digestOfHex[S string | []byte](s S) (d Digest, ok bool) {
	if len(s) != hexLen {
		return Digest{}, false
	}
	for i := range d {
		hi, lo := hexValue[s[2*i]], hexValue[s[2*i+1]]
		if hi|lo > 0xf {
			return Digest{}, false
		}
		d[i] = hi<<4 | lo
	}
	return d, true
}

// hexValue maps a hex character to its value and every other byte to 0xff.
var hexValue = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for v, c := range []byte("0123456789abcdef") {
		t[c] = byte(v)
	}
	for v, c := range []byte("ABCDEF") {
		t[c] = byte(10 + v)
	}
	return t
}()

// digestOfBase64 reads padded standard base64 of 32 bytes in its one canonical
// spelling. Four spellings of the last character decode to the same bytes, and
// the decoder skips line breaks: comparing with the encoding refuses them all.
func digestOfBase64(s string) (d Digest, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw) != len(d) || base64.StdEncoding.EncodeToString(raw) != s {
		return Digest{}, false
	}
	return Digest(raw), true
}

// AppendText appends the 64 lower-case hex characters of d to b.
func (d Digest) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, d[:]), nil }

// MarshalText returns the 64 lower-case hex characters of d.
func (d Digest) MarshalText() ([]byte, error) { return d.AppendText(make([]byte, 0, hexLen)) }

// UnmarshalText reads every form that ParseDigest accepts, so JSON fields do.
func (d *Digest) UnmarshalText(text []byte) error {
	v, ok := digestOfHex(text)
	if !ok {
		var err error
		if v, err = ParseDigest(string(text)); err != nil {
			return err
		}
	}
	*d = v
	return nil
}

// ParseRecordID reads a record id: 64 hex characters, in any case. No other
// spelling of it exists.
func ParseRecordID(s string) (RecordID, error) {
	d, ok := digestOfHex(s)
	if !ok {
		return RecordID{}, explainHex(s, 0, "a record id")
	}
	return RecordID(d), nil
}

// AppendText appends the 64 lower-case hex characters of r to b.
func (r RecordID) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, r[:]), nil }

// MarshalText returns the 64 lower-case hex characters of r.
func (r RecordID) MarshalText() ([]byte, error) { return r.AppendText(make([]byte, 0, hexLen)) }

// UnmarshalText reads what ParseRecordID accepts.
func (r *RecordID) UnmarshalText(text []byte) error {
	d, ok := digestOfHex(text)
	if !ok {
		return explainHex(string(text), 0, "a record id")
	}
	*r = RecordID(d)
	return nil
}
