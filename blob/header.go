package blob

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/verae/archive/internal/fault"
)

// commonHeaders sets what 200 and 304 share. The gateway specification wants
// "public" caching; a file of a tenant is private, and varies by the headers
// that say who asks.
func commonHeaders(h http.Header, cid string) {
	h.Set("ETag", `"`+cid+`"`)
	h.Set("Cache-Control", "private, max-age=29030400, immutable")
	h.Add("Vary", "Authorization, X-Api-Key")
	h.Set("X-Ipfs-Path", "/ipfs/"+cid)
	h.Set("Ipfs-Uri", "ipfs://"+cid)
	h.Set("Accept-Ranges", "none")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// contentType returns a stored media type if it is one that no browser can be
// led to run. The stored text is a stranger's.
func contentType(stored string) string {
	media, _, err := mime.ParseMediaType(stored)
	if err != nil {
		return typeOctetStream
	}
	switch media {
	case "application/pdf", "image/png", "image/jpeg", "image/tiff":
		return media
	case "text/plain":
		return "text/plain; charset=utf-8"
	}
	return typeOctetStream
}

// disposition makes every file an attachment under a harmless form of a name
// (RFC 6266, RFC 8187): no path, no control or invisible characters, and an
// ASCII form for clients that know no other.
func disposition(name string) string {
	name = harmless(name)
	ascii := strings.Map(func(r rune) rune {
		if r >= 0x7f || r == '"' || r == '%' {
			return '_'
		}
		return r
	}, name)
	if ascii == name {
		return `attachment; filename="` + ascii + `"`
	}
	return `attachment; filename="` + ascii + `"; filename*=UTF-8''` + extValue(name)
}

func harmless(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, name)
	for len(name) > maxFilename {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	if name == "." || name == ".." {
		return strings.Repeat("_", len(name))
	}
	return name
}

// extValue percent-encodes all but the attr-char of RFC 8187.
func extValue(s string) string {
	const plain = "!#$&+-.^_`|~"
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

// matchesETag reports whether a list of entity tags (RFC 9110, section 8.8.3) has
// etag, or is "*". Strong comparison, for If-Match, excludes weak tags. What is
// malformed matches nothing from there on.
func matchesETag(lines []string, etag string, strong bool) bool {
	rest := strings.Join(lines, ",")
	if strings.TrimSpace(rest) == "*" {
		return true
	}
	for {
		rest = strings.TrimLeft(rest, " \t,")
		tag, weak := strings.CutPrefix(rest, "W/")
		if !strings.HasPrefix(tag, `"`) {
			return false
		}
		end := strings.IndexByte(tag[1:], '"')
		if end < 0 {
			return false
		}
		if tag[:end+2] == etag && !(weak && strong) {
			return true
		}
		rest = tag[end+2:]
	}
}

// problem is an RFC 9457 answer.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// writeProblem is the answer to a failed request where nobody set a better one.
// What is our own fault is not told in detail.
func writeProblem(w http.ResponseWriter, _ *http.Request, err error) {
	p := problem{Status: statusOf(err), Code: fault.CodeOf(err), Detail: err.Error()}
	p.Title = http.StatusText(p.Status)
	switch fault.KindOf(err) {
	case fault.Internal, fault.Corrupt:
		p.Detail = "the file cannot be read; the operator has to look"
	}
	if d := fault.RetryAfter(err); d > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
	}
	body, err := json.Marshal(p)
	must("encode a problem", err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client is told as well as can be
}

func statusOf(err error) int {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Status
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Denied:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Transient:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
