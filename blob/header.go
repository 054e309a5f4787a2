package blob

import (
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
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
