package edge

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// cacheRevalidate is for answers that may grow: a client may keep one, and has
// to ask whether it still holds.
const cacheRevalidate = "private, no-cache"

// answer sends v as JSON.
func (x *exchange) answer(status int, v any) error {
	body, err := wire.Encode(v)
	if err != nil {
		return err
	}
	x.send(status, typeJSON, body)
	return nil
}

// answerTagged sends v as JSON with a strong entity tag over its bytes, or 304
// to a caller who has those.
func (x *exchange) answerTagged(v any) error {
	body, err := wire.Encode(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	x.Header().Set("Cache-Control", cacheRevalidate)
	if x.unchanged(tag) {
		return nil
	}
	x.send(http.StatusOK, typeJSON, body)
	return nil
}

// send sends a whole answer.
func (x *exchange) send(status int, contentType string, body []byte) {
	h := x.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	x.Write(body) // a failure is the connection's end; the exchange keeps it
}

// unchanged sets the entity tag, and answers 304 if it is among those that the
// caller has (RFC 9110, section 13.1.2).
func (x *exchange) unchanged(tag string) bool {
	x.Header().Set("ETag", tag)
	if !blob.MatchesETag(x.r.Header.Values("If-None-Match"), tag, false) {
		return false
	}
	x.WriteHeader(http.StatusNotModified)
	return true
}

// reprDigest is the header Repr-Digest of RFC 9530.
func reprDigest(d wire.Digest) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(d[:]) + ":"
}

// query reads the parameters of a request. Unknown ones are ignored; one that
// is given twice is refused, because programs differ in which they take.
func (x *exchange) query() (params, error) {
	values, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return nil, fault.New(fault.Invalid, codeBadParameter, "the query of the URL does not parse: %w", err)
	}
	return params(values), nil
}

// params are the parameters of a request's query.
type params url.Values

// text returns the parameter that may be given once, or "".
func (p params) text(name string) (string, error) {
	switch values := p[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", badParameter(name, "it is given more than once; give it once")
}

// flag returns a parameter that is true or false, or nil if it is not given.
func (p params) flag(name string) (*bool, error) {
	text, err := p.text(name)
	if err != nil || len(p[name]) == 0 {
		return nil, err
	}
	switch text {
	case "true", "1":
		return new(true), nil
	case "false", "0":
		return new(false), nil
	}
	return nil, badParameter(name, "it is neither true nor false")
}

// badParameter refuses a parameter of the path or query.
func badParameter(name, format string, args ...any) error {
	return fault.New(fault.Invalid, codeBadParameter, name+": "+format, args...).InField(name)
}
