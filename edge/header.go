package edge

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
)

// oneHeader returns the value of a header that may be sent once. A header sent
// twice is read differently by different programs in front of us, so two values
// are refused unless they agree.
func oneHeader(h http.Header, name string) (value string, found bool, err error) {
	values := h.Values(name)
	for _, v := range values {
		if trim(v) != trim(values[0]) {
			return "", false, fault.New(fault.Invalid, codeBadHeader, "the header %s was sent more than once, with different values; send it once", name).InField(name)
		}
	}
	if len(values) == 0 {
		return "", false, nil
	}
	return trim(values[0]), true, nil
}

// trim takes off the white space that RFC 9110 allows around a field value.
func trim(s string) string { return strings.Trim(s, " \t") }

// maxRequestID bounds an X-Request-Id from outside, in characters.
const maxRequestID = 64

// requestID returns the X-Request-Id of the caller if there is one, and it can
// do no harm in a log line or header; else a fresh one.
func requestID(h http.Header) string {
	if values := h.Values("X-Request-Id"); len(values) == 1 && plainToken(values[0], maxRequestID) {
		return values[0]
	}
	return strings.ToLower(rand.Text())
}

// plainToken reports whether s has 1 to most characters of [A-Za-z0-9._-].
func plainToken(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// MaxIdempotencyKey is the longest Idempotency-Key, in characters between the
// quotes.
const MaxIdempotencyKey = 255

// idempotencyKey reads the Idempotency-Key header
// (draft-ietf-httpapi-idempotency-key-header-07): a quoted string of RFC 8941,
// section 3.3.3. The bare form that most clients send is taken as well, and
// means the same as the quoted one. Without the header the key is empty.
func idempotencyKey(h http.Header) (string, error) {
	value, found, err := oneHeader(h, "Idempotency-Key")
	if err != nil || !found {
		return "", err
	}
	key, ok := value, strings.IndexFunc(value, notBare) < 0
	if strings.HasPrefix(value, `"`) {
		key, ok = quotedString(value)
	}
	switch {
	case !ok:
		return "", badIdempotencyKey(`must be printable ASCII between quotes, such as "8e03978e", with \" and \\ for a quote and a backslash inside; the quotes may be left off if there is no blank, quote, backslash, comma or semicolon in it`)
	case key == "":
		return "", badIdempotencyKey("is empty; leave the header off if the request has no key")
	case len(key) > MaxIdempotencyKey:
		return "", badIdempotencyKey("has %d characters; it may have %d", len(key), MaxIdempotencyKey)
	}
	return key, nil
}

func badIdempotencyKey(format string, args ...any) error {
	return fault.New(fault.Invalid, codeIdempotencyKey, "Idempotency-Key: it "+format, args...).InField("Idempotency-Key")
}

// notBare reports whether a character needs the quoted form.
func notBare(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\,;`, c) }

// quotedString reads a string of RFC 8941: s is all of it, quotes included.
func quotedString(s string) (text string, ok bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	var out []byte
	for in := s[1 : len(s)-1]; in != ""; in = in[1:] {
		switch c := in[0]; {
		case c < ' ' || c > '~' || c == '"':
			return "", false
		case c == '\\':
			if len(in) < 2 || in[1] != '"' && in[1] != '\\' {
				return "", false
			}
			in = in[1:]
		}
		out = append(out, in[0])
	}
	return string(out), true
}

// preferWait returns how long the caller is ready to wait by the Prefer header
// (RFC 7240, section 4.3), whole seconds. Preferences that are unknown or can
// not be read are ignored, and of two the first counts, as section 2 demands.
func preferWait(h http.Header) (wait time.Duration, found bool) {
	for _, value := range h.Values("Prefer") {
		for value != "" {
			var preference string
			preference, value = cutUnquoted(value, ',')
			preference, _ = cutUnquoted(preference, ';') // parameters mean nothing to wait
			name, arg, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(trim(name), "wait") {
				continue
			}
			arg = trim(arg)
			if text, ok := quotedString(arg); ok {
				arg = text
			}
			seconds, ok := deltaSeconds(arg)
			return seconds, ok
		}
	}
	return 0, false
}

// deltaSeconds reads digits, and nothing else, as seconds (RFC 9110, section
// 10.2.3). More than a day is a day: nobody waits that long.
func deltaSeconds(s string) (time.Duration, bool) {
	const most = 24 * time.Hour
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > int64(most/time.Second) {
		return most, true
	}
	return time.Duration(n) * time.Second, true
}

// cutUnquoted splits s at the first sep that is not inside a quoted string.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && c == sep:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
