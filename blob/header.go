package blob

import (
	"maps"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Caching of what its address fixes, by whoever asked or by everybody. A file of
// a tenant is never public: a shared cache would give it to another (RFC 9111,
// section 3.5).
const (
	cachePrivate = "private, max-age=29030400, immutable"
	cachePublic  = "public, max-age=29030400, immutable"
	whoAsks      = "Authorization, X-Api-Key"
)

// common sets what 200, 206 and 304 share. They are somebody's bytes on our
// origin: nothing about them may run or be guessed.
func (e *Entity) common(h http.Header) {
	maps.Copy(h, e.Header)
	cache, vary := cachePrivate, whoAsks
	if e.Public {
		cache, vary = cachePublic, ""
	}
	if vary != "" && e.Vary != "" {
		vary += ", "
	}
	h.Del("Vary")
	if vary += e.Vary; vary != "" {
		h.Set("Vary", vary)
	}
	h.Set("ETag", e.ETag)
	h.Set("Cache-Control", cache)
	h.Set("Accept-Ranges", "bytes")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// ContentType returns a stored media type if it is one that no browser can be
// led to run. The stored text is a stranger's.
func ContentType(stored string) string {
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

// Disposition makes every file an attachment under a harmless form of a name
// (RFC 6266, RFC 8187): no path, no control or invisible characters, and an
// ASCII form for clients that know no other.
func Disposition(name string) string {
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

// MatchesETag reports whether a list of entity tags (RFC 9110, section 8.8.3) has
// etag, or is "*". Strong comparison, for If-Match, excludes weak tags. What is
// malformed matches nothing from there on.
func MatchesETag(lines []string, etag string, strong bool) bool {
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
